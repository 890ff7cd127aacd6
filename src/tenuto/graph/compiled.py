"""A compiled graph: what can be invoked, observed, and used as a node of another."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from uuid import uuid4

from tenuto.errors import CheckpointNotFound, CheckpointSaveFailed, GraphError, InvalidInput, TenutoError
from tenuto.graph.journal import Journal, restore
from tenuto.graph.nodes import Middleware, Node
from tenuto.graph.observers import Attachment, Deliveries, DrainSummary, Observer, Subscription, subscription
from tenuto.graph.run import Frame, Interrupted, Run
from tenuto.graph.scope import Metadata, Scope, checked_metadata, scope_variable
from tenuto.graph.state import State, schema_of
from tenuto.ids import check_id
from tenuto.model.run import RunStatus
from tenuto.model.session import Kind, SessionKey
from tenuto.session.migration import MigrationRegistry
from tenuto.session.turn import Turn, find_checkpoint
from tenuto.store.port import Store

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
    error: TenutoError | None = None

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
        store: Store | None = None,
        migrations: MigrationRegistry | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.schema = schema_of(kind)
        self.nodes = nodes
        self.edges = edges
        self.entry = entry
        self.end = end
        self.store = store
        self.migrations = migrations or MigrationRegistry("checkpoint")
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
        resume_invocation: str | None = None,
    ) -> Outcome[S]:
        """Run the graph and return how it went, as data.

        `initial` gives fields in place of their defaults. `stop` is asked before each node; once true, the next node
        does not start. `step_limit` bounds the number of node executions. Cancelling leaves no task behind. With a
        store, every completed node leaves a checkpoint; `resume_invocation` goes on from the last one of an invocation,
        under a new id and the same correlation id.
        """
        if type(step_limit) is not int or step_limit < 1:
            raise InvalidInput(f"step_limit must be 1 or more, got {step_limit!r}.")
        if invocation_id is None or resume_invocation is not None:
            invocation_id = str(uuid4())
        scope = Scope(
            invocation_id=check_id(invocation_id, "invocation_id"),
            correlation_id=correlation_id or str(uuid4()),
            session_id=None,
            metadata=Metadata(checked_metadata(metadata or {})),
        )
        own = tuple(each if isinstance(each, Subscription) else subscription(each) for each in observers)
        try:
            scope, journal = await self._journal(scope, resume_invocation)
        except TenutoError as error:
            return _outcome("errored", scope, error=error)
        token = scope_variable.set(scope)
        # Made once the scope stands, so that observers see the invocation's identities too.
        delivery = self._deliveries.begin(scope.invocation_id) if own or self._observed() else None
        try:
            return await self._executed(Run(delivery, own, step_limit, stop, journal), scope, initial)
        finally:
            if delivery is not None:
                delivery.close()
            scope_variable.reset(token)

    async def _journal(self, scope: Scope, resumed: str | None) -> tuple[Scope, Journal | None]:
        """Begin the run's journal, if there is a store; a resumed one begins where the checkpoint ends."""
        if resumed is None:
            if self.store is None:
                return scope, None
            turn = await Turn.open(self.store, SessionKey(scope.invocation_id, kind=Kind.INVOCATION))
            await turn.begin(invocation_id=scope.invocation_id, correlation_id=scope.correlation_id)
            return scope, Journal(turn, self.kind.schema_version)
        found = await find_checkpoint(self.store, resumed) if self.store else None
        if self.store is None or found is None:
            raise CheckpointNotFound(f"Invocation {resumed!r} left no checkpoint to go on from.", invocation_id=resumed)
        scope = scope._replace(correlation_id=found.correlation_id)
        turn = await Turn.open(self.store, found.checkpoint.key)
        # Put together first, so that a checkpoint that does not fit leaves nothing behind.
        journal = restore(found, self, turn)
        await turn.begin(
            invocation_id=scope.invocation_id,
            correlation_id=scope.correlation_id,
            origin_id=found.origin_id,
            ends=found.checkpoint.ends,
        )
        return scope, journal

    async def _executed(self, run: Run, scope: Scope, initial: S | Mapping[str, Any] | None) -> Outcome[S]:
        entry: Any = None
        try:
            entry = run.journal.entry() if run.journal else None
            frame = Frame(run, self, scope)
            if entry is None:
                entry = self.schema.initial(initial)
                if run.journal:
                    run.journal.enter(frame, entry)
            state = await frame.execute(entry)
            if run.journal:
                await run.journal.turn.finish(RunStatus.COMPLETED)
        except Interrupted as signal:
            if run.journal:
                await run.journal.stopped()
                await run.journal.turn.finish(RunStatus.INTERRUPTED)
            return _outcome("interrupted", scope, entry, signal.state)
        except GraphError as error:
            if run.journal and not isinstance(error, CheckpointSaveFailed):
                with suppress(CheckpointSaveFailed):
                    await run.journal.stopped()
                    told = {"category": error.category, "message": error.message}
                    await run.journal.turn.finish(RunStatus.FAILED, told)
            return _outcome("errored", scope, entry, error=error)
        return _outcome("completed", scope, entry, state)

    def _observed(self) -> bool:
        return bool(self.observers) or any(graph._observed() for graph in self.inner_graphs())

    def inner_graphs(self) -> list["CompiledGraph[Any]"]:
        """Return the graphs that run inside this one's nodes."""
        return [graph for node in self.nodes.values() for graph in node.graphs()]

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, with subgraphs, fan-outs and branches."""
        from tenuto.graph.draw import mermaid

        return mermaid(self)


def _outcome(
    word: str, scope: Scope, entry: Any = None, state: Any = None, error: TenutoError | None = None
) -> Outcome[Any]:
    return Outcome(
        outcome=word,
        invocation_id=scope.invocation_id,
        correlation_id=scope.correlation_id,
        entry_state=entry,
        state=state,
        error=error,
    )
