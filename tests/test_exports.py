"""A face is what its `__all__` says, sorted, and documented."""

import re
import types
from pathlib import Path

import pytest

import tenuto
import tenuto.graph
import tenuto.graph.middleware
import tenuto.messages
import tenuto.testing

ROOT = Path(__file__).parent.parent
FACES = [tenuto, tenuto.graph, tenuto.graph.middleware, tenuto.messages, tenuto.testing]
UNDOCUMENTED: set[str] = set()
"""What is still to be said in the docs. A name is taken out of here once it is; none is added."""

faces = pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)


@faces
def test_all_is_sorted_and_complete(face: types.ModuleType) -> None:
    public = {
        name
        for name, value in vars(face).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    # Constants, then classes, then functions, each by name: the linter's order.
    assert face.__all__ == sorted(face.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert set(face.__all__) == public


@faces
def test_every_public_name_is_in_the_docs(face: types.ModuleType) -> None:
    """Between backticks, and not only in a block of code, where nobody says what it is."""
    texts = [path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    prose = "".join(re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in texts)
    said = "\n".join(re.findall(r"`([^`\n]+)`", prose))
    lacking = {name for name in face.__all__ if not re.search(rf"\b{name}\b", said)}
    assert lacking == (UNDOCUMENTED if face is tenuto else set())
