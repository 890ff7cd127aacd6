"""What is expected of suspended runs, and of those that go on with them."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from tenuto.graph import GraphOutcome
from tenuto.graph.engine.cause import category_of, derived_category
from tenuto.model.run import RunStatus
from tenuto.model.wait import WaitStatus
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.records import OUTER, Run, plain
from tests.conformance.adapter.vocabulary import FixtureProblem, known, listing


def outcome(expected: Any, check: Check) -> None:
    """Compare how the run went."""
    if expected not in ("completed", "errored", "suspended"):
        raise FixtureProblem(f"there is no outcome {expected!r}")
    found = word_of(check.run.outcome) if check.run.outcome else None
    check.equal("outcome", expected, found)
    if found == "errored" and expected != found:
        check.problems.append(f"the run failed: {check.run.error!r}")


def word_of(outcome: GraphOutcome[Any]) -> str:
    """Return the specification's word for how a run ended."""
    return "errored" if outcome.status == "failed" else outcome.status


def suspended_state(expected: Any, check: Check) -> None:
    """Compare the state in which the run is paused."""
    told = check.run.outcome
    if not check.run.suspended or told is None:
        check.problems.append("suspended_state: the run is not suspended")
        return
    check.equal("suspended_state", expected, plain(told.state))


def descriptor(expected: Any, check: Check) -> None:
    """Compare what the run waits for."""
    check.descriptor("descriptor", expected, check.run.outcome.descriptor if check.run.outcome else None)


def suspending_node(expected: Any, check: Check) -> None:
    """Compare the outermost node on the way to the one that suspended, which is what fixtures name."""
    namespace = check.run.outcome.namespace if check.run.outcome else ()
    check.equal("suspending_node", expected, namespace[0] if namespace else None)


def error(expected: Any, check: Check) -> None:
    """Compare the category of what went wrong, past what only says where."""
    given = known(expected, ("category",), "error")
    found = check.run.error
    check.equal("error.category", given["category"], found and (derived_category(found) or category_of(found)))


def final_state_at_error(expected: Any, check: Check) -> None:
    """Compare the state that the error carries."""
    check.equal("final_state_at_error", expected, plain(getattr(check.run.error, "recoverable_state", None)))


async def checkpointer_assertions(expected: Any, check: Check) -> None:
    """Look into the store for the record of the paused run."""
    given = known(expected, ("paused_invocation_record_exists", "record_type"), "checkpointer_assertions")
    if check.record.checkpoints is None:
        raise FixtureProblem("checkpointer_assertions in a case without a checkpointer")
    status, paused = await _record(check)
    if "paused_invocation_record_exists" in given:
        check.equal("paused_invocation_record_exists", given["paused_invocation_record_exists"], paused)
    if "record_type" in given:
        check.equal("record_type", given["record_type"], status)
    if paused and check.record.graph is not None:
        # Without a payload it would be a checkpoint to go on from, which it is not.
        mistaken = await check.record.graph.run(resume_invocation=check.run.invocation_id)
        check.equal("a paused run resumed as a checkpoint", "errored", word_of(mistaken))


async def _record(check: Check) -> tuple[str | None, bool]:
    """Return what the store calls the invocation's last run, and whether it is there to be answered."""
    store = check.record.checkpoints.store if check.record.checkpoints else None
    if store is None or check.run.invocation_id is None:
        return None, False
    runs = await store.runs.of_invocation(check.run.invocation_id)
    if not runs:
        return None, False
    last = runs[-1]
    waits = await store.waits.of_session(last.key, run_id=last.run_id, status=None)
    point = await store.checkpoints.latest(last.key, run_id=last.run_id)
    paused = last.status is RunStatus.SUSPENDED and point is not None
    return str(last.status), paused and [wait.status for wait in waits] == [WaitStatus.OPEN]


def middleware_log(expected: Any, check: Check) -> None:
    """Compare the lines that middleware wrote in the run."""
    wanted, later = listing(expected, "middleware_log_captured"), check.record.runs[check.run.number + 1 :]
    own = check.record.middleware_log[check.run.logged : later[0].logged if later else None]
    check.equal("middleware_log_captured", wanted, own)


EXPECTATIONS: dict[str, Callable[[Any, Check], Awaitable[None] | None]] = {
    "checkpointer_assertions": checkpointer_assertions,
    "descriptor": descriptor,
    "error": error,
    "final_state_at_error": final_state_at_error,
    "middleware_log_captured": middleware_log,
    "outcome": outcome,
    "suspended_state": suspended_state,
    "suspending_node": suspending_node,
}


def _paused(check: Check) -> Run:
    """Return the run that was suspended first."""
    found = [run for run in check.record.runs if run.suspended]
    return found[0] if found else Run(number=-1, initial={})


def _resumed(check: Check) -> Run:
    """Return the run that last went on with a suspended one, or was to."""
    found = [run for run in check.record.runs if run.payload is not None]
    return found[-1] if found else Run(number=-1, initial={})


def _namespace(check: Check) -> tuple[str, ...]:
    told = _paused(check).outcome
    return told.namespace if told else ()


def _payload_overlaid(check: Check) -> bool:
    """Tell whether the run went on from the paused state with the payload's fields in place of its own."""
    before, after, payload = _paused(check).outcome, _resumed(check).outcome, _resumed(check).payload
    if before is None or after is None or payload is None or after.entry_state is None:
        return False
    entry = plain(after.entry_state)
    declared = {name: value for name, value in payload.items() if name in entry}
    return bool(entry == plain(before.state) | declared)


def _reducer_ignored(check: Check) -> bool:
    """Tell whether the payload has a field whose reducer would have made something else of it."""
    graph, payload, before = check.record.graph, _resumed(check).payload or {}, _paused(check).outcome
    if graph is None or before is None or before.state is None:
        return False
    merged = plain(graph.schema.merge(before.state, payload, OUTER, "probe"))
    return any(merged.get(name) != value for name, value in payload.items()) and _payload_overlaid(check)


def _goes_on_after(check: Check) -> bool:
    entered = [entry.node for entry in check.record.entered(_resumed(check))]
    return bool(entered) and bool(_namespace(check)) and _namespace(check)[-1] not in entered


def _refused(category: str) -> Callable[[Check], bool]:
    """Return whether some run of the case failed with this category."""
    return lambda check: any(run.error is not None and derived_category(run.error) == category for run in _runs(check))


def _runs(check: Check) -> list[Run]:
    return check.record.runs


def _resume_refused(category: str) -> Callable[[Check], bool]:
    """Return whether the resume failed with this category, and no body ran in it."""

    def held(check: Check) -> bool:
        run = _resumed(check)
        failed = run.error is not None and derived_category(run.error) == category
        return failed and not any(entry.run == run.number for entry in check.record.entries)

    return held


def _rejected_at_runtime(dispatching: Callable[[Check], Any]) -> Callable[[Check], bool]:
    """Return whether the suspend was refused once its node was running inside what collects errors."""

    def held(check: Check) -> bool:
        inside = any(entry.graph != OUTER for entry in check.record.entries)
        return bool(dispatching(check)) and inside and _refused("suspension_in_unsupported_context")(check)

    return held


def _suspends_whole(among: Callable[[Check], Any]) -> Callable[[Check], bool]:
    """Return whether the node that suspended runs inside one of these, which suspended the whole invocation."""
    return lambda check: len(_namespace(check)) > 1 and _namespace(check)[0] in among(check)


def _siblings_cancelled(check: Check) -> bool:
    """Tell whether those that were held up were all cancelled, and left nothing in the paused state."""
    siblings, told = check.record.siblings, _paused(check).outcome
    before = [e.state for e in check.record.entered(_paused(check)) if e.graph == OUTER and e.node in _namespace(check)]
    cancelled = siblings.cancelled > 0 and siblings.finished == siblings.running == 0
    return cancelled and told is not None and before[-1:] == [plain(told.state)]


def _carries(name: str) -> Callable[[Check], bool]:
    def held(check: Check) -> bool:
        told = _paused(check).outcome
        return told is not None and told.descriptor is not None and told.descriptor.metadata.get(name) is not None

    return held


def _phases(check: Check) -> list[list[str]]:
    """Return the phases of each node, of each instance and branch, that suspended."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for event in check.record.events(check.main, _paused(check)):
        key = (event.namespace, event.fan_out_index_chain, event.branch_name_chain, event.step)
        found.setdefault(key, []).append(str(event.phase))
    return [phases for phases in found.values() if "suspended" in phases]


def _with_descriptor(check: Check) -> bool:
    events = [event for event in check.record.events(check.main, _paused(check)) if event.phase == "suspended"]
    told = _paused(check).outcome
    signal = told.descriptor.signal_id if told and told.descriptor else None
    return bool(events) and all(
        event.descriptor is not None and event.descriptor.signal_id == signal for event in events
    )


def _saved_with_pause(check: Check) -> bool:
    """Tell whether the session was saved in the commit of the pause, as it was then."""
    sessions, told = check.record.sessions, _paused(check).outcome
    saves = sessions.saves_of(_paused(check).number) if sessions else []
    if not saves or told is None:
        return False
    state = plain(told.state)
    return saves[-1].pauses and all(state[name] == value for name, value in saves[-1].state.items())


def _middleware_lines(check: Check, word: str) -> list[str]:
    """Return the lines that the middleware around suspending nodes would write."""
    nodes = [spec for spec in (check.spec.get("nodes") or {}).values() if "suspend_with_descriptor" in spec]
    return [entry[word] for spec in nodes for entry in spec.get("wrap_with_middleware") or [] if word in entry]


def _pre_ran(check: Check) -> bool:
    wanted = _middleware_lines(check, "pre_log")
    return bool(wanted) and _paused(check).suspended and set(wanted) <= set(check.record.middleware_log)


def _post_skipped(check: Check) -> bool:
    unwanted = _middleware_lines(check, "post_log")
    return bool(unwanted) and _paused(check).suspended and not set(unwanted) & set(check.record.middleware_log)


def _wrapped_not_run(check: Check) -> bool:
    nodes = {
        name
        for name, spec in (check.spec.get("nodes") or {}).items()
        for entry in spec.get("wrap_with_middleware") or []
        if "pre_next_calls_suspend_with_descriptor" in entry
    }
    return bool(nodes) and bool(check.record.runs) and not any(entry.node in nodes for entry in check.record.entries)


def _distinguished(check: Check) -> bool:
    """Tell whether there was a pause, of which what the store made of it was checked."""
    return _paused(check).suspended and check.passed("checkpointer_assertions")


_unsupported = _refused("suspension_in_unsupported_context")
_record_invalid = _resume_refused("suspension_record_invalid")

TRUTHS: dict[str, Callable[[Check], bool | Awaitable[bool]]] = {
    "collect_mode_parallel_branches_suspend_rejected_at_runtime": _rejected_at_runtime(
        lambda check: check.record.structure.dispatchers
    ),
    "collect_mode_suspend_rejected_at_runtime": _rejected_at_runtime(lambda check: check.record.structure.fan_outs),
    "descriptor_carries_branch_name": _carries("branch_name"),
    "descriptor_carries_fan_out_index": _carries("fan_out_index"),
    "error_category_is_resume_payload_invalid": _resume_refused("suspension_resume_payload_invalid"),
    "invalid_payload_blocks_resume": _resume_refused("suspension_resume_payload_invalid"),
    "middleware_post_next_block_skipped_on_suspending_node": _post_skipped,
    "middleware_pre_next_block_runs_on_suspending_node": _pre_ran,
    "middleware_suspend_raises_unsupported_context": _unsupported,
    "no_completed_event_for_suspending_node": lambda check: (
        bool(_phases(check)) and not any("completed" in phases for phases in _phases(check))
    ),
    "paused_record_persists_via_checkpointer_backend": _distinguished,
    "record_type_distinguishes_suspended_from_checkpointed": _distinguished,
    "reducer_not_consulted_on_signal_merge": _reducer_ignored,
    "resume_against_non_suspended_raises_record_invalid": _record_invalid,
    "resume_continues_after_suspending_node": _goes_on_after,
    "resume_covers_completed_and_never_existed_cases": _record_invalid,
    "resume_merges_signal_payload": _payload_overlaid,
    "resume_sees_session_state_consistent_with_paused_record": lambda check: (
        _saved_with_pause(check) and _payload_overlaid(check)
    ),
    "session_saves_at_suspend_time": _saved_with_pause,
    "siblings_cancelled_under_fail_fast": _siblings_cancelled,
    "signal_payload_overwrites_field_directly": _payload_overlaid,
    "single_branch_suspend_suspends_whole_parallel_branches": _suspends_whole(
        lambda check: check.record.structure.dispatchers
    ),
    "single_instance_suspend_suspends_whole_fan_out": _suspends_whole(lambda check: check.record.structure.fan_outs),
    "started_followed_by_suspended_in_order": lambda check: (
        bool(_phases(check)) and all(phases == ["started", "suspended"] for phases in _phases(check))
    ),
    "subgraph_suspend_propagates_to_outer": _suspends_whole(lambda check: check.record.structure.outer_nodes),
    "suspend_returns_suspended_outcome": lambda check: _paused(check).suspended,
    "suspended_event_carries_descriptor": _with_descriptor,
    "wrapped_node_does_not_execute_after_middleware_suspend_attempt": _wrapped_not_run,
}
"""Invariants of suspension, which hold or do not; the fixture says which."""


def named_truth(name: str, check: Check) -> Callable[[Check], bool] | None:
    """Return the invariant that says of a node by its name where a resume goes on."""
    for pattern, held in PATTERNS.items():
        found = re.fullmatch(pattern, name)
        if found and found[1] in check.record.structure.nodes:
            return partial(held, found[1])
    return None


def _re_enters(node: str, check: Check) -> bool:
    inner = [entry.node for entry in check.record.entered(_resumed(check)) if entry.graph != OUTER]
    return inner[:1] == [node]


def _runs_after(node: str, check: Check) -> bool:
    return node in [entry.node for entry in check.record.entered(_resumed(check))]


PATTERNS: dict[str, Callable[[str, Check], bool]] = {
    r"resume_re_enters_at_(.+)": _re_enters,
    r"(.+)_runs_post_resume": _runs_after,
}
