"""What a docstring says about a function and its parameters, in Google style."""

import inspect
import re
from itertools import pairwise
from typing import NamedTuple

_HEADER = re.compile(r"^([A-Z][A-Za-z ]{2,30}):\s*$")
_PARAMETERS = frozenset({"Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments"})
_SECTIONS = _PARAMETERS | {
    *("Attributes", "Example", "Examples", "Note", "Notes", "Raises", "References", "Return", "Returns", "See Also"),
    *("Todo", "Warning", "Warnings", "Warns", "Yield", "Yields"),
}
_ENTRY = re.compile(r"^(\s+)(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")


class Docstring(NamedTuple):
    """The text before the first section, and what the section on parameters says about each."""

    description: str
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Return the parts of a docstring; anything that does not look like a section belongs to the part before it."""
    lines = inspect.cleandoc(text or "").splitlines()
    starts = [at for at, line in enumerate(lines) if _section(line) is not None] + [len(lines)]
    parameters: dict[str, str] = {}
    for start, end in pairwise(starts):
        if _section(lines[start]) in _PARAMETERS:
            parameters |= _entries(lines[start + 1 : end])
    return Docstring("\n".join(lines[: starts[0]]).strip(), parameters)


def _section(line: str) -> str | None:
    found = _HEADER.match(line)
    return found[1] if found and found[1] in _SECTIONS else None


def _entries(lines: list[str]) -> dict[str, str]:
    """Return the entries of a section: each begins at the indent of the first, and deeper lines continue it."""
    found: dict[str, list[str]] = {}
    indent, name = None, None
    for line in lines:
        entry = _ENTRY.match(line)
        if entry is not None and indent in (None, len(entry[1])):
            indent, name = len(entry[1]), entry[2]
            found[name] = [entry[3]]
        elif name is not None:
            found[name].append(line.strip())
    return {name: " ".join(filter(None, said)) for name, said in found.items()}
