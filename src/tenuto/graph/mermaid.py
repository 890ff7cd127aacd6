"""Graphs as Mermaid flowcharts."""

from collections.abc import Iterator
from typing import Any

from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.node import Node
from tenuto.graph.graph_end import END
from tenuto.graph.nodes.branches import BranchesNode
from tenuto.graph.nodes.fan_out import FanOutNode


def mermaid(graph: GraphPlan[Any]) -> str:
    """Return a flowchart: nodes with what runs inside them, static edges solid, conditional ones dotted."""
    return "\n".join(["flowchart TD", *_lines(graph, "", "    ")]) + "\n"


def _lines(graph: GraphPlan[Any], prefix: str, indent: str) -> Iterator[str]:
    finish = f"{prefix}finish"
    yield f"{indent}{prefix}start((start)) --> {_id(prefix, graph.entry)}"
    for name, node in graph.nodes.items():
        place = _id(prefix, name)
        inside = list(_inside(node, place, indent + "    "))
        if inside:
            yield f"{indent}subgraph {place} [{_text(_label(node))}]"
            yield from inside
            yield f"{indent}end"
        else:
            yield f"{indent}{place}[{_text(_label(node))}]"
    for source, target in graph.edges.items():
        if callable(target):
            places: tuple[Any, ...] = (*graph.nodes, END) if target.targets is None else target.targets
            reachable = [finish if place is END else _id(prefix, place) for place in places]
            yield f"{indent}{_id(prefix, source)} -.-> {' & '.join(reachable)}"
        else:
            yield f"{indent}{_id(prefix, source)} --> {finish if target is END else _id(prefix, target)}"
    yield f"{indent}{finish}((end))"


def _inside(node: Node, place: str, indent: str) -> Iterator[str]:
    """Draw what runs inside a node: one graph, or one box per branch."""
    if not isinstance(node, BranchesNode):
        for graph in node.graphs():
            yield from _lines(graph, f"{place}_", indent)
        return
    for name, branch in node.branches.items():
        box = _id(f"{place}_", name)
        if branch.subgraph is None:
            yield f"{indent}{box}[{_text(name)}]"
        else:
            yield f"{indent}subgraph {box} [{_text(name)}]"
            yield from _lines(branch.subgraph, f"{box}_", indent + "    ")
            yield f"{indent}end"


def _label(node: Node) -> str:
    if not isinstance(node, FanOutNode):
        return node.name
    plan = node.plan
    if plan.count is not None:
        return f"{node.name} (many times)"
    return f"{node.name} (each of {plan.items_field})" if plan.items_field else f"{node.name} (each item)"


def _id(prefix: str, name: str) -> str:
    safe = "".join(character if character.isalnum() else f"_{ord(character):x}_" for character in name)
    return f"{prefix}n_{safe}"


def _text(label: str) -> str:
    return '"' + label.replace('"', "#quot;") + '"'
