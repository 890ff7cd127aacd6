"""What commands are given: a store's address, and places in the user's code."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tenuto.store.open import Opening, open_store
from tenuto.store.schemes import sqlite_path

Address = Annotated[
    str,
    typer.Option("--store", envvar="TENUTO_STORE", help="sqlite:///file.db or postgresql://...", show_default=False),
]
Schema = Annotated[
    str | None, typer.Option("--schema", help="The PostgreSQL schema the store is in.", show_default="tenuto")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report for scripts.")]


def opening(url: str, schema: str | None, **options: Any) -> Opening:
    """Return the store about to be opened; a file that is not there is refused, since opening would make one."""
    if url.startswith("sqlite:") and not _is_there(sqlite_path(url)):
        raise typer.BadParameter(f"there is no file {sqlite_path(url)!r}.", param_hint="--store")
    if schema is not None:
        options["schema"] = schema
    return open_store(url, **options)


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # such as a name that is too long for one
        return False


def named(place: str) -> Any:
    """Return what `module:name` leads to, None if the module has no such name; the current folder counts."""
    module_name, _, name = place.partition(":")
    if not module_name or not name:
        raise typer.BadParameter(f"{place!r} is not of the form module:name.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise typer.BadParameter(f"{module_name!r} cannot be imported: {error!r}.") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    return getattr(module, name, None)
