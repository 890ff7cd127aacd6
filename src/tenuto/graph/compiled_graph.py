"""A compiled graph: what can be invoked, observed, and used as a node of another."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self, TypeVar, overload

from tenuto.argument import check_flag, check_map
from tenuto.codec import JSON
from tenuto.errors import InvalidInput, SessionSaveFailed
from tenuto.graph.checkpoint.stored_run import cancel_paused, invocation_of_wait
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope, checked_metadata
from tenuto.graph.events.event_queue import Attachment, DrainSummary, Observer, Subscription, subscription
from tenuto.graph.events.node_event import NodeEvent
from tenuto.graph.events.update_stream import Updates, updates_of
from tenuto.graph.graph_outcome import GraphOutcome
from tenuto.graph.invocation import execution
from tenuto.graph.invocation.run_request import UNSET, RunRequest
from tenuto.graph.mermaid import mermaid
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.graph.signal import CallbackMaker
from tenuto.graph.state import State
from tenuto.ids import check_id, check_tenant, random_id
from tenuto.model.session import Page
from tenuto.model.wait import Wait
from tenuto.store.store import Store, check_whole_store
from tenuto.words import OnMoved

S = TypeVar("S", bound=State)
R = TypeVar("R")

DEFAULT_STEP_LIMIT = 1000


class CompiledGraph(GraphPlan[S]):
    """A graph that has been checked: its plan, and the verbs that run it. It can serve any number of runs at once."""

    def bind(self, store: Store, *, tenant: str = "") -> Self:
        """Return the same graph on this store, for one tenant: its sessions, pauses and checkpoints are kept there.

        That costs next to nothing. Observers belong to the graph, wherever it is bound.
        """
        check_whole_store(store, "The sessions and runs of a bound graph")
        session = self.session.bound_to(store)
        return replace(self, store=store, session=session, tenant=check_tenant(tenant))

    def attach_observer(self, observer: Observer, phases: Iterable[str] | None = None) -> Attachment:
        """Let an observer see this graph's events, also where the graph runs inside another; all phases by default."""
        attached = subscription(observer, phases)
        self.observers.append(attached)
        return Attachment(self.observers, attached)

    async def drain(self, timeout: float | None = None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until the events of all running invocations are delivered; at the timeout the rest is dropped and
        counted.
        """
        return await self.queues.drain(timeout)

    async def drain_events_for(self, invocation_id: str, timeout: float | None = None) -> DrainSummary:  # noqa: ASYNC109 - the specification's own word
        """Wait until what an invocation has emitted so far is delivered; a node may call it."""
        return await self.queues.drain_for(invocation_id, timeout)

    async def invoke(self, initial: S | Mapping[str, object] | None = None, **options: Any) -> S:
        """Run the graph and return its final state; an error is raised, and so are a suspension, as
        `InvocationSuspended`, and a stop, as `InvocationInterrupted`. The options are those of `run`.
        """
        return (await self.run(initial, **options)).result()

    async def stream(
        self, initial: S | Mapping[str, object] | None = None, *, observers: Iterable[Any] = (), **options: Any
    ) -> AsyncGenerator[NodeEvent, None]:
        """Run the graph and yield the event of each node that ends, with its `update` and the state after it.

        What `invoke` raises is raised after the last event. Closing the generator cancels the run. The options are
        those of `run`.
        """

        def run(updates: Updates) -> Awaitable[S]:
            return self.invoke(initial, observers=(*observers, updates), **options)

        async with aclosing(updates_of(run)) as events:
            async for event in events:
                yield event

    async def run(
        self,
        initial: S | Mapping[str, object] | None = None,
        *,
        session_id: str | None = None,
        observers: Iterable[Observer | Subscription] = (),
        correlation_id: str | None = None,
        invocation_id: str | None = None,
        metadata: Mapping[str, object] | None = None,
        stop: Callable[[], bool] | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        resume_invocation: str | None = None,
        signal_payload: Mapping[str, object] = UNSET,
        on_moved: OnMoved | None = None,
        callbacks: CallbackMaker | None = None,
    ) -> GraphOutcome[S]:
        """Run the graph and return how it went, as data.

        `initial` gives fields in place of their defaults; with `session_id`, on top of what the session holds, through
        their reducers. `stop` is called before each node; once it returns true, the next node does not start.
        `step_limit` bounds the number of node executions. Cancelling leaves no task behind.

        `resume_invocation` with a `signal_payload`, even an empty one, resumes a suspended invocation under its own id;
        without one, it resumes from the last checkpoint of a run that ended early, under a new id. If the session has
        changed meanwhile nothing runs, unless `on_moved` says `overwrite` or `rebase`.
        """
        request = RunRequest(
            initial=initial,
            observers=tuple(each if isinstance(each, Subscription) else subscription(each) for each in observers),
            stop=stop,
            step_limit=step_limit,
            tenant=self.tenant,
            resume_invocation=resume_invocation,
            signal_payload=signal_payload,
            on_moved=on_moved,
        )
        request.check()
        if invocation_id is None or resume_invocation is not None:
            invocation_id = resume_invocation if request.is_answer and resume_invocation else random_id()
        scope = Scope(
            invocation_id=check_id(invocation_id, "invocation_id"),
            correlation_id=correlation_id or random_id(),
            session_id=None if session_id is None else check_id(session_id),
            metadata=checked_metadata(metadata) if metadata else {},
            callbacks=callbacks,
        )
        return await execution.run(self, request, scope)

    @overload
    def as_program(
        self,
        *,
        output: Callable[[S], R],
        name: str | None = None,
        version: str | int = "1",
        accepts: Iterable[str | int] = (),
        input: str = "messages",
        message_logs: Iterable[str] | None = None,
        entry: Callable[[Any], JSON] | None = None,
        checkpoints: bool | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        updates: bool = False,
    ) -> GraphProgram[R]: ...

    @overload
    def as_program(
        self,
        *,
        output: str,
        name: str | None = None,
        version: str | int = "1",
        accepts: Iterable[str | int] = (),
        input: str = "messages",
        message_logs: Iterable[str] | None = None,
        entry: Callable[[Any], JSON] | None = None,
        checkpoints: bool | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        updates: bool = False,
    ) -> GraphProgram[JSON]: ...

    @overload
    def as_program(
        self,
        *,
        output: None = None,
        name: str | None = None,
        version: str | int = "1",
        accepts: Iterable[str | int] = (),
        input: str = "messages",
        message_logs: Iterable[str] | None = None,
        entry: Callable[[Any], JSON] | None = None,
        checkpoints: bool | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        updates: bool = False,
    ) -> GraphProgram[None]: ...

    def as_program(
        self,
        *,
        output: str | Callable[[S], Any] | None = None,
        name: str | None = None,
        version: str | int = "1",
        accepts: Iterable[str | int] = (),
        input: str = "messages",  # noqa: A002 - the word for it
        message_logs: Iterable[str] | None = None,
        entry: Callable[[Any], JSON] | None = None,
        checkpoints: bool | None = None,
        step_limit: int = DEFAULT_STEP_LIMIT,
        updates: bool = False,
    ) -> GraphProgram[Any]:
        """Return the graph as a program for `SessionRuntime(programs=[...])`, by default under its own name.

        `accepts` names older versions of the program whose sessions this one continues where theirs is not registered.
        A message is added to the log `input`, a session field that only grows, in the form `entry` gives it; one that
        does not fit is `MessageRefused`. `message_logs` says whether `messages` is a conversation; by default it is if
        its entries have roles. `output` is the field, or the function of the final state, that a turn's outcome shows;
        by default its reply. `checkpoints` says whether one is written after every node, by default if the graph writes
        them; they and the sessions are kept in the runtime's store. With `updates`, what each node gave is a chunk of
        the session's stream, whose `data` has the `node`, its `path` and the `update`.
        """
        return GraphProgram(
            self,
            name=self.name if name is None else name,
            version=version,
            accepts=accepts,
            input_log=input,
            message_logs=message_logs,
            entry=entry,
            output=output,
            checkpoints=self.checkpoints if checkpoints is None else checkpoints,
            step_limit=step_limit,
            updates=check_flag(updates, "updates"),
        )

    async def save_again(self, error: SessionSaveFailed) -> None:
        """Repeat the save of a run whose save failed, and only that; one that was written after all is not repeated."""
        repeat = error.details().get("repeat")
        if repeat is None:
            raise InvalidInput("This error has no save to repeat; save the final state with the store itself.")
        await repeat()

    async def resume(
        self, wait: str | Wait, payload: Mapping[str, object] = MappingProxyType({}), *, on_moved: OnMoved | None = None
    ) -> GraphOutcome[S]:
        """Resume what waits for this: the payload replaces the fields it names, and the run continues.

        An unknown wait, also another tenant's or another graph's, and one that is settled are refused by the errors of
        `runtime.answer`. The same payload again takes over from a runner that is gone. `on_moved` is as for `run`.
        """
        wait_id = wait.wait_id if isinstance(wait, Wait) else check_id(wait, "wait")
        given = dict(check_map(payload, "payload"))
        found = await invocation_of_wait(self._pauses(), wait_id, given, self.name, self.tenant)
        return await self.run(resume_invocation=found, signal_payload=given, on_moved=on_moved)

    async def cancel(self, wait_or_invocation: str | Wait) -> None:
        """Abandon a suspended invocation, named by its id or by its wait: it can no longer be resumed."""
        store, named = self._pauses(), wait_or_invocation
        wait = named if isinstance(named, Wait) else await store.waits.get(check_id(named), tenant=self.tenant)
        run = await store.runs.get(wait.run_id, tenant=self.tenant) if wait else None
        await cancel_paused(store, run.invocation_id if run else str(named), self.tenant)

    async def waiting(self, *, limit: int = 100, after: str | None = None) -> Page[Wait]:
        """Return a page of what this graph's suspended invocations wait for, in the order they were suspended.

        Those of its store and tenant, except those that are over, whose deadline has passed.
        """
        return await self._pauses().waits.open(tenant=self.tenant, graph=self.name, limit=limit, after=after)

    def _pauses(self) -> Store:
        store = self.pause_store
        if store is None:
            raise InvalidInput(f"Graph {self.name!r} has no store, so none of its runs is ever paused; bind it to one.")
        return store

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, with subgraphs, fan-outs and branches."""
        return mermaid(self)
