"""The programs under `examples`: which there are, and how far each one is."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PLANNED = EXAMPLES / "planned"

NOWHERE = "No planned example was checked: there are no stubs in $TENUTO_FACE or in ../shared/face."


class Due(StrEnum):
    """Whether a program has to run."""

    RUNS = "runs"
    NOT_YET = "not yet due"


@dataclass(frozen=True, slots=True)
class Example:
    """One program, by the number under which the surface lists it."""

    number: int
    file: str
    due: Due

    @property
    def path(self) -> Path:
        """Where it is: beside the programs that run, or among the planned ones."""
        return (EXAMPLES if self.due is Due.RUNS else PLANNED) / self.file

    @property
    def test(self) -> Path:
        """The test that runs it."""
        return ROOT / "tests" / "examples" / f"test_{self.path.stem}.py"


RUNS, NOT_YET = Due.RUNS, Due.NOT_YET

LIST = [
    Example(1, "a_chat.py", RUNS),
    Example(2, "shop.py", NOT_YET),
    Example(3, "shop.py", RUNS),
    Example(3, "web.py", RUNS),
    Example(4, "typed.py", RUNS),
    Example(5, "article.py", RUNS),
    Example(6, "nightly.py", RUNS),
    Example(7, "tenants.py", RUNS),
    Example(8, "team.py", RUNS),
    Example(9, "steering.py", RUNS),
    Example(10, "flasky.py", RUNS),
    Example(11, "pydantic_agent.py", NOT_YET),
    Example(12, "ops.sh", NOT_YET),
]
"""One line for each file. A program that begins to run moves to `examples`, and its line says so."""


def stubs() -> Path | None:
    """Return the signatures that planned programs are written for.

    In $TENUTO_FACE, or beside the project; None if they are not there.
    """
    named = os.environ.get("TENUTO_FACE")
    root = (Path(named) if named else ROOT.parent / "shared" / "face") / "stubs"
    return root if root.is_dir() else None
