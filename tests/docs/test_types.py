"""Every program of the documents passes the type checkers in their strict modes, as a reader's own code has to."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checkers import mypy, pyright
from tests.docs.pages import MODULES, Module, fences_of, modules_of, write

WRONG = modules_of(
    fences_of("docs/wrong.md", "# A page\n\n```python\nimport asyncio\n\nawait asyncio.sleep(0)\nn: int = ''\n```")
)
"""A page whose last line no checker accepts."""


def on_pages(found: Sequence[str], modules: Sequence[Module]) -> list[str]:
    """Name the page, whose lines are the file's. The folder is not compared: mypy names the one it saw first."""
    pages = {f"{module.name}.py": module.page for module in modules}
    return [re.sub(r"^.*?(\w+\.py)(?=:)", lambda file: pages.get(file[1], file[0]), line) for line in found]


@pytest.mark.long("mypy reads the package and every page")
def test_the_pages_pass_mypy(tmp_path: Path) -> None:
    found = mypy(write(tmp_path, MODULES), [tmp_path], cache="pages")
    assert not found, "\n".join(on_pages(found, MODULES))


@pytest.mark.wide
@pytest.mark.long("pyright keeps nothing between two runs, and reads the whole of what the pages import")
def test_the_pages_pass_pyright(tmp_path: Path) -> None:
    found = pyright(write(tmp_path, MODULES), [tmp_path], tmp_path)
    assert not found, "\n".join(on_pages(found, MODULES))


def test_what_mypy_finds_has_the_line_of_the_page(tmp_path: Path) -> None:
    (found,) = on_pages(mypy(write(tmp_path, WRONG), [tmp_path]), WRONG)
    assert found.startswith("docs/wrong.md:7: error: Incompatible types in assignment")


@pytest.mark.wide
def test_what_pyright_finds_has_the_line_of_the_page(tmp_path: Path) -> None:
    (found,) = on_pages(pyright(write(tmp_path, WRONG), [tmp_path], tmp_path), WRONG)
    assert found.startswith("docs/wrong.md:7: ")
    assert found.endswith("(reportAssignmentType)")
