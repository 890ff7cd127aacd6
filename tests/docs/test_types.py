"""Every program of the documents passes the type checkers in their strict modes, as a reader's own code has to."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests.checkers import mypy
from tests.docs.pages import MODULES, Module, fences_of, modules_of, write

WRONG = modules_of(
    fences_of("docs/wrong.md", "# A page\n\n```python\nimport asyncio\n\nawait asyncio.sleep(0)\nn: int = ''\n```")
)
"""A page whose last line no checker accepts."""


def on_pages(found: Sequence[str], modules: Sequence[Module]) -> list[str]:
    """Name the page, whose lines are the file's. The folder is not compared: mypy names the one it saw first."""
    pages = {f"{module.name}.py": module.page for module in modules}
    return [re.sub(r"^.*?(\w+\.py)(?=:)", lambda file: pages.get(file[1], file[0]), line) for line in found]


def test_the_pages_pass_mypy(tmp_path: Path) -> None:
    found = mypy(write(tmp_path, MODULES), [tmp_path], cache="pages")
    assert not found, "\n".join(on_pages(found, MODULES))
