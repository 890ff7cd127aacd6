"""No test asks again and again without a limit, but for the few loops named here with what ends them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

ENDED_BY = {
    "its caller, which cancels it, or kills its process": {
        "chaos/process.py:_lose_replies",
        "chaos/process.py:_serve",
        "chaos/reader.py:_read",
        "chaos/sampler.py:sample",
        "crash/test_postgres_restart.py:_until_landed",
        "crash/workers.py:add_through_lives",
    },
    "a limit that is part of its condition": {"chaos/closing.py:drain"},
}


def polls(path: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield the loops of a file that sleep and have no limit: the function each is in, and its condition."""
    yield from _in(ast.parse(text), path.name if not path.is_absolute() else str(path.relative_to(TESTS)), "", False)


def _in(node: ast.AST, file: str, function: str, limited: bool) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        inside, name = limited, function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inside, name = False, child.name
        elif isinstance(child, ast.With | ast.AsyncWith):
            inside = limited or any("timeout" in ast.unparse(item.context_expr) for item in child.items)
        elif isinstance(child, ast.While) and not limited and _sleeps(child) and not _looks_at_the_time(child.test):
            yield f"{file}:{name}", ast.unparse(child.test)
        yield from _in(child, file, name, inside)


def _sleeps(loop: ast.While) -> bool:
    calls = [ast.unparse(each.func) for each in ast.walk(loop) if isinstance(each, ast.Call)]
    return any(call.rpartition(".")[2] == "sleep" for call in calls)


def _looks_at_the_time(condition: ast.expr) -> bool:
    calls = [ast.unparse(each.func) for each in ast.walk(condition) if isinstance(each, ast.Call)]
    return any(call.rpartition(".")[2] in ("time", "monotonic") for call in calls)


def test_every_poll_has_a_limit() -> None:
    found = {poll for path in sorted(TESTS.rglob("*.py")) for poll in polls(path, path.read_text())}
    named = set().union(*ENDED_BY.values())
    assert not {place: condition for place, condition in found if place not in named}
    assert not named - {place for place, _ in found}, "these are named, and have a limit or are gone"


@pytest.mark.parametrize(
    "loop",
    [
        "while not done():\n        await asyncio.sleep(0)",
        "while True:\n        time.sleep(1)",
        "async with other():\n        while x < 2:\n            await sleep(0.1)",
    ],
)
def test_a_poll_without_a_limit_is_found(loop: str) -> None:
    assert [place for place, _ in polls(Path("a.py"), f"async def f():\n    {loop}\n")] == ["a.py:f"]


@pytest.mark.parametrize(
    "loop",
    [
        "async with asyncio.timeout(5):\n        while not done():\n            await asyncio.sleep(0)",
        "while time.monotonic() < end:\n        time.sleep(1)",
        "while rows:\n        rows.pop()",
    ],
)
def test_a_poll_with_a_limit_is_none(loop: str) -> None:
    assert not list(polls(Path("a.py"), f"async def f():\n    {loop}\n"))
