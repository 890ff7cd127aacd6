"""Handles of big values, for callers that write the same value again and again."""

from hashlib import sha256

from tenuto.codec import JSON, dumps
from tenuto.model.commit import Held
from tenuto.store.rules.commit.pack import HELD_FROM_BYTES
from tenuto.store.rules.encoding import byte_size


def handle_of(value: JSON) -> Held | None:
    """Return the handle under which the store holds a value once it was written; None for one it keeps inline."""
    text = dumps(value)
    return Held(hash=sha256(text.encode()).hexdigest()) if byte_size(text) >= HELD_FROM_BYTES else None
