"""Waiting for a session's lane: in order of arrival within a process, by polling between processes."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any
from weakref import WeakKeyDictionary

from tenuto.errors import LaneBusy, LaneLost, StoreContended, StoreError, StoreUnavailable, TenutoError
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.lane import Lane, Owner
from tenuto.model.session import SessionKey
from tenuto.store.host import this_process
from tenuto.store.store import Store

DEFAULT_LANE_WAIT = 30.0
"""How long a turn waits for its session's lane, in seconds."""

_FIRST_POLL = 0.005
_LONGEST_POLL = 0.1

_Line = tuple[asyncio.AbstractEventLoop, SessionKey]
_lines: "WeakKeyDictionary[Store, dict[_Line, tuple[asyncio.Lock, int]]]" = WeakKeyDictionary()


@cache
def _process(pid: int) -> Owner:
    return Owner(owner_id=f"{socket.gethostname()}:{pid}", incarnation=new_id(), host=this_process())


def this_owner(name: str | None = None) -> Owner:
    """Return the owner as which this process takes lanes, perhaps by a given name; a forked child is another owner."""
    owner = _process(os.getpid())
    return owner if name is None else replace(owner, owner_id=name)


@asynccontextmanager
async def in_line(store: Store, key: SessionKey, deadline: float) -> AsyncIterator[None]:
    """Queue behind the other tasks of this process that want the session: first come, first served.

    At the deadline, on the loop's clock, it stops waiting and enters; acquiring the lane then raises `LaneBusy` if it
    is still held.
    """
    lines = _lines.setdefault(store, {})
    place = (asyncio.get_running_loop(), key)
    lock, users = lines.get(place, (asyncio.Lock(), 0))
    lines[place] = (lock, users + 1)
    mine = False
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                mine = await lock.acquire()
        yield
    finally:
        if mine:
            lock.release()
        lock, users = lines[place]
        if users == 1:
            del lines[place]
        else:
            lines[place] = (lock, users - 1)


async def ask_for_lane(
    store: Store, key: SessionKey, owner: Owner, nonce: str, *, life: int | None = None, alive: bool = False
) -> Lane:
    """Try to acquire the lane once; `LaneBusy` if another owner holds it.

    A grant whose reply was lost is asked for again under the same nonce, and one whose caller was cancelled is freed,
    so that neither has to lapse. With `alive`, an id without a session raises `SessionNotFound`.
    """
    ask = partial(store.lanes.acquire, key, owner, nonce=nonce, ttl=store.keeper.ttl, life=life, alive=alive)
    try:
        return await ask()
    except StoreError as error:
        if not error.retryable:
            raise
        return await ask()  # the same nonce returns a lane that was granted
    except asyncio.CancelledError:
        with suppress(TenutoError):
            await store.lanes.disarm(await ask())
        raise


async def take_lane(
    store: Store,
    key: SessionKey,
    *,
    deadline: float,
    life: int | None = None,
    alive: bool = False,
    owner: Owner | None = None,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> Lane:
    """Acquire the lane, polling until the loop's clock reaches the deadline; then `LaneBusy` names the holder.

    A silent holder is displaced one poll after its TTL at the latest, one that is proven gone at once. `meanwhile` is
    called before each further poll and may abandon the attempt by raising. `alive` is as for `ask_for_lane`.
    """
    clock = asyncio.get_running_loop().time
    nonce, pause = new_id(), _FIRST_POLL
    while True:
        try:
            return await ask_for_lane(store, key, owner or this_owner(), nonce, life=life, alive=alive)
        except LaneBusy:
            left = deadline - clock()
            if left <= 0:
                raise
            if meanwhile is not None:
                await meanwhile()
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_POLL)


def under(lane: Lane, **parts: Any) -> Commit:
    """Return a separate commit under a lane, which is not part of a turn."""
    return Commit(key=lane.key, operation_id=new_id(), life=lane.life, generation=lane.generation, **parts)


async def free_lane(store: Store, lane: Lane) -> None:
    """Free a lane that is no longer needed; one that cannot be freed lapses by itself."""
    with suppress(TenutoError):
        await store.lanes.disarm(lane)


@asynccontextmanager
async def freed_on_error(store: Store, lane: Lane) -> AsyncIterator[None]:
    """Free the lane if the work under it fails, so that the next runner need not wait until it lapses."""
    try:
        yield
    except BaseException:
        await free_lane(store, lane)
        raise


def lane_lost(key: SessionKey, lane: Lane | None, cause: Exception | None) -> TenutoError:
    """Return the error of a run that lost its lease: another runner took over, or, with a `cause`, the store failed."""
    if cause is None:
        return LaneLost(
            f"Another runner took over {key}; this turn was stopped and cannot write any more.",
            key=key,
            expected=lane.generation if lane else None,
            found=None,
        )
    kind = StoreContended if isinstance(cause, StoreContended) else StoreUnavailable
    why = str(cause) or "The store did not answer in time."
    lost = kind(
        f"The lease of {key} could not be renewed; this turn was stopped and cannot write any more. {why}", key=key
    )
    lost.__cause__ = cause
    return lost
