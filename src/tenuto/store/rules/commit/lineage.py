"""Branches and how they join into one history.

A lineage lists, oldest first, the stretches that lie before a branch.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.codec import encode, loads
from tenuto.errors import StoredDataCorrupt
from tenuto.model.session import LogEnd
from tenuto.store.rules.rows import BranchRow


class Segment(NamedTuple):
    """The entries of one branch from `start` up to, not including, `stop`."""

    session: int
    branch: int
    start: int
    stop: int


def segments(branch: BranchRow | None, end: LogEnd) -> list[Segment]:
    """Return the stretches that make up a log up to `end`, oldest first; damage is an error, never a shorter
    history.
    """
    if branch is None:
        raise StoredDataCorrupt(
            f"Branch {end.branch} of session row {end.session} is missing; restore it from a backup.", end=end
        )
    found: list[Segment] = []
    start = 0
    for session, number, upto in _steps(branch):
        if upto <= start or (session, number) == (branch.session, branch.branch):
            raise StoredDataCorrupt(f"The lineage of branch {branch.branch} is not in order.", end=end)
        found.append(Segment(session, number, start, upto))
        start = upto
    if start != branch.start:
        raise StoredDataCorrupt(f"The lineage of branch {branch.branch} ends at {start}, not {branch.start}.", end=end)
    found.append(Segment(branch.session, branch.branch, branch.start, max(end.position, branch.start)))
    return clip(found, 0, end.position)


def _steps(branch: BranchRow) -> list[tuple[int, int, int]]:
    what = f"The lineage of branch {branch.branch}"
    steps = loads(branch.lineage, what)
    if type(steps) is not list:
        raise StoredDataCorrupt(f"{what} is not a list.", what=what)
    for step in steps:
        if type(step) is not list or len(step) != 3 or not all(type(number) is int for number in step):
            raise StoredDataCorrupt(f"{what} has a step that is not three numbers: {step}.", what=what)
    return [(session, number, upto) for session, number, upto in steps]


def clip(parts: Sequence[Segment], start: int, stop: int) -> list[Segment]:
    """Return the part of the stretches between two positions."""
    cut = (s._replace(start=max(s.start, start), stop=min(s.stop, stop)) for s in parts)
    return [segment for segment in cut if segment.start < segment.stop]


def lineage_text(parts: Sequence[Segment]) -> str:
    """Return stretches as a branch row keeps them."""
    return encode([[s.session, s.branch, s.stop] for s in parts])


def new_branch(session: int, number: int, life: int, log: str, parts: Sequence[Segment]) -> BranchRow:
    """Return a branch that continues `parts`, which its row stores flattened."""
    return BranchRow(
        session=session,
        branch=number,
        life=life,
        log=log,
        start=parts[-1].stop if parts else 0,
        lineage=lineage_text(parts),
        shared=0,
        loose_from=None,
        loose_at=None,
    )
