"""Imports point down only (docs/architecture.md)."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "tenuto"

# A module may import from its own room and from those named for it.
VALUES = {
    *("argument", "clock", "codec", "errors", "ids", "messages", "migration", "model", "plain_data", "quote", "words")
}
GRAPH_VALUES = {"graph.graph_end", "graph.reducers", "graph.state", "graph.signal", "graph.warnings"}
GRAPH_STATE = VALUES | GRAPH_VALUES | {"writing", "store", "graph.session", "graph.checkpoint"}
GRAPH_RUN = GRAPH_STATE | {
    *("graph.engine.scope", "graph.engine.cause", "graph.engine.thread_call", "graph.events", "graph.engine")
}
GRAPH: dict[str, set[str]] = {
    "graph.graph_end": set(),
    "graph.reducers": VALUES,
    "graph.state": VALUES | {"graph.reducers"},
    "graph.signal": VALUES,
    "graph.warnings": set(),
    "graph.graph_outcome": VALUES | {"graph.state", "graph.signal"},
    "graph.engine.thread_call": VALUES,
    "graph.engine.scope": VALUES | {"graph.engine.thread_call"},
    "graph.engine.cause": VALUES,
    "graph.events": VALUES | {"graph.signal", "graph.engine.scope", "graph.engine.cause"},
    "graph.session": VALUES | GRAPH_VALUES | {"writing", "store"},
    "graph.checkpoint": VALUES | GRAPH_VALUES | {"writing", "store", "graph.engine.scope", "graph.session"},
    "graph.engine": GRAPH_STATE
    | {"graph.engine.scope", "graph.engine.cause", "graph.engine.thread_call", "graph.events"},
    "graph.invocation": GRAPH_RUN | {"graph.graph_outcome"},
    "graph.nodes": GRAPH_RUN,
    "graph.middleware": GRAPH_RUN,
    "graph.mermaid": GRAPH_RUN | {"graph.nodes"},
    "graph.runtime": GRAPH_RUN | {"graph.invocation", "runtime"},
    "graph.compiled_graph": GRAPH_RUN | {"graph.graph_outcome", "graph.invocation", "graph.mermaid", "graph.runtime"},
    "graph.blueprint": GRAPH_RUN | {"graph.nodes", "graph.middleware", "graph.compiled_graph"},
}
GRAPH["graph"] = set(GRAPH)
"""The graph's rooms, each above those it may use; only `graph.runtime` meets the runtime."""

RULES = {"store.rules", "store.rules.parts", "store.rules.commit", "store.rules.verbs"}
BACKENDS = {"store.backends", "store.backends.sqlite", "store.backends.postgres"}
STORE = {
    *("store.backend", "store.store_context", "store.host", "store.facets", "store.housekeeping", "store.keeper"),
    *("store.bounds", "store.schemes"),
}
RUNTIME = [
    *("runtime.session", "runtime.conversation", "runtime.stream", "runtime.turn", "runtime.calls"),
    *("runtime.program", "runtime.change", "runtime.run", "runtime.tree", "runtime.queue"),
]
"""The runtime's rooms, from the lowest up; each may use all below it."""

ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "clock": set(),
    "quote": set(),
    "argument": {"errors", "quote"},
    "ids": {"errors", "quote"},
    "codec": {"errors", "quote"},
    "migration": {"errors"},
    "plain_data": {"codec", "errors"},
    "words": set(),
    "messages": {"argument", "codec", "errors", "quote", "words"},
    "model": {"argument", "clock", "codec", "errors", "ids", "quote"},
    "store.rules": VALUES,
    "store.rules.parts": VALUES | {"store.rules"},
    "store.rules.commit": VALUES | {"store.rules.parts", "store.rules"},
    "store.rules.verbs": VALUES | RULES - {"store.rules.verbs"},
    "store.backend": VALUES | {"store.rules"},
    "store.backends": VALUES | {"store.backend", "store.rules"},
    "store.backends.sqlite": VALUES | {"store.backends", "store.backend", "store.rules"},
    "store.backends.postgres": VALUES | {"store.backends", "store.backend", "store.rules"},
    "store.store_context": VALUES | {"store.backend", "store.rules"},
    "store.host": VALUES,
    "store.facets": VALUES | RULES | {"store.backend", "store.store_context", "store.host"},
    "store.housekeeping": VALUES | RULES | {"store.backend", "store.store_context", "store.facets"},
    "store.keeper": VALUES | {"store.backends", "store.facets"},
    "store.bounds": VALUES | RULES,
    "store.schemes": VALUES | BACKENDS | {"store.backend"},
    "store": VALUES | RULES | BACKENDS | STORE,
    "writing": VALUES | {"store"},
    **{room: VALUES | {"writing", "store", *RUNTIME[:at]} for at, room in enumerate(RUNTIME)},
    "runtime": VALUES | {"writing", "store", *RUNTIME},
    **GRAPH,
    "observe": VALUES
    | GRAPH_VALUES
    | {"graph.engine.scope", "graph.engine.cause", "graph.events", "runtime.stream", "writing"},
    "testing": VALUES | {"runtime", "store", "store.facets", "store.rules", "store.backend", "store.backends"},
    "states": VALUES | GRAPH.keys() | {"runtime", "store", "writing"},
    "cli": VALUES | GRAPH.keys() | {"runtime", "states", "store"},
    "": VALUES | GRAPH.keys() | {"store", "runtime", "cli"},
}

# What whoever may use the first may use too: they are its outside.
OPEN: dict[str, set[str]] = {
    "store": {"store.bounds", "store.host", "store.keeper", "store.schemes"},
    "runtime": set(RUNTIME),
}


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


def test_the_rooms_are_in_a_strict_order() -> None:
    order = list(ROOMS)
    wrong = [
        f"{room} is not above {used}"
        for room, uses in ROOMS.items()
        for used in uses
        if order.index(used) >= order.index(room)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_module_has_at_most_400_lines() -> None:
    """Besides the contract, and what a program writes."""
    contract, written = SOURCE / "testing" / "contract", SOURCE / "runtime" / "blocking_face.py"
    long = {
        str(path.relative_to(SOURCE)): count
        for path in SOURCE.rglob("*.py")
        if contract not in path.parents and path != written and (count := len(path.read_text().splitlines())) > 400
    }
    assert not long


def test_a_room_has_2_to_14_files() -> None:
    rooms = {path.parent for path in SOURCE.rglob("*.py")} - {SOURCE, SOURCE / "testing" / "contract"}
    counts = {
        str(room.relative_to(SOURCE)): len([path for path in room.glob("*.py") if path.name != "__init__.py"])
        for room in rooms
    }
    assert not {room: count for room, count in counts.items() if not 2 <= count <= 14}


FACES = {SOURCE / place / "__init__.py" for place in ("", "graph", "graph/middleware", "messages", "testing")}
"""What applications import from. A face only re-exports: a module inside imports from where a name is defined."""


def test_folder_inits_are_empty_but_for_the_faces_and_the_contracts_guide() -> None:
    told = {*FACES, SOURCE / "errors" / "__init__.py", SOURCE / "testing" / "contract" / "__init__.py"}
    full = [str(path) for path in SOURCE.rglob("__init__.py") if path not in told and path.read_text().strip()]
    assert not full


def test_a_face_only_reexports() -> None:
    for face in FACES:
        first, *rest = ast.parse(face.read_text()).body
        assert isinstance(first, ast.Expr), face
        assert all(isinstance(each, ast.ImportFrom | ast.Assign) for each in rest), face
