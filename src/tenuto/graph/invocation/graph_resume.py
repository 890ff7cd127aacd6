"""Resuming an invocation that was suspended, or whose runner was lost."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from pydantic import ValidationError

from tenuto.codec import dumps
from tenuto.errors import (
    CheckpointRecordInvalid,
    InvalidInput,
    NotJson,
    SuspensionRecordInvalid,
    SuspensionResumePayloadInvalid,
    WaitNotOpen,
)
from tenuto.graph.checkpoint.stored_run import (
    PausedRun,
    StoredRun,
    find_paused,
    find_resumable,
    no_checkpoint,
    resumed_by_another,
)
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope
from tenuto.graph.invocation.opened_run import OpenedRun
from tenuto.graph.invocation.restore import RestoredRun, restore
from tenuto.graph.invocation.run_request import RunRequest
from tenuto.graph.session.foreign_session import ForeignSession, lock_foreign
from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.save_error import check_active, session_moved
from tenuto.graph.session.session_plan import LoadedSession
from tenuto.graph.state import rebuilt
from tenuto.model.commit import SettleWait
from tenuto.model.run import Run
from tenuto.model.session import Kind, SessionHead, SessionKey
from tenuto.plain_data import steps
from tenuto.store.held_lanes import refuse_nested
from tenuto.store.store import Store
from tenuto.writing.changes import Base, RunWrite
from tenuto.writing.lane_claim import take_lane
from tenuto.writing.liveness import end_former, runner_is_gone
from tenuto.writing.pause import refuse_unknown
from tenuto.writing.run_writer import RunWriter


async def open_from_pause(graph: GraphPlan[Any], request: RunRequest, scope: Scope, stack: AsyncExitStack) -> OpenedRun:
    """Resume a suspended invocation under its own id: all is validated before anything is written, then claimed.

    The claim is one commit: the payload becomes the wait's answer and a new run begins under a new generation.
    """
    invocation_id, store = request.resume_invocation, graph.pause_store
    assert invocation_id is not None
    if store is None:
        raise SuspensionRecordInvalid(
            f"Graph {graph.name!r} keeps nothing that could be resumed; give it a store.", invocation_id=invocation_id
        )
    payload = _plain(dict(request.signal_payload), invocation_id)
    paused = await find_paused(store, invocation_id, payload, request.tenant)
    scope = _scope_of(scope, paused.run, request, invocation_id, paused.found)
    # Whatever is wrong with the record or the payload is found before waiting for the lane.
    restored = _restored(graph, paused)
    if paused.taken is None:
        refuse_unknown(payload, _declared(restored), paused.run, paused.wait)
    _fitting(restored, payload, invocation_id)

    async def still_paused() -> None:
        await find_paused(store, invocation_id, payload, request.tenant)

    writer = await _writer_under_lane(graph, store, paused.run.key, stack, meanwhile=still_paused)
    before, paused = paused, await find_paused(store, invocation_id, payload, request.tenant)
    if paused.found.checkpoint != before.found.checkpoint:
        restored = _restored(graph, paused)
    taken, ends = paused.taken, paused.found.checkpoint.ends
    base = _base_of(taken or paused.run)
    session = await _session_of(restored, writer, base, paused.found, request, scope, stack)
    if paused.overlay:
        overlay(restored, payload, invocation_id)
    if taken is None:
        writer.begins(
            invocation_id=invocation_id,
            correlation_id=paused.run.correlation_id,
            origin_id=paused.run.origin_id,
            fresh=False,
            ends=restored.points.begins_at(ends),
        )
        settled: tuple[SettleWait, ...] = (SettleWait(wait_id=paused.wait.wait_id, answer=payload),)
    else:
        moved = writer.base.version != base.version
        stands = restored.points.begins_at(ends) if moved else taken.ends
        gone = taken.worker if runner_is_gone(taken) else None
        writer.takes(taken.run_id, taken.attempt, stands, gone, moved=moved)
        if not moved:
            restored.ledger.distrust(taken.ends, ends)
        settled = ()
    try:
        await writer.write(RunWrite(settled=settled))
    except WaitNotOpen as error:
        raise resumed_by_another(invocation_id, error.found) from error
    trace = paused.found.checkpoint.cursor.get("trace")
    return OpenedRun(scope, restored.journal(writer, session), restored.points.entry(), resumed_from=trace)


async def open_from_checkpoint(
    graph: GraphPlan[Any], request: RunRequest, scope: Scope, stack: AsyncExitStack
) -> OpenedRun:
    """Resume from the last checkpoint of an invocation whose run ended early, under a new id."""
    invocation_id, store = request.resume_invocation, graph.store
    assert invocation_id is not None
    if store is None or not graph.checkpoints:
        raise no_checkpoint(invocation_id)
    run, found, _ = await find_resumable(store, invocation_id, request.tenant)
    scope = _scope_of(scope, run, request, scope.invocation_id, found)
    # Restored first, so that a checkpoint that does not fit leaves nothing behind.
    restored = restore(found, graph)
    writer = await _writer_under_lane(graph, store, run.key, stack, wait=0)
    assert writer.lane is not None
    await end_former(store, writer.lane, run.origin_id)
    run, again, answer = await find_resumable(store, invocation_id, request.tenant)
    if again.checkpoint != found.checkpoint:
        found, restored = again, restore(again, graph)
    session = await _session_of(restored, writer, _base_of(run), found, request, scope, stack)
    if answer is not None:
        overlay(restored, answer, invocation_id)
    writer.begins(
        invocation_id=scope.invocation_id,
        correlation_id=run.correlation_id,
        origin_id=run.origin_id,
        ends=restored.points.begins_at(found.checkpoint.ends),
    )
    return OpenedRun(scope, restored.journal(writer, session), restored.points.entry())


def _base_of(run: Run) -> Base:
    """Return the session as a stored run knew it."""
    return Base(version=run.base_version or 0, ends=run.base_ends)


def _is_owned(head: SessionHead | None) -> bool:
    return head is not None and head.profile.agent is not None


def _scope_of(scope: Scope, run: Run, request: RunRequest, invocation_id: str, found: StoredRun) -> Scope:
    held = run.key.session_id if run.key.kind is Kind.SESSION else found.checkpoint.cursor.get("session_id")
    if scope.session_id is not None and scope.session_id != held:
        raise InvalidInput(
            f"Invocation {request.resume_invocation!r} belongs to "
            f"{f'session {held!r}' if held else 'no session'}, not to {scope.session_id!r}.",
            session_id=scope.session_id,
        )
    return scope._replace(invocation_id=invocation_id, correlation_id=run.correlation_id, session_id=held)


def _restored(graph: GraphPlan[Any], paused: PausedRun) -> RestoredRun:
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


def overlay(restored: RestoredRun, payload: dict[str, Any], invocation_id: str) -> None:
    """Set the fields the payload names to its values, without their reducers."""
    for path, checked in _fitting(restored, payload, invocation_id).items():
        state = restored.points.at(path).state
        restored.points.replace(path, rebuilt(state, {**state.__dict__, **checked}), checked)


def _declared(restored: RestoredRun) -> list[str]:
    return [name for path in restored.points.ends() for name in restored.points.at(path).schema.fields]


def faults(fields: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what does not fit, by the path of each value; names that are not among the fields are passed over."""
    for name, value in given.items():
        if name not in fields:
            continue
        try:
            fields[name].check(value)
        except ValidationError as error:
            for fault in error.errors(include_url=False, include_context=False, include_input=False):
                yield name + steps(fault["loc"]), fault


def _fitting(
    restored: RestoredRun, payload: dict[str, Any], invocation_id: str
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the payload's values, valid, by the frame they belong to: the outermost graph's, then the innermost's."""
    left, found = dict(payload), {}
    for path in dict.fromkeys(restored.points.ends()):
        fields = restored.points.at(path).schema.fields
        given = {name: left.pop(name) for name in list(left) if name in fields}
        try:
            checked = {name: fields[name].check(value) for name, value in given.items()}
        except ValidationError as error:
            raise SuspensionResumePayloadInvalid(
                f"The payload does not fit the state of invocation {invocation_id!r}, and nothing ran: {error}",
                invocation_id=invocation_id,
                problems=[{"path": f"answer.{name}", "problem": fault["msg"]} for name, fault in faults(fields, given)],
            ) from error
        if checked:
            found[path] = checked
    return found


async def _writer_under_lane(
    graph: GraphPlan[Any],
    store: Store,
    key: SessionKey,
    stack: AsyncExitStack,
    *,
    wait: float | None = None,
    meanwhile: Any = None,
) -> RunWriter:
    """Return what writes a run under the key's lane, whatever the graph's concurrency: only one runner resumes it."""
    refuse_nested(store, key)
    if wait is None:
        wait = graph.session.lane_wait
    deadline = asyncio.get_running_loop().time() + wait
    writer = RunWriter.under(store, await take_lane(store, key, deadline=deadline, meanwhile=meanwhile))
    writer.runs_in(asyncio.current_task())
    stack.push_async_callback(writer.abandon)
    return writer


async def _session_of(
    restored: RestoredRun,
    writer: RunWriter,
    base: Base,
    found: StoredRun,
    request: RunRequest,
    scope: Scope,
    stack: AsyncExitStack,
) -> OwnSession | ForeignSession | None:
    """Return the session of a restored run, if it is as the run left it or the request says what to do otherwise."""
    plan, points = restored.graph.session, restored.points
    if plan.store is None or scope.session_id is None:
        return None
    key = SessionKey(scope.session_id, tenant=request.tenant)
    if plan.own is None or writer.key.kind is not Kind.SESSION:
        await lock_foreign(plan, key, stack)
        beside = ForeignSession(plan, key, await plan.load(key))
        if request.is_answer:
            await beside.repair(points.entry(), found.checkpoint.cursor, request.on_moved)
        return beside
    head = await plan.own.head(key)
    if head is not None:
        check_active(key, head.status)
    now = Base(version=head.version, ends=head.ends) if head else Base()
    loaded = None
    if now.version == base.version:
        now = base
    elif request.on_moved == "rebase":
        loaded = await plan.load(key)
        now = loaded.base
        points.rebase(plan, loaded, base)
    elif request.on_moved is None:
        raise session_moved(key, base.version, now.version)
    else:
        points.overwrite(plan, now.ends.keys() - found.checkpoint.ends.keys())
    writer.stand(now)
    removed: frozenset[str] = frozenset()
    if head is not None and head.schema_version != plan.schema_version:
        # The next save writes the session as its migrations leave it, without the fields they removed.
        rewrite = (loaded or await plan.load(key)).rewrite
        removed = rewrite.removed if rewrite else removed
    # As if nothing were known of what is stored, so that the next save writes every field.
    blank = LoadedSession(writer.life or 0, now, True, {}, {}, owned=_is_owned(head))
    return OwnSession(plan, key, blank, removed)
