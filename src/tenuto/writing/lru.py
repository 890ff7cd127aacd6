"""A cache of the most recently used values, up to a total size."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

DEFAULT_BYTES = 64 * 1024 * 1024
"""The limit of a cache, in bytes of the stored text that its values represent."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Sized(NamedTuple, Generic[V]):
    value: V
    size: int


class Lru(Generic[K, V]):
    """Keeps values by key and evicts the least recently used; a value bigger than the limit is not kept."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[K, _Sized[V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return a value and mark it as the most recently used; None if it is not kept."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key].value

    def pop(self, key: K) -> V | None:
        """Remove and return a value; None if it is not kept."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._size -= found.size
        return found.value

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value, replacing any under the same key; `size` is not measured again later."""
        self.pop(key)
        if size > self._limit:
            return
        self._kept[key] = _Sized(value, size)
        self._size += size
        while self._size > self._limit:
            self._size -= self._kept.popitem(last=False)[1].size
