"""The lanes that the running code runs under: its run's, and those of the runs around that.

A run that waits for a lane which a run around it holds waits for itself. Tasks inherit what their creator runs under;
a lane that was released meanwhile no longer counts, so a task that outlives its run may take it.
"""

from contextvars import ContextVar
from typing import Any

from tenuto.errors import NestedSession
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef
from tenuto.model.session import SessionKey


class HeldLane:
    """What one run holds, until it is released: a lane, or the lock of a user's own store."""

    __slots__ = ("key", "store")

    def __init__(self) -> None:
        self.store: Any = None
        self.key: SessionKey | None = None

    def hold(self, store: Any, held: Lane | RunRef | SessionKey) -> None:
        """Note what is held; a run alone has no lane."""
        if not isinstance(held, RunRef):
            self.store, self.key = store, held if isinstance(held, SessionKey) else held.key

    def enter(self) -> None:
        """Note that the running code, and the tasks it creates, run under this lane.

        That is the code of the program: whoever began the turn may do something else meanwhile.
        """
        above = _held.get()
        if self.key is not None and self not in above:
            _held.set((*(each for each in above if each.key is not None), self))

    def release(self) -> None:
        """Hold nothing any more."""
        self.store = self.key = None


_held: ContextVar[tuple[HeldLane, ...]] = ContextVar("tenuto_held_lanes", default=())


_SUBGRAPH = "Make the inner graph a subgraph of the outer one, or name another concurrency for it."


def refuse_nested(store: Any, key: SessionKey, instead: str = _SUBGRAPH) -> None:
    """Refuse to wait for a lane that a run around the running code holds; `instead` says what to do."""
    if any(each.store is store and each.key == key for each in _held.get()):
        raise NestedSession(
            f"A run on {key} was started within a run on the same session, which holds it until it ends. {instead}",
            key=key,
        )
