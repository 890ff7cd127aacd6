"""The copies of sessions that are kept between turns; each is confirmed by the commit that uses it."""

from collections import OrderedDict

from tenuto.model.session import SessionKey
from tenuto.session.copy import Copy
from tenuto.session.warm import DEFAULT_BYTES


class Copies:
    """The copies used last, up to a total size of stored text; one is in use by at most one turn."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._copies: OrderedDict[SessionKey, Copy] = OrderedDict()

    def take(self, key: SessionKey) -> Copy | None:
        """Hand out what is known of a session; it is not known any more until it is put back."""
        copy = self._copies.pop(key, None)
        if copy is not None:
            self._size -= copy.size
        return copy

    def put(self, copy: Copy) -> None:
        """Keep a copy, and let go of those used longest ago."""
        self.take(copy.key)
        if copy.size > self._limit:
            return
        self._copies[copy.key] = copy
        self._size += copy.size
        while self._size > self._limit:
            self._size -= self._copies.popitem(last=False)[1].size
