"""Running a case: compile, invoke, drain, and hand what was recorded to the checks."""

import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tenuto.errors import GraphCompileError, StateMigrationError, TenutoError
from tenuto.graph.engine.scope import get_invocation_metadata
from tests.conformance.adapter import span_invariants
from tests.conformance.adapter.blocks import check_block, check_case
from tests.conformance.adapter.checkpoints import Checkpoints
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.decisions import DEVIATIONS, Decision
from tests.conformance.adapter.graphs import GRAPH_KEYS, Built, build
from tests.conformance.adapter.invocations import run_invocations
from tests.conformance.adapter.invoking import drained, invoke
from tests.conformance.adapter.loader import DEFINITIONS, Case, Fixture
from tests.conformance.adapter.observers import Observers, add_queryables, attach_observers
from tests.conformance.adapter.pending import not_run_yet
from tests.conformance.adapter.records import Record, Run
from tests.conformance.adapter.resumes import ambiguity_expected, asked_of, run_checkpointed
from tests.conformance.adapter.sessions import SESSION_KEYS, Sessions, refuse_without_store
from tests.conformance.adapter.spans import tracing_of
from tests.conformance.adapter.stores import Stores, stores_in_files
from tests.conformance.adapter.suspensions import WORDS
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mentioned

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
    "expected_chain_ambiguity_error",
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
    "migrations",
    "name",
    "nodes",
    "observers",
    "queryable_observers",
    "run_count",
    "sequential_invocations",
    "session_id",
    "session_store",
    "state",
    "subgraph",
    "subgraph_with_idx",
    "subgraphs",
    *SESSION_KEYS,
)
CHECKPOINT_KEYS = (
    "crash_injection",
    "every_save_assertions",
    "first_run_expected_error",
    "populate_checkpointer_via_runs",
    "resume",
    "runtime_state_subclass",
    "saved_record_assertions",
    "seeded_record",
)
NESTED_KEYS = (*GRAPH_KEYS, *DEFINITIONS)
RUN_CHECKS = ("expected", "expected_error", "invariants", "invocations", "resume", "sequential_invocations")
"""What a case says of a run; one that says nothing of the kind, but what compiling it gives, is not run."""


@dataclass(slots=True)
class Report:
    """How a fixture went: what is wrong with it, where it deviates knowingly, and what of it is not run yet."""

    fixture: str
    problems: list[str] = field(default_factory=list)
    deviations: list[tuple[str, str, Decision]] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)


async def run_fixture(
    fixture: Fixture, stores: Stores | None = None, deviations: Sequence[tuple[str, str, Decision]] | None = None
) -> Report:
    """Run every case of a fixture, each with a store of its own where it needs one: by default, a file.

    Its deviations must be those that are given, which are by default the ones known of the fixture.
    """
    if stores is None:
        with stores_in_files() as stores:
            return await run_fixture(fixture, stores, deviations)
    report = Report(fixture.name)
    pinned = list(DEVIATIONS.get(fixture.name, ()) if deviations is None else deviations)
    decisions = frozenset(decision for _, _, decision in pinned)
    try:
        cases = fixture.cases()
    except FixtureProblem as problem:
        report.problems.append(str(problem))
        return report
    for case in cases:
        if reason := not_run_yet(case.spec):
            report.pending.append(f"{case.name}: {reason}")
            continue
        check = await run_case(case, Record(stores, decisions))
        report.problems += [f"{case.name}: {problem}" for problem in check.problems]
        report.deviations += [(case.name, place, decision) for place, decision in check.deviations]
    if not report.problems and report.deviations != pinned:
        report.problems.append(f"the deviations are to be {pinned}, and were {report.deviations}")
    return report


async def run_case(case: Case, record: Record) -> Check:
    """Run one case and return what came of its expectations."""
    check = Check(case.spec, record)
    # Observers that raise are warned of; that the engine says so is its own affair.
    record.tracing = tracing_of(case.spec, span_invariants.INVARIANTS)
    with warnings.catch_warnings(), record.tracing or nullcontext():
        warnings.filterwarnings("ignore", "An observer raised", RuntimeWarning)
        try:
            checkpointed = ("checkpointer", *CHECKPOINT_KEYS) if "checkpointer" in case.spec else ()
            known(case.spec, (*CASE_KEYS, *checkpointed), "the case")
            if "graph" in case.spec:
                known(case.spec["graph"], NESTED_KEYS, "graph")
            if "direct_call" in case.spec:
                record.called = _called(case.spec["direct_call"])
                await check_case(case.spec, check)
                return check
            add_queryables(case.spec, record)
            record.siblings.probed = mentioned(case.spec, ("siblings_cancelled_under_fail_fast",))
            await _open_stores(case.spec, record)
            built = _compiled(case.spec, record, check)
            if built is None and record.registration_error is not None:
                await _check_registration(case.spec, record.registration_error, check)
            if built is not None and _is_run(case.spec):
                await _run(case.spec, built, record, check)
        except FixtureProblem as problem:
            check.problems.append(str(problem))
        except Exception as error:
            # Whatever else comes out of a case is its failure, and must not keep the others from running.
            where = traceback.extract_tb(error.__traceback__)[-1]
            check.problems.append(f"raised {error!r} at {where.filename}:{where.lineno}")
        finally:
            if record.pause_store is not None:
                await record.pause_store.aclose()
    return check


async def _open_stores(spec: dict[str, Any], record: Record) -> None:
    """Open what the case keeps its checkpoints and sessions in; one that suspends without either has a store too."""
    if "checkpointer" in spec:
        record.checkpoints = await Checkpoints.open(spec, record)
    if "session_store" in spec:
        record.sessions = await Sessions.open(spec, record)
    else:
        refuse_without_store(spec)
    if record.checkpoints is None and record.sessions is None and mentioned(spec, WORDS):
        record.pauses = await record.stores.open()


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
    except StateMigrationError as error:
        if wanted is not None:
            check.equal("expected_compile_error", wanted, error.category)
        else:
            record.registration_error = error
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


def _is_run(spec: dict[str, Any]) -> bool:
    """Tell whether a case that compiles is run too."""
    only_compiled = "expected_compile_warning" in spec and not any(word in spec for word in RUN_CHECKS)
    return "graph" not in spec and not only_compiled


async def _check_registration(spec: dict[str, Any], error: TenutoError, check: Check) -> None:
    """Check what a registration raised; nothing is run any more."""
    check.run = Run(number=-1, initial={}, error=error)
    if (ambiguous := ambiguity_expected(spec)) is not None:
        check.equal("expected_chain_ambiguity_error", ambiguous, error.category)
        beside = {"invariants": spec["invariants"]} if "invariants" in spec else {}
        await check_block({**(spec.get("expected") or {}), **beside}, check)
        return
    await check_case({key: spec[key] for key in ("expected", "expected_error", "invariants") if key in spec}, check)


async def _run(spec: dict[str, Any], built: Built, record: Record, check: Check) -> None:
    observers = attach_observers(spec, built.outer, built.inner, record)
    check.main = observers.main
    if record.sessions is not None:
        await record.sessions.begin(built.outer)
    if record.checkpoints is not None:
        record.checkpoints.observer = observers.main
    if record.checkpoints is not None and "invocations" not in spec:
        await run_checkpointed(spec, built, observers, record, check)
    elif "sequential_invocations" in spec:
        await _run_sequence(spec, observers, record, check)
    elif isinstance(spec.get("invocations"), list):
        if strange := sorted(spec.keys() & set(CHECKPOINT_KEYS)):
            raise DirectiveUnknown(f"{', '.join(strange)} beside a list of invocations")
        await run_invocations(spec, observers, record, check)
    else:
        asked = asked_of(spec)
        resumed = asked.get("resume_invocation")
        for _ in range(spec.get("invocations", spec.get("run_count", 1))):
            check.run = await invoke(spec, spec.get("initial_state"), observers, record, asked.get("drain"), resumed)
        await _check_each_run(spec, check)
        if "run_count" in spec:
            check.same_runs()
    if "expected_chain_ambiguity_error" in spec and "resume" not in spec and "seeded_record" not in spec:
        raised = [run.error for run in record.runs]
        check.problems.append(f"expected_chain_ambiguity_error: nothing was ambiguous, only {raised!r} raised")
    check.equal("migrations that must not be called", [], record.forbidden_migrations)
    await drained(record)


async def _check_each_run(spec: dict[str, Any], check: Check) -> None:
    for run in check.record.runs:
        check.run = run
        if check.record.tracing is not None:
            check.record.tracing.bound.clear()  # other runs have other ids
        await check_case(spec, check)


async def _run_sequence(spec: dict[str, Any], observers: Observers, record: Record, check: Check) -> None:
    given = known(spec["sequential_invocations"], ("observer_persists_across", "invocations"), "sequential_invocations")
    for entry in listing(given["invocations"], "sequential_invocations"):
        named = known(entry, ("name", "caller_invocation_id", "description"), "a sequential invocation")
        await invoke(spec | named, spec.get("initial_state"), observers, record, None)
        record.runs[-1].name = str(named.get("name", ""))
    check.run = record.runs[-1]
    await check_case(spec, check)
