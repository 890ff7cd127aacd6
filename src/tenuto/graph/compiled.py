"""A compiled graph: what can be invoked, observed, and used as a node of another."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tenuto.errors import GraphRunError, InvalidInput
from tenuto.graph.nodes import Middleware, Node
from tenuto.graph.observers import Attachment, Deliveries, DrainSummary, Observer, Subscription, subscription
from tenuto.graph.run import Frame, Interrupted, Run
from tenuto.graph.scope import Metadata, Scope, checked_metadata, scope_variable
from tenuto.graph.state import State, schema_of
from tenuto.ids import check_id

S = TypeVar("S", bound=State)

Edge = Any
"""Where a node leads: a node's name, END, or a function of the state that returns one of them."""

DEFAULT_STEP_LIMIT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Generic[S]):
    """How an invocation went: `completed`, `errored` with the error, or `interrupted` by the stop check."""

    outcome: str
    invocation_id: str
    correlation_id: str
    entry_state: S | None
    state: S | None
    error: GraphRunError | None = None

    @property
    def completed(self) -> bool:
        """Whether the graph reached END."""
        return self.outcome == "completed"


class CompiledGraph(Generic[S]):
    """A graph that has been checked. It keeps no state of a run, so one may serve any number of invocations at once."""

    def __init__(
        self,
        *,
        kind: type[S],
        name: str,
        nodes: dict[str, Node],
        edges: dict[str, Edge],
        entry: str,
        end: object,
        middleware: tuple[Middleware, ...],
    ) -> None:
        self.kind = kind
        self.name = name
        self.schema = schema_of(kind)
        self.nodes = nodes
        self.edges = edges
        self.entry = entry
        self.end = end
        self.observers: list[Subscription] = []
        self._chains = {node.name: middleware + node.middleware for node in nodes.values()}
        self._deliveries = Deliveries()

    def chain_of(self, node: Node) -> tuple[Middleware, ...]:
        """Return the middleware around a node, the graph's outside the node's own."""
        return self._chains[node.name]

    def attach_observer(self, observer: Observer, phases: Iterable[str] | None = None) -> Attachment:
        """Let an observer see this graph's events, also where the graph runs inside another; all phases by default."""
        attached = subscription(observer, phases)
        self.observers.append(attached)
        return Attachment(self.observers, attached)

    async def drain(self, timeout: float | None = None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until the events of everything under way are delivered; at the timeout the rest is dropped and
        counted.
        """
        return await self._deliveries.drain(timeout)

    async def drain_events_for(self, invocation_id: str, timeout: float | None = None) -> DrainSummary:  # noqa: ASYNC109
        """Wait until what an invocation has emitted so far is delivered; a node may call it."""
        return await self._deliveries.drain_for(invocation_id, timeout)

    async def invoke(self, initial: S | Mapping[str, Any] | None = None, **options: Any) -> S:
        """Run the graph and return its final state; an error is raised. The options are those of `run`."""
        outcome = await self.run(initial, **options)
        if outcome.error is not None:
            raise outcome.error
        assert outcome.state is not None
        return outcome.state

    async def run(
        self,
        initial: S | Mapping[str, Any] | None = None,
        *,
        observers: Iterable[Observer | Subscription] = (),
        correlation_id: str | None = None,
        invocation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        stop: Callable[[], bool] | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
    ) -> Outcome[S]:
        """Run the graph and return how it went, as data.

        `initial` gives fields in place of their defaults. `stop` is asked before each node; once true, the next node
        does not start. `step_limit` bounds the number of node executions. Cancelling leaves no task behind.
        """
        if type(step_limit) is not int or step_limit < 1:
            raise InvalidInput(f"step_limit must be 1 or more, got {step_limit!r}.")
        scope = Scope(
            invocation_id=check_id(invocation_id, "invocation_id") if invocation_id is not None else str(uuid4()),
            correlation_id=correlation_id or str(uuid4()),
            session_id=None,
            metadata=Metadata(checked_metadata(metadata or {})),
        )
        own = tuple(each if isinstance(each, Subscription) else subscription(each) for each in observers)
        token = scope_variable.set(scope)
        run = None
        try:
            # Made once the scope stands, so that observers see the invocation's identities too.
            delivery = self._deliveries.begin(scope.invocation_id) if own or self._observed() else None
            run = Run(delivery, own, step_limit, stop)
            return await self._outcome(run, scope, initial)
        finally:
            if run is not None and run.delivery is not None:
                run.delivery.close()
            scope_variable.reset(token)

    async def _outcome(self, run: Run, scope: Scope, initial: S | Mapping[str, Any] | None) -> Outcome[S]:
        ids: dict[str, Any] = {"invocation_id": scope.invocation_id, "correlation_id": scope.correlation_id}
        entry: Any = None
        try:
            entry = self.schema.initial(initial)
            state = await Frame(run, self, scope).execute(entry)
        except Interrupted as signal:
            return Outcome(outcome="interrupted", entry_state=entry, state=signal.state if entry else None, **ids)
        except GraphRunError as error:
            return Outcome(outcome="errored", entry_state=entry, state=None, error=error, **ids)
        return Outcome(outcome="completed", entry_state=entry, state=state, **ids)

    def _observed(self) -> bool:
        return bool(self.observers) or any(graph._observed() for graph in self.inner_graphs())

    def inner_graphs(self) -> list["CompiledGraph[Any]"]:
        """Return the graphs that run inside this one's nodes."""
        return [graph for node in self.nodes.values() for graph in node.graphs()]

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, with subgraphs, fan-outs and branches."""
        from tenuto.graph.draw import mermaid

        return mermaid(self)
