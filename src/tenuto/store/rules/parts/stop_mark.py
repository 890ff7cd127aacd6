"""The stop on a run, as a commit of that run meets it."""

from tenuto.codec import encode, loads_map
from tenuto.errors import StopRequested, StopWithdrawn
from tenuto.model.commit import Commit
from tenuto.model.run import RunStatus
from tenuto.store.rules.records import stop_of
from tenuto.store.rules.rows import RunRow

_REFUSES = frozenset({RunStatus.COMPLETED, RunStatus.SUSPENDED})
"""The ends that would leave a stop unheard."""


def check_stop(commit: Commit, run: RunRow | None) -> None:
    """Refuse an end that passes over a recorded stop, and a commit that acts on one that was withdrawn."""
    stop = run.stop if run else None
    if stop is None:
        if commit.sees_stop:
            raise StopWithdrawn(f"The stop of this run of {commit.key} was withdrawn; continue.", key=commit.key)
        return
    if run and commit.end and commit.end.status in _REFUSES:
        known = stop_of(run.stop, f"run {run.run_id} stop")
        raise StopRequested(
            f"Run {run.run_id} of {commit.key} was asked to stop; it cannot end as {commit.end.status}.",
            key=commit.key,
            run_id=run.run_id,
            stop=known,
        )


def seen(stop: str, now: int) -> str:
    """Return a stop's text with the mark that the run has seen it; the first time counts."""
    values = loads_map(stop, "stop")
    return stop if values.get("seen_at") is not None else encode(values | {"seen_at": now})
