"""Imports point down only (docs/architecture.md)."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "tenuto"

# A module may import from its own room and from those named for it.
VALUES = {"argument", "clock", "codec", "errors", "ids", "model", "quote"}
RULES = {"store.rules", "store.rules.parts", "store.rules.commit", "store.rules.verbs"}
BACKENDS = {"store.backends", "store.backends.sqlite", "store.backends.postgres"}
STORE = {
    *("store.backend", "store.context", "store.host", "store.facets", "store.housekeeping", "store.keeper"),
    *("store.bounds", "store.schemes"),
}
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "quote": set(),
    "argument": {"errors", "quote"},
    "ids": {"errors", "quote"},
    "codec": {"errors", "quote"},
    "model": {"argument", "clock", "codec", "errors", "ids", "quote"},
    "store.rules": VALUES,
    "store.rules.parts": VALUES | {"store.rules"},
    "store.rules.commit": VALUES | {"store.rules.parts", "store.rules"},
    "store.rules.verbs": VALUES | RULES - {"store.rules.verbs"},
    "store.backend": VALUES | {"store.rules"},
    "store.backends": VALUES | {"store.backend", "store.rules"},
    "store.backends.sqlite": VALUES | {"store.backends", "store.backend", "store.rules"},
    "store.backends.postgres": VALUES | {"store.backends", "store.backend", "store.rules"},
    "store.context": VALUES | {"store.backend", "store.rules"},
    "store.host": VALUES,
    "store.facets": VALUES | RULES | {"store.backend", "store.context", "store.host"},
    "store.housekeeping": VALUES | RULES | {"store.backend", "store.context", "store.facets"},
    "store.keeper": VALUES | {"store.backends", "store.facets"},
    "store.bounds": VALUES | RULES,
    "store.schemes": VALUES | BACKENDS | {"store.backend"},
    "store": VALUES | RULES | BACKENDS | STORE,
    "writing": VALUES | {"store"},
    "runtime": VALUES | {"writing", "store"},
    "graph": VALUES | {"runtime", "writing", "store"},
    "observe": VALUES | {"graph"},
    "testing": VALUES | {"runtime", "store", "store.facets", "store.rules", "store.backend", "store.backends"},
    "cli": VALUES | {"graph", "runtime", "store"},
    "demo": VALUES | {"", "store", "testing"},
    "": VALUES | {"store", "graph", "runtime"},
}

# What whoever may use the first may use too: they are its outside.
OPEN: dict[str, set[str]] = {"store": {"store.bounds", "store.host", "store.keeper", "store.schemes"}}


def room_of(module: str) -> str:
    name = module.removeprefix("tenuto").removeprefix(".")
    return max((room for room in ROOMS if name == room or name.startswith(f"{room}.") or not room), key=len)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name == "tenuto" or name.startswith("tenuto.")}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_point_down() -> None:
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        room = room_of(module_of(path))
        allowed = ROOMS[room].union(*(OPEN.get(each, ()) for each in ROOMS[room]))
        for imported in imports_of(path):
            target = room_of(imported)
            if target != room and target not in allowed:
                wrong.append(f"{module_of(path)} imports {imported}")
    assert not wrong, "\n".join(wrong)


def test_folder_inits_are_empty_but_for_the_packages_own_and_the_contracts_guide() -> None:
    told = {SOURCE / "__init__.py", SOURCE / "errors" / "__init__.py", SOURCE / "testing" / "contract" / "__init__.py"}
    full = [str(path) for path in SOURCE.rglob("__init__.py") if path not in told and path.read_text().strip()]
    assert not full
