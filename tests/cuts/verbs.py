"""Every verb there is: the public coroutines of the store and its facets, the runtime, its handles and a graph."""

import inspect
from collections.abc import Iterator

from tenuto.graph import CompiledGraph
from tenuto.runtime.handle import RunHandle, SessionHandle
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.open import memory_store

FACES: dict[str, type] = {"runtime": SessionRuntime, "session": SessionHandle, "run": RunHandle, "graph": CompiledGraph}


def all_verbs() -> list[str]:
    """Return the names of all verbs, each with the face it is on."""
    store = memory_store()
    faces = {"store": type(store), **FACES}
    for name, facet in vars(store).items():
        if not name.startswith("_") and type(facet).__module__.startswith("tenuto.store.") and name != "backend":
            faces[f"store.{name}"] = type(facet)
    return sorted(f"{name}.{verb}" for name, face in faces.items() for verb in _verbs(face))


def _verbs(face: type) -> Iterator[str]:
    for name in dir(face):
        found = inspect.getattr_static(face, name)
        if not name.startswith("_") and (inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)):
            yield name
