"""Session states kept in memory between turns, each checked against the store before it is used."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.model.session import SessionKey, Stamp
from tenuto.writing.changes import Base
from tenuto.writing.lru import DEFAULT_BYTES, Lru


class WarmState(NamedTuple):
    """A session as it was last loaded or saved: its valid values by field, and how long its logs were."""

    life: int
    schema_version: str
    base: Base
    values: dict[str, Any]
    counts: dict[str, int]
    size: int


class StateCache:
    """The states used last, up to a total size. One is valid as long as its session has that life and version."""

    def __init__(self, limit: int = DEFAULT_BYTES, fields: Mapping[str, str] | None = None) -> None:
        self._fields = fields or {}
        self._states: Lru[SessionKey, WarmState] = Lru(limit)

    def get(self, key: SessionKey, stamp: Stamp) -> WarmState | None:
        """Return the session's state if it still matches the stamp; otherwise drop it."""
        found = self._states.get(key)
        if found is not None and self._holds(found, stamp):
            return found
        self.drop(key)
        return None

    def _holds(self, state: WarmState, stamp: Stamp) -> bool:
        if (state.life, state.base.version, state.schema_version) != (stamp.life, stamp.version, stamp.schema_version):
            return False
        # A node may have changed a list in place; then the store has to be asked.
        return all(len(state.values[self._fields.get(name, name)]) == count for name, count in state.counts.items())

    def put(self, key: SessionKey, state: WarmState) -> None:
        """Keep a state, and drop those used longest ago."""
        self._states.put(key, state, state.size)

    def drop(self, key: SessionKey) -> None:
        """Drop a state."""
        self._states.pop(key)
