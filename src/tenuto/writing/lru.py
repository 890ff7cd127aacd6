"""The values used last, kept up to a total size."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

DEFAULT_BYTES = 64 * 1024 * 1024
"""How much stored text the values kept in memory may stand for."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Sized(NamedTuple, Generic[V]):
    value: V
    size: int


class Lru(Generic[K, V]):
    """Keeps values by key and lets go of those used longest ago; one that is bigger than the limit is not kept."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._kept: OrderedDict[K, _Sized[V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return a value, which is then the one used last."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key].value

    def pop(self, key: K) -> V | None:
        """Return a value and keep it no longer."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._size -= found.size
        return found.value

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value, in place of any that was kept under its key; `size` counts as it is now."""
        self.pop(key)
        if size > self._limit:
            return
        self._kept[key] = _Sized(value, size)
        self._size += size
        while self._size > self._limit:
            self._size -= self._kept.popitem(last=False)[1].size
