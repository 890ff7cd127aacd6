"""A table of a memory store that finds rows by more than their key."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, KeysView, Mapping
from typing import Any, NamedTuple, Self, TypeVar

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Index(NamedTuple):
    """Which rows of a table are found together, and in which order; a row whose place is None is left out."""

    place: Callable[[Any], Hashable | None]
    order: Callable[[Any], Any]


class Indexed(dict[K, R]):
    """Rows by key, and by named indexes, which every write keeps: by item, `pop` or `|=`, there is no other.

    A search costs what is taken from it. It must not go on once the table is written to.
    """

    def __init__(self, **indexes: Index) -> None:
        super().__init__()
        self._indexes: dict[str, tuple[Index, dict[Any, list[tuple[Any, K]]]]] = {
            name: (index, {}) for name, index in indexes.items()
        }

    def __setitem__(self, key: K, row: R) -> None:
        self._move(key, self.get(key), row)
        super().__setitem__(key, row)

    def __delitem__(self, key: K) -> None:
        self._move(key, self[key], None)
        super().__delitem__(key)

    def __ior__(self, rows: Mapping[K, R]) -> Self:  # type: ignore[override, misc]
        for key, row in rows.items():
            self[key] = row
        return self

    def pop(self, key: K, default: Any = None) -> Any:
        """Remove a row, if it is there, and return it."""
        row = self.get(key, default)
        if key in self:
            del self[key]
        return row

    def places(self, index: str) -> KeysView[Any]:
        """Return the places that have rows."""
        return self._indexes[index][1].keys()

    def find(self, index: str, place: Hashable, start: Any = None) -> Iterator[R]:
        """Search the rows of a place in order, from `start` on."""
        found = self._indexes[index][1].get(place, [])
        first = 0 if start is None else bisect_left(found, (start,))
        return (self[found[each][1]] for each in range(first, len(found)))

    def find_back(self, index: str, place: Hashable, below: Any) -> Iterator[R]:
        """Search the rows of a place that are before `below`, the last one first."""
        found = self._indexes[index][1].get(place, [])
        return (self[found[each][1]] for each in range(bisect_left(found, (below,)) - 1, -1, -1))

    def _move(self, key: K, old: R | None, new: R | None) -> None:
        for index, places in self._indexes.values():
            left = None if old is None else index.place(old)
            taken = None if new is None else index.place(new)
            before = None if left is None else (index.order(old), key)
            after = None if taken is None else (index.order(new), key)
            if (left, before) == (taken, after):
                continue
            if before is not None:
                found = places[left]
                del found[bisect_left(found, before)]
                if not found:
                    del places[left]
            if after is not None:
                insort(places.setdefault(taken, []), after)
