"""What commands take: a store's address, and import paths of the user's code."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.errors import InvalidInput, StoreUnusable
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.quote import quote
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.open import Opening, open_store
from tenuto.store.schemes import sqlite_path
from tenuto.store.store import Store

Address = Annotated[
    str,
    typer.Option("--store", envvar="TENUTO_STORE", help="sqlite:///file.db or postgresql://...", show_default=False),
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="The PostgreSQL schema of the store's tables.", show_default="tenuto")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def open_existing(url: str, schema: str | None, **options: Any) -> Opening:
    """Return the opening of a store that other processes use; refuse a SQLite file that opening would create."""
    if url.startswith("sqlite:") and not _exists(sqlite_path(url)):
        raise StoreUnusable(f"There is no file {sqlite_path(url)!r}.")
    if url.startswith("memory:"):
        raise StoreUnusable(f"{url!r} is in the memory of one process, which no other process can use.")
    if schema is not None:
        options["schema"] = schema
    return open_store(url, **options)


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # such as a name that is too long
        return False


def load_object(place: str) -> Any:
    """Import what `module:name` names; from now on, the current folder is searched too."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{place!r} does not have the form module:name.")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)  # and left there, for what the user's code imports while it runs
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise typer.BadParameter(f"{module_name!r} cannot be imported: {error!r}.") from error
    if not hasattr(module, name):
        raise typer.BadParameter(f"{module_name!r} has no {name!r}.")
    return getattr(module, name)


def load_graph_source(place: str) -> Any:
    """Import what `module:name` names: a compiled graph, or a function that may return one."""
    found = load_object(place)
    if not isinstance(found, CompiledGraph) and not callable(found):
        module, _, name = place.partition(":")
        raise typer.BadParameter(
            f"{name!r} in {module!r} is not a compiled graph, and not a function that returns one."
        )
    return found


def compiled_graph(found: Any, place: str) -> CompiledGraph[Any]:
    """Return what was found at `place` as a compiled graph, or refuse it."""
    if not isinstance(found, CompiledGraph):
        raise typer.BadParameter(f"{place!r} is not a compiled graph, and does not return one.")
    return found


def load_runtime(place: str) -> SessionRuntime:
    """Import the runtime that `module:name` names."""
    found = load_object(place)
    if not isinstance(found, SessionRuntime):
        raise typer.BadParameter(
            f"{place!r} is not a SessionRuntime but {quote(found)}; declare one in the module, such as "
            "`runtime = SessionRuntime('sqlite:///app.db', [program])`."
        )
    return found


def on_store(runtime: SessionRuntime, url: str | None, schema: str | None, *, pool_size: int) -> Opening:
    """Return what a command opens for a runtime: the store at `url`, or the one that is declared."""
    opening = runtime.declared_store if url is None else open_existing(url, None)
    if not isinstance(opening, Opening) or opening.url.startswith("memory:"):
        what = "was given an open store" if isinstance(opening, Store) else "keeps its sessions in memory"
        raise InvalidInput(
            f"The runtime {what}, which no other process can use; declare it with an address, or pass --store."
        )
    return opening.but(schema=schema, pool_size=pool_size if opening.url.startswith("postgres") else None)
