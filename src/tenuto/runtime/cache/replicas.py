"""The replicas of sessions that are kept between turns; each is confirmed by the commit that uses it."""

from tenuto.model.session import SessionKey
from tenuto.runtime.cache.replica import Replica
from tenuto.writing.lru import DEFAULT_BYTES, Lru


class Replicas:
    """The replicas used last, up to a total size of stored text; one is in use by at most one turn."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._kept: Lru[SessionKey, Replica] = Lru(limit)

    def pop(self, key: SessionKey) -> Replica | None:
        """Hand out the replica of a session; it is not kept any more until it is put back."""
        return self._kept.pop(key)

    def put(self, replica: Replica) -> None:
        """Keep a replica, and drop those used longest ago."""
        self._kept.put(replica.key, replica, replica.size)
