"""Every verb there is: the public coroutines of the store and its facets, the runtime, its handles and a graph."""

import inspect
from collections.abc import AsyncGenerator, Iterator
from typing import Any, get_origin

from tenuto.graph import CompiledGraph
from tenuto.runtime.handle import Session
from tenuto.runtime.operator import Operator
from tenuto.runtime.run_handle import RunHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.sessions import Sessions
from tenuto.store.open import memory_store

FACES: dict[str, type] = {
    "sessions": Sessions,
    "runtime": SessionRuntime,
    "operator": Operator,
    "session": Session,
    "run": RunHandle,
    "graph": CompiledGraph,
}


def all_verbs() -> list[str]:
    """Return the names of all verbs, each with the face it is on."""
    store = memory_store()
    faces = {"store": type(store), **FACES}
    for name, facet in vars(store).items():
        if not name.startswith("_") and type(facet).__module__.startswith("tenuto.store.") and name != "backend":
            faces[f"store.{name}"] = type(facet)
    return sorted(f"{name}.{verb}" for name, face in faces.items() for verb in _verbs(face))


def _verbs(face: type) -> Iterator[str]:
    """Yield a face's verbs, without those it has from another face."""
    others = {name for base in face.__mro__[1:] if base in FACES.values() for name in vars(base)}
    for name in dir(face):
        found = inspect.getattr_static(face, name)
        if not name.startswith("_") and (name not in others or name in vars(face)) and is_verb(found):
            yield name


def is_verb(found: Any) -> bool:
    """Tell whether something is a function to be awaited, or to be iterated over."""
    if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
        return True
    return inspect.isfunction(found) and get_origin(inspect.get_annotations(found).get("return")) is AsyncGenerator
