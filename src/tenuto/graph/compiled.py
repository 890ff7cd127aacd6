"""A compiled graph: what can be invoked, observed, and used as a node of another."""

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenuto.codec import JSON
from tenuto.errors import InvalidInput, InvocationInterrupted, InvocationSuspended, SessionSaveFailed, TenutoError
from tenuto.graph.blueprint.edges import Choice
from tenuto.graph.blueprint.warnings import SessionNotKept, outside
from tenuto.graph.checkpoint.graph_resume import open_lost, open_paused
from tenuto.graph.checkpoint.stored_run import cancel_paused
from tenuto.graph.engine.execution import UNSET, Call, Opened, check_options, execute, open_fresh
from tenuto.graph.engine.execution import outcome as outcome_of
from tenuto.graph.engine.graph_frame import GraphRun
from tenuto.graph.engine.scope import Metadata, Scope, checked_metadata, scope_variable
from tenuto.graph.engine.suspend import CallbackMaker
from tenuto.graph.events.event_queue import Attachment, DrainSummary, EventQueues, Observer, Subscription, subscription
from tenuto.graph.events.node_event import InvocationEvent, Phase
from tenuto.graph.graph_outcome import Outcome
from tenuto.graph.nodes.node import Middleware, Node
from tenuto.graph.session.migration import MigrationRegistry
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.graph.state import State, schema_of
from tenuto.ids import check_id, random_id
from tenuto.model.wait import Wait
from tenuto.store.store import Store

if TYPE_CHECKING:
    from tenuto.graph.runtime.graph_program import GraphProgram

S = TypeVar("S", bound=State)

_log = logging.getLogger("tenuto.graph")

Edge = Any
"""Where a node leads: a node's name, END, or a function of the state that returns one of them."""

DEFAULT_STEP_LIMIT = 1000


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
        fan_out_batch: int = 1,
        session: SessionPlan | None = None,
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
        self.fan_out_batch = fan_out_batch
        self.session = session
        self.observers: list[Subscription] = []
        self._chains = {node.name: middleware + node.middleware for node in nodes.values()}
        self._deliveries = EventQueues()
        self._warned = False

    def leads_to(self, choice: Choice, target: Any) -> bool:
        """Tell whether a conditional edge may lead there."""
        if choice.targets is not None:
            return any(target is each or (isinstance(target, str) and target == each) for each in choice.targets)
        return target is self.end or (isinstance(target, str) and target in self.nodes)

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

    async def drain_events_for(self, invocation_id: str, timeout: float | None = None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until what an invocation has emitted so far is delivered; a node may call it."""
        return await self._deliveries.drain_for(invocation_id, timeout)

    @property
    def pause_store(self) -> Store | None:
        """Where a suspended run is kept: with the checkpoints, or with the sessions."""
        return self.store or (self.session.own if self.session else None)

    def warn_of_no_session_store(self, session_id: str) -> None:
        """Say, once, that sessions are named in vain: the run goes on, and nothing of them is kept."""
        if self._warned:
            return
        self._warned = True
        told = (
            f"Graph {self.name!r} was run with session_id={session_id!r}, but has no session store: nothing of the "
            "session is loaded or saved. Give the graph with_session_store(...)."
        )
        _log.warning(told)
        with suppress(SessionNotKept):  # also where warnings are errors
            warnings.warn(SessionNotKept(told), stacklevel=outside())

    async def invoke(self, initial: S | Mapping[str, Any] | None = None, **options: Any) -> S:
        """Run the graph and return its final state; an error is raised, and so are a suspension, as
        `InvocationSuspended`, and a stop, as `InvocationInterrupted`. The options are those of `run`.
        """
        outcome = await self.run(initial, **options)
        if outcome.error is not None:
            raise outcome.error
        if outcome.suspended:
            raise InvocationSuspended(
                f"Invocation {outcome.invocation_id!r} is suspended at {outcome.node_name!r}; call run() to get its "
                "outcome, and resume it with resume_invocation and signal_payload.",
                outcome=outcome,
            )
        if outcome.interrupted:
            raise InvocationInterrupted(
                f"Invocation {outcome.invocation_id!r} was stopped before it came to its end; call run() to get its "
                "outcome with the state it had, and resume it with resume_invocation if the graph has a checkpointer.",
                outcome=outcome,
            )
        assert outcome.state is not None
        return outcome.state

    async def run(
        self,
        initial: S | Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        tenant: str = "",
        observers: Iterable[Observer | Subscription] = (),
        correlation_id: str | None = None,
        invocation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        stop: Callable[[], bool] | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        resume_invocation: str | None = None,
        signal_payload: Mapping[str, Any] | None = UNSET,
        on_moved: str | None = None,
        callbacks: CallbackMaker | None = None,
    ) -> Outcome[S]:
        """Run the graph and return how it went, as data.

        `initial` gives fields in place of their defaults; with `session_id`, on top of what the session holds, through
        their reducers. `stop` is asked before each node; once true, the next node does not start. `step_limit` bounds
        the number of node executions. Cancelling leaves no task behind.

        `resume_invocation` with a `signal_payload`, even an empty one, goes on with a suspended invocation under its
        own id; without one, from the last checkpoint of a run that ended early, under a new id. If the session has
        moved on meanwhile nothing runs, unless `on_moved` says `overwrite` or `rebase`.
        """
        call = Call(
            initial=initial,
            observers=tuple(each if isinstance(each, Subscription) else subscription(each) for each in observers),
            stop=stop,
            step_limit=step_limit,
            tenant=tenant,
            resume_invocation=resume_invocation,
            signal_payload=signal_payload,
            on_moved=on_moved,
        )
        check_options(call)
        if invocation_id is None or resume_invocation is not None:
            invocation_id = resume_invocation if call.is_answer and resume_invocation else random_id()
        scope = Scope(
            invocation_id=check_id(invocation_id, "invocation_id"),
            correlation_id=correlation_id or random_id(),
            session_id=None if session_id is None else check_id(session_id),
            metadata=Metadata(checked_metadata(metadata or {})),
            callbacks=callbacks,
        )
        async with AsyncExitStack() as stack:
            opening = open_fresh
            if resume_invocation is not None:
                opening = open_paused if call.is_answer else open_lost
            try:
                opened = await opening(self, call, scope, stack)
            except TenutoError as error:
                return outcome_of("errored", scope, error=error)
            return await self.ran(call, opened)

    async def ran(self, call: Call, opened: Opened) -> Outcome[S]:
        """Run an invocation that was opened, and return how it went."""
        scope, own = opened.scope, call.observers
        token = scope_variable.set(scope)
        # Made once the scope stands, so that observers see the invocation's identities too.
        delivery = self._deliveries.begin(scope.invocation_id) if own or self._observed() else None
        run = GraphRun(delivery, own, call.step_limit, call.stop, opened.journal)
        try:
            executing = execute(self, run, opened, call.initial)
            if delivery is None:
                return await executing
            begun = InvocationEvent(phase=Phase.STARTED, graph=self, scope=scope, resumed_from=opened.resumed_from)
            return await delivery.around(executing, begun, run.audience(self))
        finally:
            # The journal knows its frames, and they their run: left so, they would wait for the cycle collector.
            run.journal = None
            if delivery is not None:
                delivery.close()
            scope_variable.reset(token)

    def as_program(
        self,
        *,
        name: str | None = None,
        version: str = "1",
        input: str = "messages",  # noqa: A002 - the word for it
        message_logs: Iterable[str] | None = None,
        entry: Callable[[Any], JSON] | None = None,
        output: str | Callable[[S], JSON] | None = None,
        checkpoints: bool | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
    ) -> "GraphProgram":
        """Return the graph as a program for `SessionRuntime(programs=[...])`, by default under its own name.

        A message goes to the log `input`, a session field that only grows, in the form `entry` gives it; one that does
        not fit is `MessageRefused`. `message_logs` says whether `messages` is a conversation, by default if its entries
        have roles. `output` is the field, or the function of the final state, that a turn's outcome shows; by default
        its reply. `checkpoints` are left after every node if the graph has a checkpointer, or as said here; they and
        the sessions are kept in the runtime's store.
        """
        from tenuto.graph.runtime.graph_program import GraphProgram

        return GraphProgram(
            self,
            name=self.name if name is None else name,
            version=version,
            input_log=input,
            message_logs=message_logs,
            entry=entry,
            output=output,
            checkpoints=self.store is not None if checkpoints is None else checkpoints,
            step_limit=step_limit,
        )

    async def save_again(self, error: SessionSaveFailed) -> None:
        """Repeat the save of a run whose save failed, and only that; one that had landed after all stays as it is."""
        repeat = error.details().get("repeat")
        if repeat is None:
            raise InvalidInput("This error has no save to repeat; save the final state with the store itself.")
        await repeat()

    async def cancel(self, invocation_id: str, *, tenant: str = "") -> None:
        """Give up on a suspended invocation: it cannot be resumed any more."""
        await cancel_paused(self._pauses(), check_id(invocation_id, "invocation_id"), tenant)

    async def waiting(self, *, tenant: str = "", limit: int = 100, after: str = "") -> list[Wait]:
        """Return what the suspended invocations in this graph's store wait for, in the order they were suspended."""
        return await self._pauses().waits.open(tenant=tenant, limit=limit, after=after)

    def _pauses(self) -> Store:
        store = self.pause_store
        if store is None:
            raise InvalidInput(f"Graph {self.name!r} has no store, so nothing of it is ever paused.")
        return store

    def _observed(self) -> bool:
        return bool(self.observers) or any(graph._observed() for graph in self.inner_graphs())

    def inner_graphs(self) -> list["CompiledGraph[Any]"]:
        """Return the graphs that run inside this one's nodes."""
        return [graph for node in self.nodes.values() for graph in node.graphs()]

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, with subgraphs, fan-outs and branches."""
        from tenuto.graph.mermaid import mermaid

        return mermaid(self)
