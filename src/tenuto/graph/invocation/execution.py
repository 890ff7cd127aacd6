"""One invocation from its request to its outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from tenuto.errors import TenutoError
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.graph_run import GraphRun, Interrupted
from tenuto.graph.engine.scope import Scope, scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.event_queue import trace_context
from tenuto.graph.events.node_event import InvocationEvent, Phase
from tenuto.graph.graph_outcome import GraphOutcome
from tenuto.graph.invocation.fresh_start import open_fresh
from tenuto.graph.invocation.graph_resume import open_from_checkpoint, open_from_pause
from tenuto.graph.invocation.opened_run import OpenedRun
from tenuto.graph.invocation.run_request import RunRequest
from tenuto.words import GraphStatus
from tenuto.writing.run_ids import ids_within, run_ids

Opening = Callable[[GraphPlan[Any], RunRequest, Scope, AsyncExitStack], Awaitable[OpenedRun]]
"""Opens an invocation; what it puts on the stack is released once the invocation is over."""


async def run(
    graph: GraphPlan[Any], request: RunRequest, scope: Scope, opening: Opening | None = None
) -> GraphOutcome[Any]:
    """Open an invocation, execute it and write how it ended; errors of the engine are in the outcome.

    By default it begins, or resumes from the pause or the checkpoint that the request names.
    """
    if opening is None:
        opening = open_fresh
        if request.resume_invocation is not None:
            opening = open_from_pause if request.is_answer else open_from_checkpoint
    async with AsyncExitStack() as stack:
        try:
            opened = await opening(graph, request, scope, stack)
        except TenutoError as error:
            return _outcome("failed", scope, error=error)
        return await _observed(graph, request, opened)


async def _observed(graph: GraphPlan[Any], request: RunRequest, opened: OpenedRun) -> GraphOutcome[Any]:
    """Execute an opened invocation inside its scope, and report its begin and end to inline observers."""
    scope = opened.scope
    token, around = scope_variable.set(scope), run_ids.get()
    if scope.turn is None:
        run_ids.set(ids_within(scope.invocation_id, scope.correlation_id, scope.session_id, request.tenant))
    # Made once the scope is set, so that observers see the invocation's identities too.
    delivery = graph.queues.begin(scope.invocation_id) if request.observers or graph.is_observed else None
    run = GraphRun(delivery, request.observers, request.step_limit, request.stop, opened.journal)
    try:
        executing = _execute(graph, run, opened, request.initial)
        if delivery is None:
            return await executing
        begun = InvocationEvent(phase=Phase.STARTED, graph=graph, scope=scope, resumed_from=opened.resumed_from)
        return await delivery.around(executing, begun, run.audience(graph))
    finally:
        run.close()
        if delivery is not None:
            delivery.close()
        scope_variable.reset(token)
        run_ids.set(around)


async def _execute(graph: GraphPlan[Any], run: GraphRun, opened: OpenedRun, initial: Any) -> GraphOutcome[Any]:
    """Run the graph and write how it ended; return that as the outcome, also of a run that was lost."""
    kept = None if opened.scope.session_id is None else graph.session.store is not None
    parts: dict[str, Any] = {"session_existed": opened.existed, "session_kept": kept}
    try:
        return await _run_to_end(graph, run, opened, initial, parts)
    except asyncio.CancelledError:
        # The keeper may find the run lost while its end is being written.
        lost = _lost(run.journal, opened.scope, parts)
        if lost is None:
            raise
        return lost


async def _run_to_end(
    graph: GraphPlan[Any], run: GraphRun, opened: OpenedRun, initial: Any, parts: dict[str, Any]
) -> GraphOutcome[Any]:
    scope, journal = opened.scope, run.journal
    entry: Any = opened.entry
    try:
        frame = GraphFrame(run, graph, scope)
        if entry is None:
            entry = graph.schema.initial(initial)
        parts["entry_state"] = entry
        if journal is not None:
            await journal.begin(frame, entry)
        state = await frame.execute(entry)
        parts["state"] = state
        if journal is not None:
            await journal.finish(frame, state)
    except Suspending as signal:
        return await _suspended(signal, graph, run, scope, parts)
    except Interrupted as signal:
        try:
            if journal is not None:
                await journal.interrupted()
        except TenutoError as error:
            return _outcome("failed", scope, **parts, error=error)
        return _outcome("interrupted", scope, **parts | {"state": signal.state})
    except TenutoError as error:
        if journal is not None:
            with suppress(TenutoError):
                await journal.failed(error)
        return _outcome("failed", scope, **parts, error=error)
    except GeneratorExit:
        raise
    except BaseException:
        if journal is not None and not (journal.writer and journal.writer.run.lost):
            with suppress(TenutoError):
                await journal.interrupted()
        raise
    return _outcome("completed", scope, **parts)


async def _suspended(
    signal: Suspending, graph: GraphPlan[Any], run: GraphRun, scope: Scope, parts: dict[str, Any]
) -> GraphOutcome[Any]:
    request, journal = signal.request, run.journal
    if journal is None:
        return _outcome("failed", scope, **parts, error=request.not_stored())
    try:
        wait, state = await journal.suspend(request, run.step, trace_context(run.audience(graph)))
    except TenutoError as error:
        with suppress(TenutoError):
            await journal.failed(error)
        return _outcome("failed", scope, **parts, error=error)
    return _outcome(
        "suspended",
        scope,
        **parts | {"state": state},
        descriptor=request.descriptor,
        wait=wait,
        node_name=request.node,
        namespace=request.namespace,
    )


def _lost(journal: GraphJournal | None, scope: Scope, parts: dict[str, Any]) -> GraphOutcome[Any] | None:
    """Return the outcome of a run that its keeper cancelled, because it was lost; None if it was cancelled outside."""
    writer = journal.writer if journal else None
    if writer is None or writer.run.lost is None:
        return None
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return _outcome("failed", scope, **parts, error=writer.run.lost)


def _outcome(status: GraphStatus, scope: Scope, **parts: Any) -> GraphOutcome[Any]:
    return GraphOutcome(
        status=status,
        invocation_id=scope.invocation_id,
        correlation_id=scope.correlation_id,
        session_id=scope.session_id,
        **parts,
    )
