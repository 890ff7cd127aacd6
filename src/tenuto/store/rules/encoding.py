"""The small steps from a caller's values to the text and numbers of rows."""

from datetime import datetime
from hashlib import sha256

from tenuto.clock import to_micros
from tenuto.codec import JSON, dumps
from tenuto.store.rules.limits import check_moment

_DIGEST_CHARACTERS = 32


def byte_size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def moment(value: datetime | None, what: str) -> int | None:
    """Return an aware datetime in microseconds; anything else is refused."""
    return None if value is None else to_micros(check_moment(value, what))


def maybe_json(value: JSON, where: str) -> str | None:
    """Return a value as JSON text, and None as the absence of one."""
    return None if value is None else dumps(value, where)


def digest_of(*texts: str) -> str:
    """Return a short hash of some texts; JSON text never holds the separator."""
    return sha256("\0".join(texts).encode()).hexdigest()[:_DIGEST_CHARACTERS]
