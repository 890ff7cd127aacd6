"""A store's address as it may be shown, without its password, and the options of `open_store`."""

import re
from collections.abc import Collection, Iterable, Mapping
from math import isfinite
from typing import Any

from tenuto.errors import InvalidInput

_USER = re.compile(r"^(\s*(?:[^/?#]*?://)?)(.*)@", re.DOTALL)
_SECRET = re.compile(r"(?i)((?:password|passwd|sslpassword|pwd|token|secret)\s*=)[^&\s]*")

HIDDEN = "***"


def masked(url: str) -> str:
    """Return an address without its password, however badly it is written."""
    found = _USER.match(url)
    if found:
        user = found[2].partition(":")[0]
        url = f"{found[1]}{user}:{HIDDEN}@{url[found.end() :]}"
    return _SECRET.sub(rf"\1{HIDDEN}", url)


def scrubbed(text: str, url: str, options: Mapping[str, Any] = {}) -> str:
    """Return a driver's text without the secrets of an address and its options."""
    for secret in _secrets(url, options):
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(url: str, options: Mapping[str, Any]) -> list[str]:
    found = _USER.match(url)
    parts = found[2].partition(":")[2] if found else ""
    secrets = [parts, *re.split(r"[:@/?#]", parts), str(options.get("password") or "")]
    secrets += [match[0][len(match[1]) :] for match in _SECRET.finditer(url)]
    return sorted({secret for secret in secrets if len(secret) > 1}, key=len, reverse=True)


def check_known(given: Iterable[str], known: Collection[str], backend: str) -> None:
    """Refuse options that this backend does not have; their values may be secret, so only names are shown."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InvalidInput(
            f"open_store has no option {', '.join(unknown)} for {backend}; it has {', '.join(known)}.",
            unknown=unknown,
            known=list(known),
        )


def yes_or_no(value: object, name: str) -> bool:
    """Return an option that is True or False."""
    if not isinstance(value, bool):
        raise InvalidInput(f"{name} must be True or False, got {value!r}.")
    return value


def positive(value: object, name: str) -> float:
    """Return a number of seconds, more than 0 and not without end."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise InvalidInput(f"{name} must be a number of seconds above 0, got {value!r}.")
    return float(value)


def whole(value: object, name: str, at_most: int = 10_000) -> int:
    """Return a whole number of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= at_most:
        raise InvalidInput(f"{name} must be a whole number from 1 to {at_most}, got {value!r}.")
    return value
