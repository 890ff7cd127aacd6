"""The copies of sessions that are kept between turns; each is confirmed by the commit that uses it."""

from tenuto.model.session import SessionKey
from tenuto.runtime.cache.replica import Replica
from tenuto.writing.lru import DEFAULT_BYTES, Lru


class Replicas:
    """The copies used last, up to a total size of stored text; one is in use by at most one turn."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._copies: Lru[SessionKey, Replica] = Lru(limit)

    def take(self, key: SessionKey) -> Replica | None:
        """Hand out what is known of a session; it is not known any more until it is put back."""
        return self._copies.take(key)

    def put(self, copy: Replica) -> None:
        """Keep a copy, and let go of those used longest ago."""
        self._copies.put(copy.key, copy, copy.size)
