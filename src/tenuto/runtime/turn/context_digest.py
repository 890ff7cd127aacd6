"""A digest of the messages that a model sees, which grows with the conversation."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from tenuto.codec import encode_bytes

_SIZE = 12


class ContextDigest:
    """A digest of stored messages from one place to another; to extend it reads only the messages since."""

    __slots__ = ("_hash", "_since", "_upto")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start again: the conversation was rewritten."""
        self._since, self._upto, self._hash = 0, 0, blake2b(digest_size=_SIZE)

    def of(self, messages: Sequence[Any], since: int, upto: int) -> str:
        """Return the digest of the messages from `since` to `upto`."""
        if since != self._since or upto < self._upto:
            self._since, self._upto, self._hash = since, since, blake2b(digest_size=_SIZE)
        for message in messages[self._upto : upto]:
            self._hash.update(encode_bytes(message) + b"\n")
        self._upto = max(upto, since)
        return self._hash.hexdigest()
