"""Running a case: compile, invoke, drain, and hand what was recorded to the checks."""

import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import GraphCompileError, GraphError
from tenuto.graph.scope import get_invocation_metadata
from tenuto.graph.state import State
from tests.conformance.checkpoints import Checkpoints, Crash
from tests.conformance.checks import Check
from tests.conformance.decisions import A_FAILED_RUN_FLUSHES_ITS_BUFFER
from tests.conformance.expectations import check_block, check_error
from tests.conformance.graphs import Built, build
from tests.conformance.loader import Case, Fixture
from tests.conformance.observers import Observers, add_queryables, attach_observers
from tests.conformance.pending import not_run_yet
from tests.conformance.records import Drain, Record, Run, plain
from tests.conformance.span_checks import must_fail
from tests.conformance.spans import tracing_of
from tests.conformance.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mapping

CASE_KEYS = (
    "caller_correlation_id",
    "caller_invocation_id",
    "caller_metadata",
    "clock_stub",
    "description",
    "detached_fan_outs",
    "detached_subgraphs",
    "direct_call",
    "edges",
    "entry",
    "expected",
    "expected_compile_error",
    "expected_compile_warning",
    "expected_error",
    "graph",
    "informative",
    "initial_state",
    "inner_subgraphs",
    "invariants",
    "invocations",
    "invoke",
    "invoke_with",
    "middleware",
    "name",
    "nodes",
    "observers",
    "queryable_observers",
    "run_count",
    "sequential_invocations",
    "state",
    "subgraph",
    "subgraph_with_idx",
    "subgraphs",
)
CHECKPOINT_KEYS = (
    "crash_injection",
    "every_save_assertions",
    "first_run_expected_error",
    "migrations",
    "populate_checkpointer_via_runs",
    "resume",
    "runtime_state_subclass",
    "saved_record_assertions",
    "seeded_record",
)
RESUME_CHECKS = ("expected", "expected_error", "invariants")
NESTED_KEYS = ("state", "entry", "nodes", "edges", "subgraph", "subgraphs", "middleware")


@dataclass(slots=True)
class Report:
    """How a fixture went: what is wrong with it, where it deviates knowingly, and what of it is not run yet."""

    fixture: str
    problems: list[str] = field(default_factory=list)
    deviations: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


async def run_fixture(fixture: Fixture) -> Report:
    """Run every case of a fixture."""
    report = Report(fixture.name)
    try:
        cases = fixture.cases()
    except FixtureProblem as problem:
        report.problems.append(str(problem))
        return report
    for case in cases:
        if reason := not_run_yet(case.spec):
            report.pending.append(f"{case.name}: {reason}")
            continue
        check = await run_case(case)
        report.problems += [f"{case.name}: {problem}" for problem in check.problems]
        report.deviations += [f"{case.name}: {deviation}" for deviation in check.deviations]
    return report


async def run_case(case: Case) -> Check:
    """Run one case and return what came of its expectations."""
    record = Record()
    check = Check(case.spec, record)
    # Observers that raise are warned of; that the engine says so is its own affair.
    record.tracing = tracing_of(case.spec)
    with warnings.catch_warnings(), record.tracing or nullcontext():
        warnings.filterwarnings("ignore", "An observer raised", RuntimeWarning)
        try:
            checkpointed = ("checkpointer", *CHECKPOINT_KEYS) if "checkpointer" in case.spec else ()
            known(case.spec, (*CASE_KEYS, *checkpointed), "the case")
            if "graph" in case.spec:
                known(case.spec["graph"], NESTED_KEYS, "graph")
            if "direct_call" in case.spec:
                record.called = _called(case.spec["direct_call"])
                await _check_case(case.spec, check)
                return check
            add_queryables(case.spec, record)
            if checkpointed:
                record.checkpoints = await Checkpoints.open(case.spec, record)
            built = _compiled(case.spec, record, check)
            if built is not None and "graph" not in case.spec:
                await _run(case.spec, built, record, check)
        except FixtureProblem as problem:
            check.problems.append(str(problem))
        except Exception as error:
            # Whatever else comes out of a case is its failure, and must not keep the others from running.
            where = traceback.extract_tb(error.__traceback__)[-1]
            check.problems.append(f"raised {error!r} at {where.filename}:{where.lineno}")
        finally:
            if record.checkpoints is not None:
                await record.checkpoints.close()
    return check


def _called(spec: Any) -> Mapping[str, Any] | BaseException:
    """Call a function outside any invocation; what it raises is its result too."""
    operation = known(spec, ("operation",), "direct_call")["operation"]
    if operation != "get_invocation_metadata":
        raise DirectiveUnknown(f"operation {operation} at direct_call")
    try:
        return get_invocation_metadata()
    except Exception as error:
        return error


def _compiled(spec: dict[str, Any], record: Record, check: Check) -> Built | None:
    wanted = spec.get("expected_compile_error")
    try:
        built = build(spec, record)
    except GraphCompileError as error:
        if wanted is None:
            check.problems.append(f"does not compile: {error.category}: {error}")
        else:
            check.equal("expected_compile_error", wanted, error.category)
        return None
    if wanted is not None:
        check.problems.append(f"expected_compile_error: {wanted} expected, but it compiles")
        return None
    if "expected_compile_warning" in spec:
        expected = spec["expected_compile_warning"]
        if isinstance(expected, list):
            check.equal("expected_compile_warning", sorted(set(expected)), sorted(set(built.warnings)))
        elif expected not in built.warnings:
            check.problems.append(f"expected_compile_warning: {expected} not among {built.warnings}")
    record.graph = built.outer
    return built


async def _run(spec: dict[str, Any], built: Built, record: Record, check: Check) -> None:
    observers = attach_observers(spec, built.outer, built.inner, record)
    check.main = observers.main
    if record.checkpoints is not None:
        record.checkpoints.observer = observers.main
        await _run_checkpointed(spec, built, observers, record, check)
    elif "sequential_invocations" in spec:
        await _run_sequence(spec, observers, record, check)
    elif "invocations" in spec:
        await _run_invocations(spec, observers, record, check)
    else:
        invoke = known(spec.get("invoke", spec.get("invoke_with", {})) or {}, ("drain",), "invoke")
        for _ in range(spec.get("run_count", 1)):
            check.run = await _invoke(spec, spec.get("initial_state"), observers, record, invoke.get("drain"))
        await _check_each_run(spec, check)
        if len(record.runs) > 1:
            check.same_runs()
    await _drained(record, None)


async def _check_each_run(spec: dict[str, Any], check: Check) -> None:
    for run in check.record.runs:
        check.run = run
        if check.record.tracing is not None:
            check.record.tracing.bound.clear()  # other runs have other ids
        await _check_case(spec, check)


async def _check_case(spec: dict[str, Any], check: Check) -> None:
    expected = mapping(spec.get("expected") or {}, "expected")
    wanted = spec.get("expected_error") or expected.get("expected_error")
    if wanted is None and must_fail(expected):
        check.holds("the run completed, though its spans are to end in an error", check.run.error is not None)
    else:
        check_error(wanted, check)
    await check_block(expected, check)
    if "invariants" in spec:
        await check_block({"invariants": spec["invariants"]}, check)


async def _run_invocations(spec: dict[str, Any], observers: Observers, record: Record, check: Check) -> None:
    if isinstance(spec["invocations"], int):
        for _ in range(spec["invocations"]):
            await _invoke(spec, spec.get("initial_state"), observers, record, None)
        await _check_each_run(spec, check)
        return
    entries = [
        known(entry, ("name", "description", "initial_state", "drain", "expected"), "an invocation")
        for entry in listing(spec["invocations"], "invocations")
    ]
    for entry in entries:
        initial = entry.get("initial_state", spec.get("initial_state"))
        await _invoke(spec, initial, observers, record, entry.get("drain"), drain_at_end="drain" in entry)
    # What late events an invocation left behind is only complete once all of them are delivered.
    await _drained(record, None)
    for entry, run in zip(entries, record.runs, strict=True):
        check.run = run
        await _check_case({"expected": entry.get("expected")}, check)
    if "expected" in spec:
        await _check_case({"expected": spec["expected"]}, check)
    if "invariants" in spec:
        await check_block({"invariants": spec["invariants"]}, check)


async def _run_checkpointed(
    spec: dict[str, Any], built: Built, observers: Observers, record: Record, check: Check
) -> None:
    """Run a case that has a store: once, or once more from what the first run, or the fixture itself, left there."""
    if strange := sorted({"run_count", "invocations", "sequential_invocations"} & spec.keys()):
        raise DirectiveUnknown(f"{', '.join(strange)} beside checkpointer")
    assert record.checkpoints is not None
    seeded = await record.checkpoints.seed(spec["seeded_record"], built.outer) if "seeded_record" in spec else None
    for _ in range(spec.get("populate_checkpointer_via_runs", 0)):
        populating = await _invoke(spec, spec.get("initial_state"), observers, record, None)
        check.holds("a run that only fills the store failed", populating.error is None, populating.error)
    initial = _subclassed(spec, built) if "runtime_state_subclass" in spec else spec.get("initial_state")
    if seeded is None:
        asked = known(spec.get("invoke", spec.get("invoke_with", {})) or {}, ("drain", "resume_invocation"), "invoke")
        source = asked.get("resume_invocation")
        check.run = record.first_run = await _invoke(spec, initial, observers, record, asked.get("drain"), source)
        await _check_first_run(spec, check)
        if record.checkpoints.lost:
            check.deviations.append(A_FAILED_RUN_FLUSHES_ITS_BUFFER)
    if "resume" in spec:
        keys = ("from_first_run", "from_seeded_record", "caller_invocation_id", *RESUME_CHECKS)
        resume = known(spec["resume"], keys, "resume")
        if bool(resume.get("from_seeded_record")) == bool(resume.get("from_first_run")):
            raise FixtureProblem("resume must say whether it is from the first run or from a seeded record")
        source = seeded if resume.get("from_seeded_record") else record.runs[0].invocation_id
        if source is None:
            raise FixtureProblem("there is no seeded_record to resume from")
        named = {"caller_invocation_id": resume.get("caller_invocation_id")}
        check.run = record.resumed_run = await _invoke(named, None, observers, record, None, source)
        await _check_case({key: resume[key] for key in RESUME_CHECKS if key in resume}, check)
    elif seeded is not None:
        raise FixtureProblem("a seeded_record that nothing resumes")
    await check_block({key: spec[key] for key in ("every_save_assertions", "invariants") if key in spec}, check)
    check.equal("migrations that must not be called", [], record.forbidden_migrations)


async def _check_first_run(spec: dict[str, Any], check: Check) -> None:
    if "first_run_expected_error" in spec:
        check_error(spec["first_run_expected_error"], check)
    elif "crash_injection" in spec:
        check.holds("the run did not reach the place where it was to crash", check.run.crashed)
    else:
        check_error(spec.get("expected_error") or (spec.get("expected") or {}).get("expected_error"), check)
    names = ("saved_record_assertions",)
    await check_block({name: spec[name] for name in names if name in spec} | (spec.get("expected") or {}), check)


def _subclassed(spec: dict[str, Any], built: Built) -> State:
    """Return the initial state as an instance of a subclass that declares another version."""
    version = known(spec["runtime_state_subclass"], ("schema_version",), "runtime_state_subclass")["schema_version"]
    declared = built.outer.kind
    kind: type[State] = type(f"Other{declared.__name__}", (declared,), {"__module__": __name__})
    kind.schema_version = str(version)
    return kind.model_validate(spec.get("initial_state") or {})


async def _run_sequence(spec: dict[str, Any], observers: Observers, record: Record, check: Check) -> None:
    given = known(spec["sequential_invocations"], ("observer_persists_across", "invocations"), "sequential_invocations")
    for entry in listing(given["invocations"], "sequential_invocations"):
        named = known(entry, ("name", "caller_invocation_id", "description"), "a sequential invocation")
        await _invoke(spec | named, spec.get("initial_state"), observers, record, None)
        record.runs[-1].name = str(named.get("name", ""))
    check.run = record.runs[-1]
    await _check_case(spec, check)


async def _invoke(
    spec: dict[str, Any],
    initial: Any,
    observers: Observers,
    record: Record,
    drain: Any,
    resumed: str | None = None,
    *,
    drain_at_end: bool = True,
) -> Run:
    assert record.graph is not None
    given = initial if isinstance(initial, State) else mapping(initial or {}, "initial_state")
    run = Run(number=len(record.runs), initial=plain(given))
    record.runs.append(run)
    if record.tracing is not None:
        record.tracing.run_begins()
    try:
        outcome = await record.graph.run(
            given,
            observers=observers.per_invocation,
            correlation_id=spec.get("caller_correlation_id"),
            invocation_id=spec.get("caller_invocation_id"),
            metadata=spec.get("caller_metadata"),
            resume_invocation=resumed,
        )
    except Crash:
        assert record.checkpoints is not None
        begun = record.checkpoints.begun()
        run.crashed, run.invocation_id, run.correlation_id = True, begun.invocation_id, begun.correlation_id
        run.drain = await _drained(record, None)
        return run
    run.invocation_id, run.correlation_id = outcome.invocation_id, outcome.correlation_id
    run.error = outcome.error
    if outcome.outcome == "completed":
        run.state = plain(outcome.state) | record.side_channel
    elif not isinstance(outcome.error, GraphError):
        raise AssertionError(f"an {outcome.outcome} outcome without an error of the engine")
    if drain_at_end:
        limit = known(drain or {}, ("timeout_seconds",), "drain").get("timeout_seconds")
        run.drain = await _drained(record, limit)
    return run


async def _drained(record: Record, limit: float | None) -> Drain:
    assert record.graph is not None
    begun = time.monotonic()
    summary = await record.graph.drain(timeout=limit)
    return Drain(
        timeout=limit,
        elapsed=time.monotonic() - begun,
        undelivered_count=summary.undelivered_count,
        timeout_reached=summary.timeout_reached,
    )
