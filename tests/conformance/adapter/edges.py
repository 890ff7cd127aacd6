"""Edges from `edges`."""

from collections.abc import Callable
from typing import Any

from tenuto.graph import END, GraphBuilder
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, listing


def add_edges(builder: GraphBuilder[Any], spec: Any, graph: str) -> None:
    """Add the edges of a graph; an edge with `when` and the plain one of the same source are one conditional edge."""
    edges = [
        known(edge, ("from", "to", "condition", "when", "description"), f"an edge of {graph}")
        for edge in listing(spec or [], f"edges of {graph}")
    ]
    guarded = {edge["from"] for edge in edges if "when" in edge}
    for edge in edges:
        source = edge["from"]
        if "when" in edge:
            builder.add_conditional_edge(source, _when(edge, edges))
        elif "condition" in edge:
            builder.add_conditional_edge(source, _condition(edge["condition"], f"the edge from {source} of {graph}"))
        elif source not in guarded:
            builder.add_edge(source, _target(edge["to"]))


def _target(name: str) -> Any:
    return END if name == "END" else name


def _condition(spec: Any, place: str) -> Callable[[Any], Any]:
    given = known(spec, ("if_field", "equals", "then", "else", "callable", "field", "message"), place)
    match given.get("callable"):
        case None:
            return lambda state: _target(
                given["then"] if getattr(state, given["if_field"]) == given["equals"] else given["else"]
            )
        case "state_field_read":
            return lambda state: _target(getattr(state, given["field"]))
        case "edge_raises":

            def raising(_: Any) -> Any:
                raise RuntimeError(given["message"])

            return raising
    raise DirectiveUnknown(f"callable {given['callable']} at {place}")


def _when(edge: dict[str, Any], edges: list[dict[str, Any]]) -> Callable[[Any], Any]:
    test = known(edge["when"], ("field", "gt"), f"when of the edge from {edge['from']}")
    others = [other["to"] for other in edges if other["from"] == edge["from"] and "when" not in other]
    if len(others) != 1:
        raise FixtureProblem(f"the edge from {edge['from']} with `when` needs one plain sibling")
    return lambda state: _target(edge["to"] if getattr(state, test["field"]) > test["gt"] else others[0])
