"""How an invocation went, as data."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tenuto.errors import TenutoError
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import State

S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[S]):
    """How an invocation went: `completed`, `suspended`, `errored` with the error, or `interrupted` by the stop check.

    `state` is the final state, or, of a suspended or interrupted run, the outermost state it stopped in; after an error
    it is None, unless only the session's save failed. `session_existed` says whether there was a session to load, and
    `session_kept` is False if the run named one but its graph has no session store. A suspended run has what it waits
    for (`descriptor`, `wait_id`) and the node that asked: `node_name` in its own graph, `namespace` from the outermost
    graph down.
    """

    outcome: str
    invocation_id: str
    correlation_id: str
    session_id: str | None = None
    session_existed: bool | None = None
    session_kept: bool | None = None
    entry_state: S | None = None
    state: S | None = None
    error: TenutoError | None = None
    descriptor: SignalDescriptor | None = None
    wait_id: str | None = None
    node_name: str | None = None
    namespace: tuple[str, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether the graph reached END, and its session was saved."""
        return self.outcome == "completed"

    @property
    def suspended(self) -> bool:
        """Whether the run is paused and can be resumed."""
        return self.outcome == "suspended"

    @property
    def interrupted(self) -> bool:
        """Whether the stop check ended the run before its next node."""
        return self.outcome == "interrupted"
