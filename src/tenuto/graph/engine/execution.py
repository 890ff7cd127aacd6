"""One invocation from entry to outcome: what it starts from, and how its end is written."""

import asyncio
import warnings
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.errors import InvalidInput, LaneBusy, SessionLoadFailed, TenutoError
from tenuto.graph.checkpoint.fan_out_progress import FanOutProgress
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.engine.graph_frame import GraphFrame, GraphRun, Interrupted
from tenuto.graph.engine.scope import Scope
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.event_queue import Subscription
from tenuto.graph.graph_outcome import Outcome
from tenuto.graph.session.own import ForeignSession, OwnSession
from tenuto.graph.session.session_plan import Concurrency, SessionPlan
from tenuto.model.session import Kind, SessionKey, session_key
from tenuto.store.store import Store
from tenuto.writing.lane_claim import in_line, take_lane
from tenuto.writing.run_writer import RunWriter

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph

UNSET: Any = object()
"""Stands for a payload that was not given; an empty one is a payload."""


class Call(NamedTuple):
    """What the caller of `run` asked for."""

    initial: Any
    observers: tuple[Subscription, ...]
    stop: Callable[[], bool] | None
    step_limit: int
    tenant: str
    resume_invocation: str | None
    signal_payload: Any
    on_moved: str | None

    @property
    def is_answer(self) -> bool:
        """Whether a suspended invocation is to be resumed, and not one that crashed."""
        return self.signal_payload is not UNSET


class Opened(NamedTuple):
    """An invocation about to run: its identities, its journal, and the state it starts from, if that is decided."""

    scope: Scope
    journal: GraphJournal | None = None
    entry: Any = None
    existed: bool | None = None
    resumed_from: str | None = None


async def open_fresh(graph: "CompiledGraph[Any]", call: Call, scope: Scope, stack: AsyncExitStack) -> Opened:
    """Begin an invocation: on its session, if it names one and the graph keeps them, or on its own.

    What the stack holds is let go of when the invocation is over: the lane, the place in line, the user's lock.
    """
    plan = graph.session
    if plan is None and scope.session_id is not None:
        graph.warn_of_no_session_store(scope.session_id)
    if plan is None or scope.session_id is None:
        store = graph.pause_store
        if store is None:
            return Opened(scope=scope)
        turn = _bare_turn(store, call, scope, stack)
        return Opened(scope=scope, journal=_journal(graph, turn, None, scope))
    key = session_key(scope.session_id, call.tenant)
    if plan.own is None:
        return await _open_foreign(graph, plan, key, call, scope, stack)
    turn = await session_turn(plan, plan.own, key, stack)
    loaded = await plan.load(key)
    turn.life = loaded.life
    turn.stand(loaded.base)
    turn.begins(invocation_id=scope.invocation_id, correlation_id=scope.correlation_id)
    journal = _journal(graph, turn, OwnSession(plan, key, loaded), scope)
    entry = plan.entry(loaded, call.initial, graph.name)
    return Opened(scope=scope, journal=journal, entry=entry, existed=loaded.existed)


async def session_turn(plan: SessionPlan, store: Store, key: SessionKey, stack: AsyncExitStack) -> RunWriter:
    """Return a turn on a session, under its lane if the graph works exclusively."""
    if plan.concurrency is not Concurrency.EXCLUSIVE:
        turn = RunWriter(store, key)
    else:
        deadline = asyncio.get_running_loop().time() + plan.lane_wait
        await stack.enter_async_context(in_line(store, key, deadline))
        turn = RunWriter.under(store, await take_lane(store, key, deadline=deadline))
    stack.push_async_callback(turn.abandon)
    return turn


async def _open_foreign(
    graph: "CompiledGraph[Any]", plan: SessionPlan, key: SessionKey, call: Call, scope: Scope, stack: AsyncExitStack
) -> Opened:
    await lock_foreign(plan, key, stack)
    loaded = await plan.load(key)
    turn = _bare_turn(graph.store, call, scope, stack) if graph.store else None
    journal = _journal(graph, turn, ForeignSession(plan, key, loaded), scope)
    entry = plan.entry(loaded, call.initial, graph.name)
    return Opened(scope=scope, journal=journal, entry=entry, existed=loaded.existed)


async def lock_foreign(plan: SessionPlan, key: SessionKey, stack: AsyncExitStack) -> None:
    """Take the lock of a user's own store for as long as the invocation lasts, if the graph works exclusively."""
    if plan.concurrency is not Concurrency.EXCLUSIVE:
        return
    try:
        async with asyncio.timeout(plan.lane_wait):
            await plan.store.acquire_lock(plan.address(key))
    except TenutoError:
        raise
    except TimeoutError as error:
        message = f"{key} was locked by others for {plan.lane_wait} s."
        raise LaneBusy(message, key=key, owner="", generation=0, expires_at=None) from error
    except Exception as error:
        raise SessionLoadFailed(f"{key} could not be locked: {error!r}", key=key) from error
    stack.push_async_callback(_unlock, plan, key)


async def _unlock(plan: SessionPlan, key: SessionKey) -> None:
    try:
        await plan.store.release_lock(plan.address(key))
    except Exception as error:
        # The invocation's outcome stands, also where warnings are errors.
        with suppress(RuntimeWarning):
            warnings.warn(f"{key} could not be unlocked: {error!r}", RuntimeWarning, stacklevel=2)


def _bare_turn(store: Store, call: Call, scope: Scope, stack: AsyncExitStack) -> RunWriter:
    turn = RunWriter(store, SessionKey(scope.invocation_id, tenant=call.tenant, kind=Kind.INVOCATION))
    turn.begins(invocation_id=scope.invocation_id, correlation_id=scope.correlation_id)
    stack.push_async_callback(turn.abandon)
    return turn


def _journal(
    graph: "CompiledGraph[Any]", turn: RunWriter | None, session: OwnSession | ForeignSession | None, scope: Scope
) -> GraphJournal:
    named = scope.session_id is not None and not isinstance(session, OwnSession)
    return GraphJournal(
        turn,
        graph.kind.schema_version,
        FanOutProgress(batch=graph.fan_out_batch),
        session=session,
        every_node=graph.store is not None,
        graph=graph.name,
        beside={"session_id": scope.session_id} if named else {},
    )


async def execute(graph: "CompiledGraph[Any]", run: GraphRun, opened: Opened, initial: Any) -> Outcome[Any]:
    """Run the graph and write how it ended; whatever happens, the outcome says so."""
    keeps = None if opened.scope.session_id is None else graph.session is not None
    told: dict[str, Any] = {"existed": opened.existed, "session_kept": keeps}
    try:
        return await _executed(graph, run, opened, initial, told)
    except asyncio.CancelledError:
        # The keeper may find the run lost while its end is being written.
        lost = _lost(run.journal, opened.scope, told)
        if lost is None:
            raise
        return lost


async def _executed(
    graph: "CompiledGraph[Any]", run: GraphRun, opened: Opened, initial: Any, told: dict[str, Any]
) -> Outcome[Any]:
    scope, journal = opened.scope, run.journal
    entry: Any = opened.entry
    try:
        frame = GraphFrame(run, graph, scope)
        if entry is None:
            entry = graph.schema.initial(initial)
        told["entry"] = entry
        if journal is not None:
            await journal.begin(frame, entry)
        state = await frame.execute(entry)
        told["state"] = state
        if journal is not None:
            await journal.finish(frame, state)
    except Suspending as signal:
        return await _suspended(signal, run, scope, told)
    except Interrupted as signal:
        try:
            if journal is not None:
                await journal.interrupted()
        except TenutoError as error:
            return outcome("errored", scope, **told, error=error)
        return outcome("interrupted", scope, **told | {"state": signal.state})
    except TenutoError as error:
        if journal is not None:
            with suppress(TenutoError):
                await journal.failed(error)
        return outcome("errored", scope, **told, error=error)
    except GeneratorExit:
        raise
    except BaseException:
        if journal is not None and not (journal.turn and journal.turn.lost):
            with suppress(TenutoError):
                await journal.interrupted()
        raise
    return outcome("completed", scope, **told)


async def _suspended(signal: Suspending, run: GraphRun, scope: Scope, told: dict[str, Any]) -> Outcome[Any]:
    journal = run.journal or GraphJournal(None, "")
    try:
        wait_id, state = await journal.suspend(signal, run)
    except TenutoError as error:
        with suppress(TenutoError):
            await journal.failed(error)
        return outcome("errored", scope, **told, error=error)
    return outcome(
        "suspended",
        scope,
        **told | {"state": state},
        descriptor=signal.descriptor,
        wait_id=wait_id,
        node_name=signal.node,
        namespace=signal.namespace,
    )


def _lost(journal: GraphJournal | None, scope: Scope, told: dict[str, Any]) -> Outcome[Any] | None:
    """Return the outcome of a run that its keeper cancelled, because it was lost; None if it was cancelled outside."""
    turn = journal.turn if journal else None
    if turn is None or turn.lost is None:
        return None
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return outcome("errored", scope, **told, error=turn.lost)


def outcome(word: str, scope: Scope, *, entry: Any = None, existed: bool | None = None, **parts: Any) -> Outcome[Any]:
    """Return an invocation's outcome."""
    return Outcome(
        outcome=word,
        invocation_id=scope.invocation_id,
        correlation_id=scope.correlation_id,
        session_id=scope.session_id,
        session_existed=existed,
        entry_state=entry,
        **parts,
    )


def check_options(call: Call) -> None:
    """Refuse options that do not go together."""
    if type(call.step_limit) is not int or call.step_limit < 1:
        raise InvalidInput(f"step_limit must be 1 or more, got {call.step_limit!r}.")
    if call.on_moved not in (None, "overwrite", "rebase"):
        raise InvalidInput(f"on_moved is 'overwrite' or 'rebase', got {call.on_moved!r}.")
    if call.resume_invocation is not None and call.initial:
        raise InvalidInput("A resumed invocation goes on from its record; give new values as signal_payload.")
    if call.resume_invocation is None and (call.is_answer or call.on_moved is not None):
        raise InvalidInput("signal_payload and on_moved belong to resume_invocation.")
    if call.is_answer and not isinstance(call.signal_payload, Mapping):
        raise InvalidInput(f"signal_payload is a mapping of fields, got {type(call.signal_payload).__name__}.")
