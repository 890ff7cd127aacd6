"""How an invocation begins: on its session, or by itself."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope
from tenuto.graph.invocation.opened_run import OpenedRun, fresh_journal
from tenuto.graph.invocation.run_request import RunRequest
from tenuto.graph.session.foreign_session import ForeignSession, lock_foreign
from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.save_error import check_active
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.model.session import Kind, SessionKey, session_key
from tenuto.store.held_lanes import refuse_nested
from tenuto.store.store import Store
from tenuto.writing.lane_claim import in_line, take_lane
from tenuto.writing.run_writer import RunWriter


async def open_fresh(graph: GraphPlan[Any], request: RunRequest, scope: Scope, stack: AsyncExitStack) -> OpenedRun:
    """Begin an invocation: on its session, if it names one and the graph keeps them, or by itself.

    The stack releases, when the invocation is over, what it holds: the lane, the place in line, the user's lock.
    """
    plan = graph.session
    _check_bound(graph, scope)
    if scope.session_id is not None:
        graph.warn_of_session(scope.session_id)
    if plan.store is None or scope.session_id is None:
        store = graph.pause_store
        if store is None:
            return OpenedRun(scope)
        writer = _writer_beside(store, request, scope, stack)
        return OpenedRun(scope, fresh_journal(graph, writer, None, _named(scope)))
    key = session_key(scope.session_id, request.tenant)
    if plan.own is None:
        return await _open_foreign(graph, plan, key, request, scope, stack)
    writer = await _writer_on(plan, plan.own, key, stack)
    loaded = await plan.load(key)
    check_active(key, loaded.status)
    writer.life = loaded.life
    writer.stand(loaded.base)
    writer.begins(invocation_id=scope.invocation_id, correlation_id=scope.correlation_id)
    journal = fresh_journal(graph, writer, OwnSession(plan, key, loaded))
    return OpenedRun(scope, journal, plan.entry(loaded, request.initial, graph.name), loaded.existed)


def _check_bound(graph: GraphPlan[Any], scope: Scope) -> None:
    """Refuse a run that declares what is to be kept of it, but has no store to keep it in."""
    kept = "writes checkpoints" if graph.checkpoints and graph.store is None else ""
    if scope.session_id is not None and graph.session.declared and graph.session.store is None:
        kept = "keeps sessions"
    if kept:
        raise InvalidInput(f"Graph {graph.name!r} {kept}, but has no store: run it as graph.bind(store).run(...).")


async def _open_foreign(
    graph: GraphPlan[Any], plan: SessionPlan, key: SessionKey, request: RunRequest, scope: Scope, stack: AsyncExitStack
) -> OpenedRun:
    await lock_foreign(plan, key, stack)
    loaded = await plan.load(key)
    writer = _writer_beside(graph.store, request, scope, stack) if graph.store else None
    journal = fresh_journal(graph, writer, ForeignSession(plan, key, loaded), _named(scope))
    return OpenedRun(scope, journal, plan.entry(loaded, request.initial, graph.name), loaded.existed)


async def _writer_on(plan: SessionPlan, store: Store, key: SessionKey, stack: AsyncExitStack) -> RunWriter:
    """Return what writes a run on a session, under its lane if the graph works exclusively."""
    if plan.concurrency != "exclusive":
        writer = RunWriter(store, key)
    else:
        refuse_nested(store, key)
        deadline = asyncio.get_running_loop().time() + plan.lane_wait
        await stack.enter_async_context(in_line(store, key, deadline))
        writer = RunWriter.under(store, await take_lane(store, key, deadline=deadline))
        writer.runs_in(asyncio.current_task())
    stack.push_async_callback(writer.abandon)
    return writer


def _writer_beside(store: Store, request: RunRequest, scope: Scope, stack: AsyncExitStack) -> RunWriter:
    """Return what writes a run that is on no session of this store."""
    writer = RunWriter(store, SessionKey(scope.invocation_id, tenant=request.tenant, kind=Kind.INVOCATION))
    writer.begins(invocation_id=scope.invocation_id, correlation_id=scope.correlation_id)
    stack.push_async_callback(writer.abandon)
    return writer


def _named(scope: Scope) -> dict[str, str]:
    return {} if scope.session_id is None else {"session_id": scope.session_id}
