"""A case that has a store for checkpoints: its first run, or the record it begins with, and the run that goes on."""

from typing import Any

from tenuto.graph import State
from tenuto.graph.engine.cause import category_of
from tests.conformance.adapter.blocks import check_block, check_case, check_ending
from tests.conformance.adapter.checkpoints import Checkpoints
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.errors import check_error
from tests.conformance.adapter.graphs import Built
from tests.conformance.adapter.invoking import invoke
from tests.conformance.adapter.observers import Observers
from tests.conformance.adapter.records import Record
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known

AMBIGUOUS = "expected_chain_ambiguity_error"
CHECKS = ("expected", "expected_error", "invariants")
KEYS = ("from_first_run", "from_seeded_record", "caller_invocation_id", "resume_with_modified_items", AMBIGUOUS)


def asked_of(spec: dict[str, Any]) -> dict[str, Any]:
    """Return what a case asks of its one invocation."""
    return known(spec.get("invoke", spec.get("invoke_with", {})) or {}, ("drain", "resume_invocation"), "invoke")


def ambiguity_expected(spec: dict[str, Any]) -> str | None:
    """Return the category with which registering, compiling or resuming is to find two ways to migrate."""
    found = spec.get(AMBIGUOUS) or (spec.get("resume") or {}).get(AMBIGUOUS)
    return None if found is None else str(found)


async def run_checkpointed(
    spec: dict[str, Any], built: Built, observers: Observers, record: Record, check: Check
) -> None:
    """Run a case that has a store: once, or once more from what the first run, or the fixture itself, left there."""
    if strange := sorted({"run_count", "sequential_invocations"} & spec.keys()):
        raise DirectiveUnknown(f"{', '.join(strange)} beside checkpointer")
    assert record.checkpoints is not None
    seeded = await record.checkpoints.seed(spec["seeded_record"], built.outer) if "seeded_record" in spec else None
    for _ in range(spec.get("populate_checkpointer_via_runs", 0)):
        populating = await invoke(spec, spec.get("initial_state"), observers, record, None)
        check.holds("a run that only fills the store failed", populating.error is None, populating.error)
    if seeded is None:
        asked = asked_of(spec)
        initial = _subclassed(spec, built) if "runtime_state_subclass" in spec else spec.get("initial_state")
        source = asked.get("resume_invocation")
        check.run = record.first_run = await invoke(spec, initial, observers, record, asked.get("drain"), source)
        await _check_first_run(spec, check)
        if record.checkpoints.lost:
            check.deviates("the first run's record", Decision.A_FAILED_RUN_FLUSHES_ITS_BUFFER)
    if "resume" in spec:
        await _resume(spec, known(spec["resume"], (*KEYS, *CHECKS), "resume"), seeded, observers, check)
    elif seeded is not None and AMBIGUOUS in spec:
        await _resume(spec, {"from_seeded_record": True}, seeded, observers, check)
    elif seeded is not None:
        raise FixtureProblem("a seeded_record that nothing resumes")
    await check_block({key: spec[key] for key in ("every_save_assertions", "invariants") if key in spec}, check)


async def _resume(
    spec: dict[str, Any], resume: dict[str, Any], seeded: str | None, observers: Observers, check: Check
) -> None:
    """Go on from a record, and check what the resume expects; of a seeded record, also what the case itself does."""
    record, checkpoints = check.record, _checkpoints(check)
    if bool(resume.get("from_seeded_record")) == bool(resume.get("from_first_run")):
        raise FixtureProblem("resume must say whether it is from the first run or from a seeded record")
    first = record.first_run
    source = seeded if resume.get("from_seeded_record") else first.invocation_id if first else None
    if source is None:
        raise FixtureProblem("there is no record to resume from")
    if "resume_with_modified_items" in resume:
        if first is None:
            raise FixtureProblem("resume_with_modified_items changes what a first run left")
        source = await checkpoints.changed(first, resume["resume_with_modified_items"])
    named = {"caller_invocation_id": resume.get("caller_invocation_id"), "session_id": spec.get("session_id")}
    check.run = record.resumed_run = await invoke(named, None, observers, record, None, source)
    expected = {key: resume[key] for key in CHECKS if key in resume}
    if first is None:
        expected = {key: spec[key] for key in ("expected", "expected_error") if key in spec} | expected
    if (ambiguous := ambiguity_expected(spec)) is None:
        await check_case(expected, check)
        return
    check.equal(AMBIGUOUS, ambiguous, check.run.error and category_of(check.run.error))
    await check_block(expected.get("expected") or {}, check)
    await check_block({key: expected[key] for key in ("invariants",) if key in expected}, check)


def _checkpoints(check: Check) -> Checkpoints:
    assert check.record.checkpoints is not None
    return check.record.checkpoints


async def _check_first_run(spec: dict[str, Any], check: Check) -> None:
    if "first_run_expected_error" in spec:
        check_error(spec["first_run_expected_error"], check)
    elif "crash_injection" in spec:
        check.holds("the run did not reach the place where it was to crash", check.run.crashed)
    else:
        expected = spec.get("expected") or {}
        check_ending(spec.get("expected_error") or expected.get("expected_error"), expected, check)
    names = ("saved_record_assertions",)
    await check_block({name: spec[name] for name in names if name in spec} | (spec.get("expected") or {}), check)


def _subclassed(spec: dict[str, Any], built: Built) -> State:
    """Return the initial state as an instance of a subclass that declares another version."""
    version = known(spec["runtime_state_subclass"], ("schema_version",), "runtime_state_subclass")["schema_version"]
    declared = built.outer.kind
    kind: type[State] = type(f"Other{declared.__name__}", (declared,), {"__module__": __name__})
    kind.schema_version = str(version)
    return kind.model_validate(spec.get("initial_state") or {})
