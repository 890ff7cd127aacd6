"""Trials of the adapter: fixtures that hold, each with changes to its text that must make it fail.

The first document of a file in `trials` is the fixture. The second lists pairs of what the text says and what it says
instead: `fails` needs only that a problem is found; `names_the_unknown`, that a problem names the word that was put in.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.loader import Fixture
from tests.conformance.adapter.running import Report, run_fixture

FOLDER = Path(__file__).parent / "trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One file of `trials`."""

    name: str
    text: str
    fails: list[tuple[str, str]] = field(default_factory=list)
    names_the_unknown: list[tuple[str, str]] = field(default_factory=list)

    def changed(self, true: str, false: str) -> str:
        """Return the text with one place of it changed."""
        assert true in self.text
        return self.text.replace(true, false, 1)


def trial(name: str) -> Trial:
    """Return the trial of a folder and a file, such as `resumes/restarted`."""
    text, _, changes = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").partition("---\n")
    return Trial(name=name, text=text, **yaml.safe_load(changes))


def all_trials() -> list[Trial]:
    """Return every trial, in order of names."""
    return [trial(path.relative_to(FOLDER).with_suffix("").as_posix()) for path in sorted(FOLDER.rglob("*.yaml"))]


async def report_of(text: str, folder: Path, deviations: Sequence[tuple[str, str, Decision]] = ()) -> Report:
    """Run a text as a fixture that is expected to have these deviations, and return the report."""
    path = folder / "fixture.yaml"
    path.write_text(text)
    return await run_fixture(Fixture(path=path), deviations=deviations)
