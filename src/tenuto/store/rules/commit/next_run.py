"""A next run as part of the commit that ends the one before it: whether it makes sense, and what it means."""

from typing import Any, NamedTuple

from tenuto.errors import InvalidInput
from tenuto.model.commit import Commit, NextRun
from tenuto.model.run import RunRef, RunStatus
from tenuto.store.rules.parts.input_rules import check_claim
from tenuto.store.rules.plan import Found
from tenuto.store.rules.rows import SessionRow


class PackedNext(NamedTuple):
    """The texts of a next run: its input's entry, the cursor of the point before it, its events."""

    item: str
    cursor: str | None
    events: str | None


def check_next(commit: Commit, following: NextRun) -> None:
    """Refuse a next run that does not go with the commit that ends the one before it."""
    begin = following.begin
    if not isinstance(commit.run, RunRef) or commit.end is None or commit.end.status == RunStatus.SUSPENDED:
        raise InvalidInput("A next run follows on one that this commit ends: name that one, and its end.")
    if commit.generation is None or commit.disarm or not commit.save or commit.checkpoint:
        raise InvalidInput(
            "A next run goes on under the lane, from the head: it needs the generation and save=True, and goes with "
            "neither disarm nor a checkpoint."
        )
    if not begin.fresh or begin.ends is not None or begin.base_ends is not None or begin.run_id == commit.run.run_id:
        raise InvalidInput("A next run is a new one and begins at the head.")
    if "/" in following.log or following.log in commit.document or following.log in commit.removed:
        raise InvalidInput(f"{following.log!r} is no log of the session that a next run could begin in.")
    if any(claim.input_id == following.input_id for claim in commit.consume):
        raise InvalidInput(f"The input {following.input_id!r} is consumed by the run that ends.")


def next_meaning(following: NextRun, packed: PackedNext) -> list[Any]:
    """Return what counts for the intent hash."""
    begin = following.begin
    ids = [begin.run_id, begin.invocation_id, begin.origin_id, begin.correlation_id]
    return ["next_run", ids, following.input_id, following.log, *packed]


def check_next_claim(following: NextRun, commit: Commit, row: SessionRow, found: Found) -> None:
    """Refuse input that is not open to any run."""
    if found.inputs is not None:
        check_claim(commit.key, following.input_id, following.begin.run_id, row, found.inputs)
