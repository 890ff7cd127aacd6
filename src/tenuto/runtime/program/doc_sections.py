"""What a docstring says about a function and its parameters, in the style of Google, NumPy or Sphinx."""

import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

_PARAMETERS = frozenset({"Args", "Arguments", "Parameters", "Params", "Keyword Args", "Keyword Arguments"})
_SECTIONS = _PARAMETERS | {
    *("Attributes", "Example", "Examples", "Note", "Notes", "Other Parameters", "Raises", "References", "Return"),
    *("Returns", "See Also", "Todo", "Warning", "Warnings", "Warns", "Yield", "Yields"),
}
_FIELDS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_OTHER_FIELDS = frozenset({"meta", "raise", "raises", "return", "returns", "rtype", "type", "yield", "yields"})

_GOOGLE_HEADER = re.compile(r"^([A-Z][A-Za-z ]{2,30}):\s*$")
_GOOGLE_ENTRY = re.compile(r"^(\s*)\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*))?:\s*(.*)$")


class Docstring(NamedTuple):
    """The text before the first section, and what is said about each parameter."""

    description: str
    parameters: Mapping[str, str]


class _Style(NamedTuple):
    """What is found in one style: the line where it begins, if anywhere, and the parameters."""

    begins: int
    parameters: dict[str, str]


def read_docstring(text: str | None) -> Docstring:
    """Return the parts of a docstring; anything that does not look like a section belongs to the part before it."""
    lines = inspect.cleandoc(text or "").splitlines()
    styles = (_google(lines), _numpy(lines), _sphinx(lines))
    parameters = {name: said for style in styles for name, said in style.parameters.items()}
    return Docstring("\n".join(lines[: min(style.begins for style in styles)]).strip(), parameters)


def _google(lines: Sequence[str]) -> _Style:
    """Read `Args:`, with entries `name (type): text`, each at the indent of the first; deeper lines continue one."""
    starts = [at for at, line in enumerate(lines) if (found := _GOOGLE_HEADER.match(line)) and found[1] in _SECTIONS]
    said: dict[str, list[str]] = {}
    for start, end in pairwise([*starts, len(lines)]):
        if lines[start].strip().removesuffix(":") not in _PARAMETERS:
            continue
        indent, name = None, None
        for line in lines[start + 1 : end]:
            entry = _GOOGLE_ENTRY.match(line)
            if entry is not None and indent in (None, len(entry[1])):
                indent, name = len(entry[1]), entry[2]
                said[name] = [entry[3]]
            elif name is not None:
                said[name].append(line)
    return _Style(starts[0] if starts else len(lines), _joined(said))


def _numpy(lines: Sequence[str]) -> _Style:
    """Read `Parameters` underlined, with entries `name : type` at the margin and their text below, further in."""
    starts = [
        at
        for at, (line, below) in enumerate(pairwise(lines))
        if line in _SECTIONS and len(below) >= 3 and set(below) == {"-"}
    ]
    said: dict[str, list[str]] = {}
    for start, end in pairwise([*starts, len(lines)]):
        names: list[str] = []
        for line in lines[start + 2 : end] if lines[start] in _PARAMETERS else ():
            entry = _NUMPY_ENTRY.match(line)
            if entry is not None:
                names = [each.strip() for each in entry[1].split(",")]
                said.update((name, []) for name in names)
            elif line.startswith(" "):
                for name in names:
                    said[name].append(line)
    return _Style(starts[0] if starts else len(lines), _joined(said))


def _sphinx(lines: Sequence[str]) -> _Style:
    """Read `:param type name: text`; lines that are further in continue it."""
    begins, said = len(lines), dict[str, list[str]]()
    name: str | None = None
    for at, line in enumerate(lines):
        field = _SPHINX_FIELD.match(line)
        if field is not None and field[1] in _FIELDS | _OTHER_FIELDS:
            begins = min(begins, at)
            words = (field[2] or "").split()
            name = words[-1] if field[1] in _FIELDS and words else None
            if name is not None:
                said[name] = [field[3]]
        elif name is not None and line.startswith(" "):
            said[name].append(line)
        elif line.strip():
            name = None
    return _Style(begins, _joined(said))


def _joined(said: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: " ".join(line.strip() for line in lines if line.strip()) for name, lines in said.items()}
