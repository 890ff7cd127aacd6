"""A case's invocations, one after the other on the same graph and stores, each with what is expected of it."""

from typing import Any

from tests.conformance.adapter.blocks import check_block, check_case
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.invoking import drained, invoke
from tests.conformance.adapter.observers import Observers
from tests.conformance.adapter.records import Record
from tests.conformance.adapter.suspensions import invocation_named
from tests.conformance.adapter.vocabulary import DirectiveUnknown, known, listing

EXPECTED_BESIDE = (
    "expected_final_state",
    "loaded_invoke_state_for_scratch",
    "loaded_session_state",
    "saved_session_assertions",
)
"""What may stand in an invocation itself, without `expected` around it."""
KEYS = (
    "caller_correlation_id",
    "caller_invocation_id",
    "caller_metadata",
    "description",
    "drain",
    "expected",
    "expected_error",
    "initial_state",
    "invariants",
    "name",
    "resume_invocation",
    "session_id",
    "signal_payload",
    *EXPECTED_BESIDE,
)


async def run_invocations(spec: dict[str, Any], observers: Observers, record: Record, check: Check) -> None:
    """Run a case's list of invocations, and check each; then what the case expects of all of them."""
    entries = [known(entry, KEYS, "an invocation") for entry in listing(spec["invocations"], "invocations")]
    # What one that drains with a limit leaves behind is only complete once all of them are delivered.
    late = any("drain" in entry for entry in entries)
    for entry in entries:
        check.run = await _invoke(spec, entry, observers, record, drain_at_end=not late or "drain" in entry)
        if not late:
            await _check(entry, check)
    if late:
        await drained(record)
        for entry, run in zip(entries, record.runs, strict=True):
            check.run = run
            await _check(entry, check)
    check.whole = True
    if "expected" in spec or "expected_error" in spec:
        await check_case({key: spec[key] for key in ("expected", "expected_error") if key in spec}, check)
    if "invariants" in spec:
        await check_block({"invariants": spec["invariants"]}, check)


async def _invoke(
    spec: dict[str, Any], entry: dict[str, Any], observers: Observers, record: Record, *, drain_at_end: bool
) -> Any:
    shared = {key: value for key, value in spec.items() if key not in ("name", "signal_payload")}
    resumed = entry.get("resume_invocation")
    if resumed is None and "signal_payload" in entry:
        raise DirectiveUnknown("signal_payload without resume_invocation at an invocation")
    return await invoke(
        shared | entry,
        entry.get("initial_state", spec.get("initial_state")),
        observers,
        record,
        entry.get("drain"),
        None if resumed is None else invocation_named(str(resumed), record),
        drain_at_end=drain_at_end,
    )


async def _check(entry: dict[str, Any], check: Check) -> None:
    block = {**(entry.get("expected") or {}), **{name: entry[name] for name in EXPECTED_BESIDE if name in entry}}
    beside = {key: entry[key] for key in ("expected_error", "invariants") if key in entry}
    await check_case({"expected": block} | beside, check)
