"""How an invocation went, as data."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tenuto.errors import InvocationInterrupted, InvocationSuspended, TenutoError
from tenuto.graph.signal import SignalDescriptor
from tenuto.graph.state import State
from tenuto.model.wait import Wait
from tenuto.words import GraphStatus

S = TypeVar("S", bound=State)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOutcome(Generic[S]):
    """How an invocation went: `completed`, `suspended`, `failed` with the error, or `interrupted` by the stop check.

    `state` is the final state, or, of a suspended or interrupted run, the outermost state it stopped in; after an error
    it is None, unless only the session's save failed. `session_existed` says whether there was a session to load, and
    `session_kept` is False if the run named one but its graph keeps none. A suspended run has what it waits for
    (`descriptor`, and `wait` as it is stored) and the node that asked: `node_name` in its own graph, `namespace` from
    the outermost graph down.
    """

    status: GraphStatus
    invocation_id: str
    correlation_id: str
    session_id: str | None = None
    session_existed: bool | None = None
    session_kept: bool | None = None
    entry_state: S | None = None
    state: S | None = None
    error: TenutoError | None = None
    descriptor: SignalDescriptor | None = None
    wait: Wait | None = None
    node_name: str | None = None
    namespace: tuple[str, ...] = ()

    @property
    def completed(self) -> bool:
        """Whether the graph reached END, and its session was saved."""
        return self.status == "completed"

    @property
    def suspended(self) -> bool:
        """Whether the run is paused and can be resumed."""
        return self.status == "suspended"

    @property
    def interrupted(self) -> bool:
        """Whether the stop check ended the run before its next node."""
        return self.status == "interrupted"

    def result(self) -> S:
        """Return the final state; an error is raised, and so are a suspension, as `InvocationSuspended`, and a stop, as
        `InvocationInterrupted`.
        """
        if self.error is not None:
            raise self.error
        if self.suspended:
            asked = f" ({self.descriptor.signal_id!r})" if self.descriptor else ""
            waits = repr(self.wait.wait_id) if self.wait else "the wait"
            raise InvocationSuspended(
                f"Invocation {self.invocation_id!r} is suspended at {self.node_name!r}{asked}; resume it with "
                f"graph.resume({waits}, {{...}}).",
                outcome=self,
            )
        if self.interrupted:
            raise InvocationInterrupted(
                f"Invocation {self.invocation_id!r} was stopped before it reached its end; the outcome has the state "
                "it stopped in. Resume it with resume_invocation if the graph writes checkpoints.",
                outcome=self,
            )
        assert self.state is not None
        return self.state
