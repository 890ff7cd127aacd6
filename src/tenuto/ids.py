"""The ids we mint, and the rules for the ids callers give."""

import os
import time
import unicodedata
from struct import unpack
from threading import Lock
from uuid import UUID, uuid5

from tenuto.errors import InvalidId
from tenuto.quote import quote

MAX_ID_BYTES = 255

_lock = Lock()
_last = 0

_drawn: list[int] = []
"""Random numbers not used yet: asking the system for every id costs more than minting it."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drawn.clear)


def new_id() -> str:
    """Mint a UUIDv7: unique, ordered by the time of minting within a process, and not to be guessed from others."""
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 bits of sub-millisecond, never going back within this process.
        _last = tick = max(_last + 1, time.time_ns() * 4096 // 1_000_000)
        drawn = _drawn.pop() if _drawn else _draw()
    head, tail = f"{tick >> 12:012x}", f"{drawn >> 2 | 0x8000000000000000:016x}"
    return f"{head[:8]}-{head[8:]}-7{tick & 0xFFF:03x}-{tail[:4]}-{tail[4:]}"


def random_id() -> str:
    """Mint a UUIDv4: nothing about it can be guessed."""
    with _lock:
        digits = f"{_draw() & ~0xF000 | 0x4000:016x}{_draw() >> 2 | 0x8000000000000000:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def derived_id(seed: str, name: str) -> str:
    """Return the id that follows from another id and a name: the same one every time."""
    return str(uuid5(UUID(seed), name))


def _draw() -> int:
    """Return 64 bits that nobody can predict, for a caller that has the lock."""
    if not _drawn:
        _drawn.extend(unpack("512Q", os.urandom(4096)))
    return _drawn.pop()


def check_id(value: object, what: str = "session_id") -> str:
    """Return `value` if it is a valid id, or raise `InvalidId` saying which rule it breaks."""
    if not isinstance(value, str):
        raise InvalidId(f"{what} must be text, got {type(value).__name__}.", value=value)
    fault = _fault(value)
    if fault:
        raise InvalidId(f"{what} {quote(value)} {fault}.", value=value)
    return value


def check_tenant(value: object) -> str:
    """Return `value` if it is a valid tenant: empty, or text that follows the id rules."""
    return "" if isinstance(value, str) and not value else check_id(value, "tenant")


def _fault(value: str) -> str | None:
    if value.isascii() and value.isprintable():
        size = len(value)
    else:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            return "has a lone surrogate, which is not valid Unicode text"
        if any(unicodedata.category(character) == "Cc" for character in value):
            return "has a control character"
    if not 1 <= size <= MAX_ID_BYTES:
        return f"has {size} bytes of UTF-8; 1 to {MAX_ID_BYTES} are allowed"
    if "/" in value or "\\" in value:
        return "has a slash or backslash"
    if value != value.strip():
        return "begins or ends with a space"
    if value in {".", ".."}:
        return "names a folder"
    return None
