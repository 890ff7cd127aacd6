"""No test of the runtime, or of what stands on it, reaches into private parts but through `tests/runtime/seams.py`."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROOMS = ("chaos", "cli", "conformance", "crash", "cuts", "demos", "fuzz", "graph", "observe", "runtime", "writing")
SEAMS = "runtime/seams.py"
OF_PYTHON = {"_asdict", "_exit", "_fields", "_getframe", "_replace"}
KNOWN = {
    "chaos/bugs.py": {"guards._check_version"},  # a bug that is planted
    "crash/runtime_programs.py": {"ScriptedAgent._ask"},  # what a subclass overrides
}


def private_parts(text: str) -> Iterator[str]:
    """Yield what a file reaches into, but for an object's own parts, and those of what it is derived from."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Attribute) or node.attr in OF_PYTHON:
            continue
        if node.attr.startswith("_") and not node.attr.startswith("__"):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()"):
                yield f"{owner}.{node.attr}"


def test_private_parts_are_reached_in_one_place() -> None:
    files = {str(path.relative_to(TESTS)): path for room in ROOMS for path in (TESTS / room).rglob("*.py")}
    found = {name: set(private_parts(path.read_text())) for name, path in files.items() if name != SEAMS}
    assert {name: parts for name, parts in found.items() if parts} == KNOWN


def test_a_part_of_another_object_is_found() -> None:
    assert list(private_parts("runtime._runner.live\nself._own\nsuper()._own()\nrow._replace(a=1)")) == [
        "runtime._runner"
    ]
