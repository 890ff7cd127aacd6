"""The documents are true: the examples of the README and the guides run, and so does the tour."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_example_runs_and_runs_again(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    assert run(["example.py"], tmp_path) == "['refund order 7', 'Paid.']\n"
    assert run(["example.py"], tmp_path) == "['refund order 7', 'Paid.', 'refund order 7', 'Paid.']\n"


async def examples_of(guide: str) -> tuple[dict[str, Any], int]:
    """Run a guide's examples one after the other; return the names they leave, and how many there were."""
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / guide).read_text(), re.DOTALL)
    for number, block in enumerate(blocks):
        made = compile(block, f"{guide}, example {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        ran = eval(made, names)
        if ran is not None:
            await ran
    return names, len(blocks)


@pytest.mark.parametrize(("guide", "made", "count"), [("graph.md", "orders.db", 4), ("sessions.md", "shop.db", 1)])
def test_a_guides_first_example_is_a_program(guide: str, made: str, count: int, tmp_path: Path) -> None:
    first, *others = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / guide).read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(f"{first}\n\nimport asyncio\nasyncio.run(main())\n")
    run(["example.py"], tmp_path)
    assert (tmp_path / made).exists()
    assert len(others) == count - 1


async def test_the_graph_guides_examples_run_one_after_the_other() -> None:
    _, count = await examples_of("graph.md")
    assert count == 4


async def test_the_runtime_guides_examples_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, count = await examples_of("runtime.md")
    await names["store"].aclose()
    assert count > 5
