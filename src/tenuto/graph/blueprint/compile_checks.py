"""The rules a graph has to keep to be compiled, and the one warning of the compiler."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, get_origin

from tenuto.errors import GraphCompileError
from tenuto.graph.engine.choice import Choice
from tenuto.graph.engine.node import Node
from tenuto.graph.graph_end import END
from tenuto.graph.middleware.isolation import FailureIsolation
from tenuto.graph.nodes.branches import BranchesNode
from tenuto.graph.nodes.fan_out import FanOutNode, FanOutPlan
from tenuto.graph.nodes.subgraph import SubgraphNode, check_declared
from tenuto.graph.reducers import misplaced
from tenuto.graph.state import Schema
from tenuto.graph.warnings import GraphCompileWarning


def check_reducers(schema: Schema) -> None:
    """Refuse two reducers on a field, one with impossible arguments, and what is meant as a reducer but is not."""
    for field in schema.fields.values():
        if stray := misplaced(schema.kind.model_fields[field.name]):
            raise GraphCompileError("reducer_configuration_invalid", f"Field {field.name!r} {stray}", field=field.name)
        if len(field.reducers) > 1:
            names = " and ".join(reducer.name for reducer in field.reducers)
            raise GraphCompileError(
                "conflicting_reducers", f"Field {field.name!r} has {names}; it can have only one.", field=field.name
            )
        if field.reducer.fault:
            raise GraphCompileError(
                "reducer_configuration_invalid", f"Field {field.name!r}: {field.reducer.fault}.", field=field.name
            )


def check_edges(graph: str, nodes: Mapping[str, Node], edges: list[tuple[str, Any]], entry: str | None) -> str:
    """Refuse a graph without entry, with loose or duplicated edges, or with unreachable nodes; return the entry."""
    if entry is None:
        raise GraphCompileError("no_declared_entry", f"Graph {graph!r} has no entry; call set_entry.")
    if entry not in nodes:
        raise GraphCompileError(
            "dangling_edge", f"The entry of graph {graph!r} is {entry!r}, which is not a node of this graph."
        )
    following: dict[str, Any] = {}
    for source, target in edges:
        if source in following:
            raise GraphCompileError(
                "multiple_outgoing_edges", f"Node {source!r} has two outgoing edges; make them one conditional edge."
            )
        places = (target.targets or ()) if isinstance(target, Choice) else (target,)
        loose = [name for name in (source, *places) if name is not END and name not in nodes]
        if loose:
            raise GraphCompileError(
                "dangling_edge", f"An edge of graph {graph!r} names {loose[0]!r}, which is not a node of this graph."
            )
        following[source] = target
    lost = sorted(nodes.keys() - _reached(entry, following, nodes))
    if lost:
        raise GraphCompileError("unreachable_node", f"Nothing leads to {', '.join(lost)} of {graph!r}.", nodes=lost)
    if stuck := sorted(nodes.keys() - following.keys()):
        raise GraphCompileError(
            "no_outgoing_edge",
            f"Graph {graph!r} has no edge after {', '.join(stuck)}; add one, to END where the graph ends.",
            nodes=stuck,
        )
    return entry


def _reached(entry: str, following: Mapping[str, Any], nodes: Mapping[str, Node]) -> set[str]:
    reached: set[str] = set()
    todo = [entry]
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        target = following.get(name)
        if isinstance(target, Choice) and target.targets is None:
            return set(nodes)  # it may lead anywhere
        places = target.targets or () if isinstance(target, Choice) else (target,)
        todo += [place for place in places if place is not None and place is not END]
    return reached


def check_subgraph(node: SubgraphNode, parent: Schema) -> None:
    """Refuse a projection of undeclared fields; warn of a field whose entries would be duplicated."""
    child = node.graph.schema
    node.projection.check(f"Subgraph node {node.name!r}", parent, child)
    leaving = node.projection.leaving(parent, child)
    entering = node.projection.entering()
    _warn_of_round_trips(node.name, parent, entering, leaving.items())


def check_fan_out(node: FanOutNode, parent: Schema) -> None:
    """Refuse a fan-out whose fields do not exist or are not lists, or that has both items and a count."""
    plan, where = node.plan, f"Fan-out node {node.name!r}"
    ways = sum(way is not None for way in (plan.items_field, plan.items, plan.count))
    lacks_item = plan.graph is not None and plan.count is None and plan.item_field is None
    if ways != 1 or lacks_item or (plan.count is not None and plan.item_field is not None):
        raise GraphCompileError(
            "fan_out_count_mode_ambiguous",
            f"{where} needs one of items_field, items and count; the first two with item_field, if it runs a graph.",
        )
    for name in filter(None, (plan.items_field, plan.target_field, plan.count_field, plan.errors_field)):
        check_declared(where, name, parent)
    if plan.items_field and not _is_list(parent, plan.items_field):
        raise GraphCompileError("fan_out_field_not_list", f"{where}: {plan.items_field!r} is not a list.")
    if plan.graph is None:
        _check_call(plan, where)
    else:
        _check_fields(plan, where, parent, plan.graph.schema)
        _warn_of_round_trips(node.name, parent, _entering(plan), plan.collected.items())
    collected = plan.collected[plan.target_field]
    for middleware in plan.instance_middleware:
        if isinstance(middleware, FailureIsolation) and middleware.lacks(collected):
            raise GraphCompileError(
                "fan_out_degraded_update_missing_collect_field",
                f"{where}: the degraded update of an instance has no {collected!r}, which is collected.",
            )


def _check_call(plan: FanOutPlan, where: str) -> None:
    given = {
        "item_field": plan.item_field,
        "collect_field": plan.collect_field,
        "inputs": plan.inputs,
        "extra_outputs": plan.extra_outputs,
    }
    if shaped := [name for name, value in given.items() if value]:
        raise GraphCompileError(
            "fan_out_invalid_instance_spec",
            f"{where} runs a function, which takes the state and the item and returns the result: "
            f"leave out {', '.join(shaped)}, or give it a graph.",
        )


def _check_fields(plan: FanOutPlan, where: str, parent: Schema, child: Schema) -> None:
    if plan.collect_field is None:
        raise GraphCompileError(
            "fan_out_invalid_instance_spec", f"{where} runs a graph: name one of its fields as collect_field."
        )
    for name in filter(None, (plan.item_field, plan.collect_field)):
        check_declared(where, name, child)
    for inner, outer in [*plan.inputs.items(), *((inner, outer) for outer, inner in plan.extra_outputs.items())]:
        check_declared(where, inner, child)
        check_declared(where, outer, parent)


def _entering(plan: FanOutPlan) -> dict[str, str]:
    item = {plan.item_field: plan.items_field} if plan.item_field and plan.items_field else {}
    return {**plan.inputs, **item}


def check_branches(node: BranchesNode, parent: Schema) -> None:
    """Refuse a node without branches, and a branch that has neither or both of subgraph and call."""
    where = f"Parallel branches node {node.name!r}"
    if not node.branches:
        raise GraphCompileError("parallel_branches_no_branches", f"{where} has no branches.")
    for name, branch in node.branches.items():
        shaped = branch.inputs is not None or branch.outputs is not None
        if (branch.subgraph is None) == (branch.call is None) or (branch.call is not None and shaped):
            raise GraphCompileError(
                "parallel_branches_invalid_branch_spec",
                f"Branch {name!r} of {node.name!r} needs a subgraph, or a call without inputs and outputs.",
            )
        if branch.subgraph is not None:
            child = branch.subgraph.schema
            branch.projection.check(f"Branch {name!r} of {node.name!r}", parent, child)
            leaving = branch.projection.leaving(parent, child)
            _warn_of_round_trips(node.name, parent, branch.projection.entering(), leaving.items())
    if node.errors_field:
        check_declared(where, node.errors_field, parent)


def _warn_of_round_trips(
    node: str, parent: Schema, entering: Mapping[str, str], leaving: Iterable[tuple[str, str]]
) -> None:
    for outer, inner in leaving:
        if entering.get(inner) == outer and not parent.fields[outer].reducer.idempotent:
            warnings.warn(
                GraphCompileWarning(
                    "projection_reducer_round_trip",
                    f"{outer!r} goes into {node!r} and comes back through {parent.fields[outer].reducer.name}, "
                    "which adds again what was there before.",
                ),
                stacklevel=4,
            )


def _is_list(schema: Schema, name: str) -> bool:
    annotation = schema.kind.model_fields[name].annotation
    return annotation is list or get_origin(annotation) is list or annotation is Any
