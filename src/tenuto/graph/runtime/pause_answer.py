"""A graph's pause that is answered through the runtime: the graph resumes by itself, and the outcome is a turn's."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tenuto.codec import JSON
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope
from tenuto.graph.invocation import execution
from tenuto.graph.invocation.run_request import RunRequest
from tenuto.ids import random_id
from tenuto.model.wait import Wait
from tenuto.runtime.session.outcome import Outcome
from tenuto.store.store import Store
from tenuto.writing.error_record import error_record


async def resume_pause(
    graph: GraphPlan[Any],
    store: Store,
    wait: Wait,
    payload: Mapping[str, Any],
    *,
    output: Callable[[Any], JSON],
    step_limit: int,
) -> Outcome[Any]:
    """Resume a graph that had paused on this store; a refusal is the exception of a failed outcome."""
    bound = replace(graph, store=store, session=graph.session.bound_to(store), tenant=wait.tenant)
    request = RunRequest(
        step_limit=step_limit, tenant=wait.tenant, resume_invocation=wait.invocation_id, signal_payload=payload
    )
    scope = Scope(invocation_id=wait.invocation_id, correlation_id=random_id(), session_id=None, metadata={})
    found = await execution.run(bound, request, scope)
    runs = await store.runs.of_invocation(wait.invocation_id, tenant=wait.tenant)
    return Outcome(
        session_id=wait.session_id,
        status=found.status,
        run_id=runs[-1].run_id if runs else wait.run_id,
        output=output(found.state) if found.completed else None,
        error=None if found.error is None else error_record(found.error),
        waits=() if found.wait is None else (found.wait,),
        exception=found.error,
    )
