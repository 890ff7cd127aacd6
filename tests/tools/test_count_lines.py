"""The count of a program's lines is the same for everybody: no blank ones, no imports."""

from pathlib import Path

import pytest
from tools.count_lines import count_lines, main

PROGRAM = '''"""A program.

Of two paragraphs.
"""

import os
from collections.abc import (
    Iterable,
    Mapping,
)

# a comment
TEXT = """one

import this
"""


def late(names: Iterable[str]) -> Mapping[str, str]:
    from pathlib import Path; path = Path("x")
    return {name: os.fspath(path) for name in names}
'''


def test_blank_lines_and_imports_are_not_counted_and_all_else_is() -> None:
    assert count_lines(PROGRAM) == 3 + 1 + 3 + 3


def test_nothing_is_no_line() -> None:
    assert count_lines("") == 0
    assert count_lines("\n   \n\t\nimport os\n") == 0


def test_each_file_is_printed_with_its_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.py").write_text("a = 1\n\nb = 2\n")
    (tmp_path / "two.py").write_text("import os\n")
    main([f"{tmp_path}/one.py", f"{tmp_path}/two.py"])
    assert capsys.readouterr().out == f"    2  {tmp_path}/one.py\n    0  {tmp_path}/two.py\n"
