"""Session states kept in memory between turns, each confirmed against the store before it is used."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.model.session import SessionKey, Stamp
from tenuto.session.turn import Base

DEFAULT_BYTES = 64 * 1024 * 1024
"""How much stored text the states kept in memory may stand for."""


class WarmState(NamedTuple):
    """A session as it was last loaded or saved: its valid values by field, and how long its logs were."""

    life: int
    schema_version: str
    base: Base
    values: dict[str, Any]
    counts: dict[str, int]
    size: int


class WarmStates:
    """The states used last, up to a total size. One is valid only as long as its session has that life and version."""

    def __init__(self, limit: int = DEFAULT_BYTES, fields: Mapping[str, str] | None = None) -> None:
        self._limit = limit
        self._fields = fields or {}
        self._size = 0
        self._states: OrderedDict[SessionKey, WarmState] = OrderedDict()

    def get(self, key: SessionKey, stamp: Stamp) -> WarmState | None:
        """Return what is known of the session if it still is what the stamp says."""
        found = self._states.get(key)
        if found is None:
            return None
        if (found.life, found.base.version, found.schema_version) != (stamp.life, stamp.version, stamp.schema_version):
            self.drop(key)
            return None
        if any(len(found.values[self._fields.get(name, name)]) != count for name, count in found.counts.items()):
            self.drop(key)  # a node changed a list in place; the store has the truth
            return None
        self._states.move_to_end(key)
        return found

    def put(self, key: SessionKey, state: WarmState) -> None:
        """Keep a state, and let go of those used longest ago."""
        self.drop(key)
        if state.size > self._limit:
            return
        self._states[key] = state
        self._size += state.size
        while self._size > self._limit:
            self._size -= self._states.popitem(last=False)[1].size

    def drop(self, key: SessionKey) -> None:
        """Forget a state."""
        found = self._states.pop(key, None)
        if found is not None:
            self._size -= found.size
