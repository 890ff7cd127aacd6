"""Going on with an invocation that was suspended, or whose runner was lost."""

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from tenuto.codec import dumps
from tenuto.errors import (
    CheckpointNotFound,
    CheckpointRecordInvalid,
    InvalidInput,
    NotJson,
    SuspensionRecordInvalid,
    SuspensionResumePayloadInvalid,
    WaitNotOpen,
)
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.checkpoint.restore import restore
from tenuto.graph.checkpoint.stored_run import Paused, StoredRun, find_paused, find_resumable, not_suspended_any_more
from tenuto.graph.engine.execution import Call, Opened, lock_foreign
from tenuto.graph.engine.scope import Scope
from tenuto.graph.session.own import ForeignSession, OwnSession, base_of, moved
from tenuto.graph.session.session_plan import Loaded
from tenuto.graph.state import rebuilt
from tenuto.model.commit import SettleWait
from tenuto.model.run import Run
from tenuto.model.session import Kind, SessionHead, SessionKey
from tenuto.store.store import Store
from tenuto.writing.changes import Base
from tenuto.writing.lane_claim import DEFAULT_LANE_WAIT, take_lane
from tenuto.writing.liveness import end_former, runner_is_gone
from tenuto.writing.pause import refuse_unknown
from tenuto.writing.run_writer import RunWriter

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph


async def open_paused(graph: "CompiledGraph[Any]", call: Call, scope: Scope, stack: AsyncExitStack) -> Opened:
    """Go on with a suspended invocation under its own id: validated whole before anything is written, then claimed.

    The claim is one commit: the payload becomes the wait's answer and a new run begins under a new generation.
    """
    invocation_id, store = call.resume_invocation, graph.pause_store
    assert invocation_id is not None
    if store is None:
        raise SuspensionRecordInvalid(
            f"Graph {graph.name!r} keeps nothing that could be resumed; give it a store.", invocation_id=invocation_id
        )
    payload = _plain(dict(call.signal_payload), invocation_id)
    paused = await find_paused(store, invocation_id, payload, call.tenant)
    scope = _scope_of(scope, paused.run, call, invocation_id, paused.found)
    # Whatever is wrong with the record or the payload is found before anything is waited for.
    journal = _restored(graph, paused)
    if paused.taken is None:
        refuse_unknown(payload, _declared(journal), invocation_id)
    _fitting(journal, payload, invocation_id)

    async def still_paused() -> None:
        await find_paused(store, invocation_id, payload, call.tenant)

    turn = await _turn_under_lane(graph, store, paused.run.key, stack, meanwhile=still_paused)
    before, paused = paused, await find_paused(store, invocation_id, payload, call.tenant)
    if paused.found.checkpoint != before.found.checkpoint:
        journal = _restored(graph, paused)
    journal.turn = turn
    taken, ends = paused.taken, paused.found.checkpoint.ends
    await _bind_session(graph, journal, base_of(taken or paused.run), paused.found, call, scope, stack)
    if paused.overlay:
        overlay(journal, payload, invocation_id)
    if taken is None:
        turn.begins(
            invocation_id=invocation_id,
            correlation_id=paused.run.correlation_id,
            origin_id=paused.run.origin_id,
            fresh=False,
            ends=journal.stops.begins_at(ends),
        )
        settled: tuple[SettleWait, ...] = (SettleWait(wait_id=paused.wait.wait_id, answer=payload),)
    else:
        moved_on = turn.base.version != base_of(taken).version
        stands = journal.stops.begins_at(ends) if moved_on else taken.ends
        gone = taken.worker if runner_is_gone(taken) else None
        turn.takes(taken.run_id, taken.attempt, stands, gone, moved=moved_on)
        if not moved_on:
            journal.ledger.distrust(taken.ends, ends)
        settled = ()
    try:
        await turn.write(settled=settled)
    except WaitNotOpen as error:
        raise not_suspended_any_more(invocation_id, error.found) from error
    entry = journal.stops.entry()
    return Opened(scope=scope, journal=journal, entry=entry, resumed_from=paused.found.checkpoint.cursor.get("trace"))


async def open_lost(graph: "CompiledGraph[Any]", call: Call, scope: Scope, stack: AsyncExitStack) -> Opened:
    """Go on from the last checkpoint of an invocation whose run ended early, under a new id."""
    invocation_id, store = call.resume_invocation, graph.store
    assert invocation_id is not None
    if store is None:
        raise CheckpointNotFound(
            f"Invocation {invocation_id!r} left no checkpoint to go on from.", invocation_id=invocation_id
        )
    run, found, _ = await find_resumable(store, invocation_id, call.tenant)
    scope = _scope_of(scope, run, call, scope.invocation_id, found)
    # Put together first, so that a checkpoint that does not fit leaves nothing behind.
    journal = restore(found, graph)
    turn = await _turn_under_lane(graph, store, run.key, stack, wait=0)
    assert turn.lane is not None
    await end_former(store, turn.lane, run.origin_id)
    run, again, answer = await find_resumable(store, invocation_id, call.tenant)
    if again.checkpoint != found.checkpoint:
        found, journal = again, restore(again, graph)
    journal.turn = turn
    await _bind_session(graph, journal, base_of(run), found, call, scope, stack)
    if answer is not None:
        overlay(journal, answer, invocation_id)
    turn.begins(
        invocation_id=scope.invocation_id,
        correlation_id=run.correlation_id,
        origin_id=run.origin_id,
        ends=journal.stops.begins_at(found.checkpoint.ends),
    )
    return Opened(scope=scope, journal=journal, entry=journal.stops.entry())


def _is_owned(head: SessionHead | None) -> bool:
    return head is not None and head.profile.agent is not None


def _scope_of(scope: Scope, run: Run, call: Call, invocation_id: str, found: StoredRun) -> Scope:
    held = run.key.session_id if run.key.kind is Kind.SESSION else found.checkpoint.cursor.get("session_id")
    if scope.session_id is not None and scope.session_id != held:
        raise InvalidInput(
            f"Invocation {call.resume_invocation!r} belongs to "
            f"{f'session {held!r}' if held else 'no session'}, not to {scope.session_id!r}.",
            session_id=scope.session_id,
        )
    return scope._replace(invocation_id=invocation_id, correlation_id=run.correlation_id, session_id=held)


def _restored(graph: "CompiledGraph[Any]", paused: Paused) -> GraphJournal:
    invocation_id = paused.run.invocation_id
    try:
        return restore(paused.found, graph)
    except CheckpointRecordInvalid as error:
        raise SuspensionRecordInvalid(
            f"The record of invocation {invocation_id!r} does not fit this graph: {error.message}",
            **{"invocation_id": invocation_id, **error.details()},
        ) from error


def _plain(payload: dict[str, Any], invocation_id: str) -> dict[str, Any]:
    try:
        dumps(payload, "signal_payload")
    except NotJson as error:
        raise SuspensionResumePayloadInvalid(
            f"{error.message} Invocation {invocation_id!r} is still paused.", invocation_id=invocation_id
        ) from error
    return payload


def overlay(journal: GraphJournal, payload: dict[str, Any], invocation_id: str) -> None:
    """Put the payload over the fields it names, past their reducers."""
    for path, checked in _fitting(journal, payload, invocation_id).items():
        state = journal.stops.at(path).state
        journal.stops.replace(path, rebuilt(state, {**state.__dict__, **checked}), checked)


def _declared(journal: GraphJournal) -> list[str]:
    return [name for path in journal.stops.ends() for name in journal.stops.at(path).schema.fields]


def _fitting(
    journal: GraphJournal, payload: dict[str, Any], invocation_id: str
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the payload's values, valid, by the frame they belong to: the outermost graph's, then the innermost's."""
    left, found = dict(payload), {}
    for path in dict.fromkeys(journal.stops.ends()):
        fields = journal.stops.at(path).schema.fields
        given = {name: left.pop(name) for name in list(left) if name in fields}
        try:
            checked = {name: fields[name].check(value) for name, value in given.items()}
        except ValidationError as error:
            raise SuspensionResumePayloadInvalid(
                f"The payload does not fit the state of invocation {invocation_id!r}, which is still paused: {error}",
                invocation_id=invocation_id,
            ) from error
        if checked:
            found[path] = checked
    return found


async def _turn_under_lane(
    graph: "CompiledGraph[Any]",
    store: Store,
    key: SessionKey,
    stack: AsyncExitStack,
    *,
    wait: float | None = None,
    meanwhile: Any = None,
) -> RunWriter:
    """Return a turn under the key's lane, whatever the graph's concurrency: only one runner goes on."""
    if wait is None:
        wait = graph.session.lane_wait if graph.session else DEFAULT_LANE_WAIT
    deadline = asyncio.get_running_loop().time() + wait
    turn = RunWriter.under(store, await take_lane(store, key, deadline=deadline, meanwhile=meanwhile))
    stack.push_async_callback(turn.abandon)
    return turn


async def _bind_session(
    graph: "CompiledGraph[Any]",
    journal: GraphJournal,
    base: Base,
    found: StoredRun,
    call: Call,
    scope: Scope,
    stack: AsyncExitStack,
) -> None:
    """Give the journal its session again, if the session is as the invocation left it or the caller says what to do."""
    plan, turn = graph.session, journal.turn
    if plan is None or scope.session_id is None:
        return
    assert isinstance(turn, RunWriter)
    key = SessionKey(scope.session_id, tenant=call.tenant)
    if plan.own is None or turn.key.kind is not Kind.SESSION:
        await lock_foreign(plan, key, stack)
        beside = ForeignSession(plan, key, await plan.load(key))
        if call.is_answer:
            await beside.repair(journal.stops.entry(), found.checkpoint.cursor, call.on_moved)
        journal.session = beside
        return
    head = await plan.own.head(key)
    now = Base(version=head.version, ends=head.ends) if head else Base()
    loaded = None
    if now.version == base.version:
        now = base
    elif call.on_moved == "rebase":
        loaded = await plan.load(key)
        now = loaded.base
        journal.stops.rebase(plan, loaded, base)
    elif call.on_moved is None:
        raise moved(key, base.version, now.version)
    else:
        journal.stops.insist(plan, now.ends.keys() - found.checkpoint.ends.keys())
    turn.stand(now)
    # Nothing is known of what is stored, so that the next save writes every field.
    session = journal.session = OwnSession(plan, key, Loaded(turn.life or 0, now, True, {}, {}, owned=_is_owned(head)))
    if head is not None and head.schema_version != plan.schema_version:
        # It writes the session as its migrations leave it, without the fields they removed.
        rewrite = (loaded or await plan.load(key)).rewrite
        session.removed = rewrite.removed if rewrite else session.removed
