"""Forks of a session, and the points that it can be forked from and rewound to: before a run, or before an action."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from tenuto.codec import JSON, dumps
from tenuto.errors import (
    ForkPointNotRetained,
    InvalidHistory,
    InvalidInput,
    OperationConflict,
    SessionExists,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import Receipt
from tenuto.model.input import InputKind, NewInput
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.runtime.conversation.history import History
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.invocation import start_point
from tenuto.runtime.turn.replica import Replica
from tenuto.store.bounds import check_key
from tenuto.store.store import Store

Load: TypeAlias = Callable[[SessionKey], Awaitable[tuple[Replica, Run | None]]]
"""Loads a session and its last run; raises `SessionNotFound` if there is no session."""

Admit: TypeAlias = Callable[[Replica, Checkpoint | None], None]
"""Refuses a source, as it is or as it was at a checkpoint, whose fork its program could not run."""

_PAGE = 10
_NEAREST = 3
_TRIES = 20
"""How often a fork is tried if its source changes between the read and the fork."""


async def point_before(store: Store, key: SessionKey, to: str | int) -> Checkpoint:
    """Return the checkpoint of a session before a run, or at a commit; `InvalidInput` if there is none."""
    if isinstance(to, str):
        run = await store.runs.get(to, tenant=key.tenant)
        point = await start_point(store, run) if run is not None and run.key == key else None
    else:
        point = await store.checkpoints.get(key, to)
    if point is None:
        raise InvalidInput(f"{key} has no checkpoint at {to!r}, so it cannot be rewound there.", to=to)
    return point


async def commit_after(store: Store, key: SessionKey, run_id: str) -> int | None:
    """Return the commit whose checkpoint has a session as a run left it; None if it has not changed since."""
    run = await store.runs.get(run_id, tenant=key.tenant)
    if run is None or run.key != key:
        raise InvalidInput(f"{key} has no run {run_id!r} to fork at.", run_id=run_id)
    begun = await start_point(store, run)
    following = next((r for r in await store.runs.of_session(key, limit=1, before=run.number + 2)), None)
    if begun is None:
        raise _not_kept(key, run_id)
    if following is not None and following.number > run.number and await start_point(store, following) is None:
        raise _not_kept(key, run_id)
    later = await store.checkpoints.points(key, after=begun.commit_number, limit=1)
    return later[0].commit_number if later else None


async def refuse_open(store: Store, replica: Replica, at: int | None, history: History) -> InvalidHistory:
    """Return the refusal of a fork inside an open call; it names the nearest points that can be forked."""
    nearest: list[int] = []
    async for point in _around(store, replica.key, replica.commit_number if at is None else at):
        if not (await _history_at(store, replica, point)).open:
            nearest.append(point.commit_number)
        if len(nearest) == _NEAREST:
            break
    call = next(iter(history.open))
    near = f"; fork it at {', '.join(map(str, nearest))} instead" if nearest else ""
    return InvalidHistory(
        f"{replica.key} cannot be forked there: call {call!r} has no result yet{near}.", call_id=call, nearest=nearest
    )


async def _around(store: Store, key: SessionKey, at: int) -> AsyncIterator[Checkpoint]:
    """Yield a session's own checkpoints, the nearest to a commit first, reading a page of each side at a time."""
    older = await store.checkpoints.points(key, before=at + 1, limit=_PAGE)
    newer = await store.checkpoints.points(key, after=at, limit=_PAGE)
    while older or newer:
        if newer and (not older or newer[0].commit_number - at < at - older[0].commit_number):
            point = newer.pop(0)
            newer = newer or await store.checkpoints.points(key, after=point.commit_number, limit=_PAGE)
        else:
            point = older.pop(0)
            older = older or await store.checkpoints.points(key, before=point.commit_number, limit=_PAGE)
        yield point


async def _history_at(store: Store, replica: Replica, point: Checkpoint) -> History:
    end = point.ends.get(MESSAGES) if replica.is_conversation else None
    entries = [] if end is None else await store.logs.read(replica.key, MESSAGES, end=end)
    return History.of(entry.value for entry in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFork:
    """A request to fork a session; see `SessionRuntime.fork`.

    With a key it is one operation, identified by the key and the request; a minted id is derived from the key.
    """

    source: SessionKey
    at: str | int | None
    target: SessionKey | None
    message: JSON
    key: str | None

    def __post_init__(self) -> None:
        if self.key is not None:
            check_key(self.key)

    def begins(self) -> SessionKey:
        """Return the key of the fork."""
        if self.target is not None:
            return self.target
        if self.key is None:
            return SessionKey(new_id(), tenant=self.source.tenant)
        return SessionKey(_digest(self.source.tenant, self.source.session_id, self.key), tenant=self.source.tenant)

    def operation_id(self) -> str | None:
        """Return the id of the operation; None means that the request cannot be repeated."""
        return None if self.key is None else f"fork:{_digest(self.key, dumps(self.at), dumps(self.message))}"

    def first(self) -> NewInput | None:
        """Return the input with the fork's first message; None if there is none."""
        if self.message is None:
            return None
        return NewInput(kind=InputKind.MESSAGE, body={"message": self.message}, key=self.key)


async def fork(store: Store, new: NewFork, target: SessionKey, load: Load, admit: Admit) -> Receipt:
    """Create a session from another's state, the current one, after a run, or at a checkpoint, in one transaction.

    The source is checked before anything is written: inside an open call nothing can be forked, and `admit` refuses a
    source whose program does not accept the first message, or the state. If the source changed meanwhile, it is checked
    again.
    """
    operation_id = new.operation_id()
    if operation_id is not None and (known := await store.receipt(target, operation_id)) is not None:
        return known
    for attempt in range(1, _TRIES + 1):
        replica, _ = await load(new.source)
        at = await commit_after(store, new.source, new.at) if isinstance(new.at, str) else new.at
        point = None if at is None else await store.checkpoints.get(new.source, at)
        history = replica.history if point is None else await _history_at(store, replica, point)
        if history.open and (at is None or point is not None):
            raise await refuse_open(store, replica, at, history)
        if at is None or point is not None:
            admit(replica, point)
        try:
            return await store.fork(
                new.source,
                target,
                at=at,
                expected_commit=replica.commit_number if at is None else None,
                first=new.first(),
                operation_id=operation_id,
            )
        except VersionConflict:
            if attempt == _TRIES:
                raise
        except SessionExists as error:
            if new.key is None or new.target is not None:
                raise
            raise OperationConflict(
                f"The key {new.key!r} was already used for another fork of {new.source}; use a different key.",
                operation_id=new.key,
            ) from error
    raise AssertionError("unreachable")


def _not_kept(key: SessionKey, run_id: str) -> ForkPointNotRetained:
    return ForkPointNotRetained(f"{key} has no checkpoint of its state after run {run_id}.", key=key, nearest=[])


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:32]
