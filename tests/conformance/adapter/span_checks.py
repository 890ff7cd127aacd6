"""The expectations of spans, traces and logs."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tenuto.observe.attributes import IMPLEMENTATION
from tenuto.observe.otel import INVOCATION
from tests.conformance.adapter.checks import Check
from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.spans import Tracing
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing, mapping
from tests.observe.trees import Branch

SPAN_KEYS = (
    "attributes",
    "attributes_absent",
    "children",
    "exception_recorded",
    "link_count",
    "links",
    "name",
    "status",
    "status_description",
)
DISTINGUISHING = ("node.fan_out_index", "node.attempt_index", "node.branch_name")
DISPATCHING = ("fan_out.item_count", "parallel_branches.branch_count")


def tracing(check: Check) -> Tracing:
    """Return what the case left in spans and logs."""
    if check.record.tracing is None:
        raise FixtureProblem("the case made neither spans nor logs")
    return check.record.tracing


def traces(check: Check) -> dict[int, list[Branch]]:
    """Return the traces of the run that is checked."""
    return tracing(check).traces(check.run.number)


def must_fail(expected: dict[str, Any]) -> bool:
    """Tell whether the trees of a block say that the run failed, which some fixtures say nowhere else."""
    listed = [entry.get("span_tree") or [] for entry in expected.get("traces") or []]
    parent = (expected.get("parent_trace") or {}).get("span_tree") or []
    named = list((expected.get("otel_spans") or {}).values())
    first = [trees[0] for trees in (expected.get("span_tree") or [], *listed[:1], parent, named) if trees]
    # A root without a status ends as its last child does.
    ends = [tree if "status" in tree else (tree.get("children") or [{}])[-1] for tree in first]
    return any(tree.get("status") == "ERROR" for tree in ends)


def span_tree(expected: Any, check: Check) -> None:
    """Compare the roots of the run's traces, in order, with trees."""
    roots = [root for roots in traces(check).values() for root in roots]
    _sequence("span_tree", listing(expected, "span_tree"), roots, check)


def otel_spans(expected: Any, check: Check) -> None:
    """Compare each named observer's one root with a tree."""
    for name, tree in mapping(expected, "otel_spans").items():
        found = tracing(check).traces(check.run.number, name)
        roots = [root for roots in found.values() for root in roots]
        _sequence(f"otel_spans.{name}", [tree], roots, check)


def traces_listed(expected: Any, check: Check) -> None:
    """Compare the run's traces with those listed; which is which is said by ids that are bound, else by their order."""
    wanted = [known(entry, ("trace_id", "span_tree"), "traces") for entry in listing(expected, "traces")]
    left = traces(check)
    check.equal("number of traces", len(wanted), len(left))
    for number, entry in enumerate(wanted):
        name = str(entry.get("trace_id", ""))
        bound = tracing(check).bound.get(name)
        ids = [each for each in left if bound is None or f"{each:032x}" == bound]
        if not ids:
            check.problems.append(f"traces[{number}]: there is no trace {name} = {bound}")
            continue
        if name:
            _value(f"traces[{number}].trace_id", name, f"{ids[0]:032x}", check)
        trees = listing(entry.get("span_tree", []), f"traces[{number}].span_tree")
        _sequence(f"traces[{number}]", trees, left.pop(ids[0]), check)


def parent_trace(expected: Any, check: Check) -> None:
    """Compare the trace of the calling invocation."""
    given = known(expected, ("span_tree",), "parent_trace")
    first = next(iter(traces(check).values()), [])
    _sequence("parent_trace", listing(given["span_tree"], "parent_trace.span_tree"), first, check)


def detached_trace_count(expected: Any, check: Check) -> None:
    """Compare the number of traces besides the calling invocation's."""
    check.equal("detached_trace_count", expected, len(traces(check)) - 1)


def invocation_count(expected: Any, check: Check) -> None:
    """Compare the number of invocation spans over all runs."""
    runs = range(len(check.record.runs))
    found = [span for run in runs for span in tracing(check).spans(run) if span.name == INVOCATION]
    check.equal("invocation_count", expected, len(found))


def no_edge_spans(expected: Any, check: Check) -> None:
    """Check that there are no spans but those that the trees list."""
    trees = (check.spec.get("expected") or {}).get("span_tree")
    if expected is not True or trees is None:
        raise FixtureProblem("no_edge_spans must be true, and stand beside a span_tree")
    check.equal("number of spans", sum(map(_size, trees)), len(tracing(check).spans(check.run.number)))


def _size(tree: dict[str, Any]) -> int:
    return 1 + sum(map(_size, tree.get("children", [])))


def determinism_check(expected: Any, check: Check) -> None:
    """Compare two runs on what is named."""
    keys = ("compare_runs", "compare", "ignore_attributes", "require_equal")
    given = known(expected, keys, "determinism_check")
    one, other = given.get("compare_runs", [0, 1])
    ignored = [str(name) for name in given.get("ignore_attributes", [])]
    for aspect in listing(given["compare"], "determinism_check.compare"):
        if aspect not in ASPECTS:
            raise DirectiveUnknown(f"determinism_check.compare {aspect}")
        found = [
            sorted(
                repr(_view(root, aspect, ignored)) for roots in tracing(check).traces(run).values() for root in roots
            )
            for run in (one, other)
        ]
        held = (found[0] == found[1]) == given.get("require_equal", True)
        check.holds(f"determinism_check: {aspect} of runs {one} and {other}", held and bool(found[0]), found)


ASPECTS = ("span_tree_structure", "span_names", "span_status", "span_attributes_excluding_ignored")


def _view(branch: Branch, aspect: str, ignored: list[str]) -> Any:
    """Return a tree as far as an aspect of it goes; children in an order of their own, since theirs may be free."""
    below = sorted((_view(each, aspect, ignored) for each in branch.below), key=repr)
    match aspect:
        case "span_names":
            return branch.span.name, below
        case "span_status":
            return branch.status, branch.span.status.description, below
        case "span_attributes_excluding_ignored":
            said = branch.span.attributes or {}
            kept = {name: value for name, value in said.items() if not _matches_any(name, ignored)}
            return sorted(kept.items(), key=repr), below
    return below


def _matches_any(name: str, patterns: list[str]) -> bool:
    return any(name.startswith(p[:-1]) if p.endswith("*") else name == p for p in patterns)


def log_records(expected: Any, check: Check) -> None:
    """Compare the run's log lines, in the order they were written."""
    wanted = listing(expected, "log_records")
    found = tracing(check).lines(check.run.number)
    check.equal("number of log_records", len(wanted), len(found))
    for number, (entry, line) in enumerate(zip(wanted, found, strict=False)):
        what = f"log_records[{number}]"
        given = known(entry, ("body", "attributes", "attributes_absent"), what)
        if "body" in given:
            check.equal(f"{what}.body", given["body"], line.body)
        _attributes(what, given, line.attributes, check)


def _sequence(what: str, wanted: list[Any], found: list[Branch], check: Check) -> None:
    names = [each.span.name for each in found]
    check.equal(f"{what}: spans", [mapping(each, what).get("name") for each in wanted], names)
    for tree, branch in zip(wanted, found, strict=False):
        _compare(f"{what}/{branch.span.name}", tree, branch, check)


def _compare(what: str, expected: Any, found: Branch, check: Check) -> None:
    tree = known(expected, SPAN_KEYS, what)
    if "name" in tree:
        check.equal(f"{what}.name", tree["name"], found.span.name)
    if "status" in tree:
        check.equal(f"{what}.status", tree["status"], found.status)
    if "status_description" in tree:
        check.equal(f"{what}.status_description", tree["status_description"], found.span.status.description)
    if "exception_recorded" in tree:
        check.equal(f"{what}.exception_recorded", tree["exception_recorded"], bool(found.exceptions))
    if "link_count" in tree:
        check.equal(f"{what}.link_count", tree["link_count"], len(found.span.links))
    if "links" in tree:
        _links(what, listing(tree["links"], f"{what}.links"), found, check)
    _attributes(what, tree, dict(found.span.attributes or {}), check)
    if "children" in tree:
        _children(what, listing(tree["children"], f"{what}.children"), found, check)


def _links(what: str, wanted: list[Any], found: Branch, check: Check) -> None:
    check.equal(f"{what}: number of links", len(wanted), len(found.span.links))
    for link, other in zip(wanted, found.span.links, strict=False):
        target = known(link, ("target_trace_id",), f"{what}.links")["target_trace_id"]
        _value(f"{what}.links", target, f"{other.context.trace_id:032x}", check)


def _children(what: str, wanted: list[Any], found: Branch, check: Check) -> None:
    if not any(found.said(name) is not None for name in DISPATCHING):
        _sequence(what, wanted, _listed(what, wanted, found.below, check), check)
        return
    # The children of a dispatcher run at the same time; a failure may have cut some of them off.
    if found.status != "ERROR":
        check.equal(f"{what}: number of children", len(wanted), len(found.below))
    left = list(found.below)
    for number, tree in enumerate(wanted):
        fitting = [each for each in left if _fits(tree, each)]
        if not fitting:
            check.problems.append(f"{what}: there is no child {number} such as {tree.get('name')}")
            continue
        left.remove(fitting[0])
        _compare(f"{what}/{fitting[0].span.name}#{number}", tree, fitting[0], check)


def _listed(what: str, wanted: list[Any], found: list[Branch], check: Check) -> list[Branch]:
    """Return the children that a list is about: all of them, but where a fixture is known to leave out nodes."""
    names = {tree.get("name") for tree in wanted}
    omitted = [each for each in found if each.span.name in check.record.structure.nodes - names]
    place = f"{what}: {[each.span.name for each in omitted]}"
    if not wanted or not omitted or not check.deviates(place, Decision.CHILDREN_MAY_BE_LEFT_OUT):
        return found
    return [each for each in found if each not in omitted]


def _fits(tree: dict[str, Any], found: Branch) -> bool:
    said = tree.get("attributes") or {}
    told = {name: said[f"openarmature.{name}"] for name in DISTINGUISHING if f"openarmature.{name}" in said}
    return tree.get("name") == found.span.name and all(found.said(name) == value for name, value in told.items())


def _attributes(what: str, given: dict[str, Any], found: dict[str, Any], check: Check) -> None:
    for name, value in mapping(given.get("attributes") or {}, f"{what}.attributes").items():
        if name not in found:
            check.problems.append(f"{what}.{name}: expected {value!r}, but it is not there")
        else:
            _value(f"{what}.{name}", value, found[name], check)
    for name in listing(given.get("attributes_absent") or [], f"{what}.attributes_absent"):
        check.holds(f"{what}.{name} must not be there", name not in found, found.get(name))


def _value(what: str, expected: Any, found: Any, check: Check) -> None:
    """Compare a value with what is expected of it: itself, a placeholder, or what it must be like."""
    if isinstance(expected, dict):
        given = known(expected, ("non_empty_string", "harness_parameterized"), what)
        if "non_empty_string" in given:
            check.equal(f"{what}: a text", given["non_empty_string"], isinstance(found, str) and bool(found))
        if "harness_parameterized" in given:
            check.equal(f"{what}: parameter", "implementation_name", given["harness_parameterized"])
            check.equal(what, IMPLEMENTATION, found)
    elif expected == "<uuid>":
        check.holds(f"{what} is no UUID of version 4", is_uuid4(found), found)
    elif expected == "<any-string>":
        check.holds(f"{what} is no text", isinstance(found, str) and bool(found), found)
    elif isinstance(expected, str) and expected.startswith(("<trace_id_", "<span_id_")):
        check.equal(f"{what} {expected}", tracing(check).bound.setdefault(expected, found), found)
    else:
        check.equal(what, expected, list(found) if isinstance(found, tuple) else found)


def is_uuid4(value: Any) -> bool:
    """Tell whether a value is a UUID of version 4 in its canonical form."""
    try:
        return str(UUID(value)) == value and UUID(value).version == 4
    except (ValueError, AttributeError, TypeError):
        return False


EXPECTATIONS: dict[str, Callable[[Any, Check], None]] = {
    "detached_trace_count": detached_trace_count,
    "determinism_check": determinism_check,
    "invocation_count": invocation_count,
    "log_records": log_records,
    "no_edge_spans": no_edge_spans,
    "otel_spans": otel_spans,
    "parent_trace": parent_trace,
    "span_tree": span_tree,
    "traces": traces_listed,
}
