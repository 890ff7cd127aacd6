"""The package's face is what `__all__` says, sorted, and documented."""

import types
from pathlib import Path

import tenuto


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
    docs = "".join(path.read_text() for path in [Path("README.md"), *Path("docs").glob("*.md")])
    missing = [name for name in tenuto.__all__ if f"`{name}" not in docs and name not in docs]
    assert not missing
