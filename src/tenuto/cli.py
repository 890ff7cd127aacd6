"""The command line: `tenuto graph show module:graph`."""

import importlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.graph.compiled import CompiledGraph

app = typer.Typer(help="Tenuto holds an agent's session.", no_args_is_help=True, add_completion=False)
graphs = typer.Typer(help="Look at graphs.", no_args_is_help=True)
app.add_typer(graphs, name="graph")


@app.callback()
def main_options() -> None:
    """Tenuto holds an agent's session: one identity, one typed state, one transcript."""


@graphs.command("show")
def show(
    place: Annotated[str, typer.Argument(help="Where the compiled graph is: module:name.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print nodes and edges for scripts.")] = False,
) -> None:
    """Print a graph as a Mermaid flowchart."""
    graph = load_graph(place)
    if as_json:
        edges = {name: "conditional" if callable(to) else str(to) for name, to in graph.edges.items()}
        typer.echo(json.dumps({"name": graph.name, "entry": graph.entry, "nodes": list(graph.nodes), "edges": edges}))
    else:
        typer.echo(graph.to_mermaid(), nl=False)


def load_graph(place: str) -> CompiledGraph[Any]:
    """Return the compiled graph that `module:name` leads to, or say what is wrong with it."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{place!r} is not of the form module:name.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise typer.BadParameter(f"{module_name!r} cannot be imported: {error}.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    graph = getattr(module, name, None)
    if not isinstance(graph, CompiledGraph):
        raise typer.BadParameter(f"{name!r} of {module_name!r} is not a compiled graph.")
    return graph


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
