"""One invocation of a case's graph, and what is written down of it."""

import time
from typing import Any

from tenuto.errors import TenutoError
from tenuto.graph import State
from tests.conformance.adapter.checkpoints import Crash
from tests.conformance.adapter.observers import Observers
from tests.conformance.adapter.records import Drain, Record, Run, plain
from tests.conformance.adapter.vocabulary import known, mapping


async def invoke(
    spec: dict[str, Any],
    initial: Any,
    observers: Observers,
    record: Record,
    drain: Any = None,
    resumed: str | None = None,
    *,
    drain_at_end: bool = True,
) -> Run:
    """Run the graph as `spec` asks for it, and drain it; a payload there makes `resumed` that of a suspended run."""
    assert record.graph is not None
    given = initial if isinstance(initial, State) else mapping(initial or {}, "initial_state")
    options: dict[str, Any] = {}
    if "signal_payload" in spec:
        options["signal_payload"] = mapping(spec["signal_payload"], "signal_payload")
    run = record.began(plain(given), options.get("signal_payload"))
    run.name = str(spec.get("name", ""))
    if record.tracing is not None:
        record.tracing.run_begins()
    try:
        outcome = await record.graph.run(
            given,
            observers=observers.per_invocation,
            session_id=spec.get("session_id"),
            correlation_id=spec.get("caller_correlation_id"),
            invocation_id=spec.get("caller_invocation_id"),
            metadata=spec.get("caller_metadata"),
            resume_invocation=resumed,
            **options,
        )
    except Crash:
        assert record.checkpoints is not None
        begun = record.checkpoints.begun()
        run.crashed, run.invocation_id, run.correlation_id = True, begun.invocation_id, begun.correlation_id
        run.drain = await drained(record)
        return run
    run.outcome, run.error = outcome, outcome.error
    run.invocation_id, run.correlation_id = outcome.invocation_id, outcome.correlation_id
    if outcome.completed:
        run.state = plain(outcome.state) | record.side_channel
    elif not outcome.suspended and not isinstance(outcome.error, TenutoError):
        raise AssertionError(f"a {outcome.status} outcome without an error of the engine")
    if drain_at_end:
        run.drain = await drained(record, known(drain or {}, ("timeout_seconds",), "drain").get("timeout_seconds"))
    return run


async def drained(record: Record, limit: float | None = None) -> Drain:
    """Wait until everything is delivered, or until the limit, and return how that went."""
    assert record.graph is not None
    begun = time.monotonic()
    summary = await record.graph.drain(timeout=limit)
    return Drain(
        timeout=limit,
        elapsed=time.monotonic() - begun,
        undelivered_count=summary.undelivered_count,
        timeout_reached=summary.timeout_reached,
    )
