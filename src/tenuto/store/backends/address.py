"""A store's address as it may be shown: without its password."""

import re
from collections.abc import Mapping
from typing import Any

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
