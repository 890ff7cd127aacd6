"""The options of `open_store`: known by name, and of a kind that means something."""

from collections.abc import Collection, Iterable
from math import isfinite

from tenuto.errors import InvalidInput


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
