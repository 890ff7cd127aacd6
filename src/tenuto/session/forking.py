"""Forking a session, and where it can be forked from and rewound to: as it was before a run, or before an action."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tenuto.errors import ForkPointNotRetained, InvalidHistory, InvalidInput
from tenuto.model.run import Checkpoint, Run
from tenuto.model.session import SessionKey
from tenuto.session.copy import Copy
from tenuto.session.history import History
from tenuto.session.value import MESSAGES
from tenuto.store.port import Store

Load: TypeAlias = Callable[[SessionKey], Awaitable[tuple[Copy, Run | None]]]
"""Loads a session and its last run, or says that there is none."""

_MANY = 1000
_NEAREST = 3


async def point_before(store: Store, key: SessionKey, to: str | int) -> Checkpoint:
    """Return the session as it was before a run, or at a checkpoint's commit."""
    if isinstance(to, str):
        run = await store.runs.get(to)
        point = await begin_point(store, run) if run is not None and run.key == key else None
    else:
        point = await store.checkpoints.get(key, to)
    if point is None:
        raise InvalidInput(f"{key} was not kept as it was at {to!r}; it cannot be rewound there.", to=to)
    return point


async def commit_after(store: Store, key: SessionKey, run_id: str) -> int | None:
    """Return the commit at which a session is kept as a run left it; None means that it still is as it left it."""
    run = await store.runs.get(run_id)
    if run is None or run.key != key:
        raise InvalidInput(f"{key} has no run {run_id!r} to fork at.", run_id=run_id)
    begun = await begin_point(store, run)
    following = next((r for r in await store.runs.of_session(key, limit=1, before=run.number + 2)), None)
    next_run = None
    if following is not None and following.number > run.number:
        next_run = await begin_point(store, following)
        if next_run is None:
            raise _not_kept(key, run_id)
    upto = None if next_run is None else next_run.commit_number + 1
    found = await store.checkpoints.of_session(key, limit=_MANY, before=upto)
    later = [point for point in found if _is_ours(point)]
    if begun is None:
        raise _not_kept(key, run_id)
    return min((point.commit_number for point in later if point.commit_number > begun.commit_number), default=None)


async def refuse_open(store: Store, key: SessionKey, at: int | None, history: History) -> InvalidHistory:
    """Return the refusal of a fork inside an open call; it names the nearest points that lie inside none."""
    points = [point for point in await store.checkpoints.of_session(key, limit=_MANY) if _is_ours(point)]
    if at is not None:
        points.sort(key=lambda point: abs(point.commit_number - at))
    nearest: list[int] = []
    for point in points:
        end = point.ends.get(MESSAGES)
        entries = [] if end is None else await store.logs.read(key, MESSAGES, end=end)
        if not History.of(entry.value for entry in entries).open:
            nearest.append(point.commit_number)
        if len(nearest) == _NEAREST:
            break
    call = next(iter(history.open))
    near = f"; forks can be made at {', '.join(map(str, nearest))}" if nearest else ""
    return InvalidHistory(
        f"{key} cannot be forked there: the call {call!r} has no result yet{near}.", call_id=call, nearest=nearest
    )


async def fork(store: Store, source: SessionKey, target: SessionKey, at: str | int | None, load: Load) -> Copy:
    """Begin a session with the state of another, now, after a run or at a checkpoint's commit; return what was loaded.

    Inside an open call nothing can be forked, and what was begun is deleted again.
    """
    commit = await commit_after(store, source, at) if isinstance(at, str) else at
    await store.fork(source, target, at=commit)
    copy, _ = await load(target)
    if copy.history.open:
        await store.delete(target)
        raise await refuse_open(store, source, commit, copy.history)
    return copy


async def begin_point(store: Store, run: Run) -> Checkpoint | None:
    """Return the session as it was before a run of the runtime; None means that the run is a graph's own."""
    point = await store.checkpoints.get(run.key, run.commit_number)
    return point if point is not None and _is_ours(point) else None


def _is_ours(point: Checkpoint) -> bool:
    """Tell whether a checkpoint is of the session before a commit, and not one of a graph within a run."""
    return point.run_id is None


def _not_kept(key: SessionKey, run_id: str) -> ForkPointNotRetained:
    return ForkPointNotRetained(f"{key} was not kept as the run {run_id} left it.", key=key, nearest=[])
