"""Count what a program makes its author write: `python -m tools.count_lines FILE...`.

Counted are the lines that are neither blank nor part of an import, docstrings and comments included.
"""

import ast
import sys
from collections.abc import Sequence
from pathlib import Path


def count_lines(text: str) -> int:
    """Return how many lines of a Python file are neither blank nor part of an import."""
    imported, others = set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            lines = imported if isinstance(node, ast.Import | ast.ImportFrom) else others
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    left_out = imported - others
    return sum(bool(line.strip()) and number not in left_out for number, line in enumerate(text.splitlines(), 1))


def main(arguments: Sequence[str]) -> None:
    """Print the count of each file."""
    for path in map(Path, arguments):
        print(f"{count_lines(path.read_text()):5}  {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
