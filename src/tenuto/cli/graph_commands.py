"""`tenuto graph`: show graphs."""

import json
from typing import Annotated, Any

import typer

from tenuto.cli.parameters import compiled_graph, load_graph_source
from tenuto.graph.engine.choice import Choice

graphs = typer.Typer(help="Show graphs.", no_args_is_help=True)


@graphs.command("show")
def show(
    place: Annotated[str, typer.Argument(help="Import path module:name of a compiled graph.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print nodes and edges as JSON.")] = False,
) -> None:
    """Print a graph as a Mermaid flowchart."""
    graph = compiled_graph(load_graph_source(place), place)
    if as_json:
        edges = {name: _targets(edge) for name, edge in graph.edges.items()}
        typer.echo(json.dumps({"name": graph.name, "entry": graph.entry, "nodes": list(graph.nodes), "edges": edges}))
    else:
        typer.echo(graph.to_mermaid(), nl=False)


def _targets(edge: Any) -> str | list[str]:
    if not isinstance(edge, Choice):
        return str(edge)
    return "conditional" if edge.targets is None else [str(target) for target in edge.targets]
