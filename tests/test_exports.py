"""The package's face is what `__all__` says, sorted, and documented."""

import re
import types
from pathlib import Path

import tenuto

ROOT = Path(__file__).parent.parent
UNDOCUMENTED: set[str] = set()
"""What is still to be said in the docs. A name is taken out of here once it is; none is added."""


def test_all_is_sorted_and_complete() -> None:
    public = {
        name
        for name, value in vars(tenuto).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    # Constants, then classes, then functions, each by name: the linter's order.
    assert tenuto.__all__ == sorted(tenuto.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert set(tenuto.__all__) == public


def test_every_public_name_is_in_the_docs() -> None:
    """Between backticks, and not only in a block of code, where nobody says what it is."""
    texts = [path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]]
    prose = "".join(re.sub(r"```.*?```", "", text, flags=re.DOTALL) for text in texts)
    said = "\n".join(re.findall(r"`([^`\n]+)`", prose))
    assert {name for name in tenuto.__all__ if not re.search(rf"\b{name}\b", said)} == UNDOCUMENTED
