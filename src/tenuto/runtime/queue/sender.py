"""Messages as they arrive: each begins its turn, or is rejected or queued, and its sender waits for the outcome.

Within a process, messages begin their turns, or are queued, in order of arrival.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tenuto.codec import JSON
from tenuto.errors import (
    LaneBusy,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionDeleted,
    StatusRefused,
    StoreError,
    TenutoError,
    VersionConflict,
)
from tenuto.model.input import Cancelled, Input, InputKind, InputStatus, NewInput
from tenuto.model.session import SessionKey
from tenuto.runtime.queue.dispatcher import Dispatcher, OlderInputDue, Progress
from tenuto.runtime.run.first_message import FirstMessage, rolling_back, sent_before
from tenuto.runtime.run.live_turns import LiveTurns
from tenuto.runtime.run.refusal import as_raised
from tenuto.runtime.session.outcome import FINAL, Outcome, Outcomes
from tenuto.runtime.turn.context import TurnContext
from tenuto.store.host import is_dead
from tenuto.store.store import Store
from tenuto.words import WhenBusy
from tenuto.writing.lane_claim import in_line

T = TypeVar("T")

_log = logging.getLogger("tenuto.runtime")

_beginning: ContextVar[frozenset[SessionKey]] = ContextVar("tenuto_beginning", default=frozenset())

_FIRST_POLL = 0.005
_LONGEST_POLL = 0.1
_LONGEST_ARRIVAL = 5.0
_FIRST_REST = 0.05
_LONGEST_REST = 5.0
_LONGEST_REPORT = 1.0
_REASON = "a new message arrived"


_MAKE_ROOM = frozenset({"interrupt", "rollback"})


class Sender:
    """Begins turns with messages as they arrive, queues those that have to wait, and waits for their outcomes.

    Work that is done for waiting senders is in `background` until it is over.
    """

    def __init__(self, store: Store, dispatcher: Dispatcher, live: LiveTurns, outcomes: Outcomes) -> None:
        self.background: set[asyncio.Future[Progress]] = set()
        self._store = store
        self._dispatcher = dispatcher
        self._live = live
        self._outcomes = outcomes
        self._arriving: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()

    async def begin(
        self, key: SessionKey, message: JSON, *, input_key: str | None, body: JSON, when_busy: WhenBusy = "reject"
    ) -> TurnContext | Input:
        """Begin a turn with a message if the session is idle: on the replica in memory, or after acquiring and loading.

        Unfinished work of the session is done first. If the message's key is known, its first input is returned. If the
        session is busy, `LaneBusy` is raised, or the message is queued and its input returned.
        """
        return await self.begin_with(key, FirstMessage(message=message, body=body, key=input_key), when_busy)

    async def begin_with(self, key: SessionKey, first: FirstMessage, when_busy: WhenBusy) -> TurnContext | Input:
        """Begin a turn with a first message, as `begin` does."""
        begun = await self._in_order_of_arrival(key, first, when_busy, warm=True)
        while not isinstance(begun, TurnContext | Input):
            with suppress(LaneLost, RunNotLive, VersionConflict):  # raced with another runner: retry
                await begun
            begun = await self._in_order_of_arrival(key, first, when_busy, warm=False)
        return begun

    async def _in_order_of_arrival(
        self, key: SessionKey, first: FirstMessage, when_busy: WhenBusy, *, warm: bool
    ) -> TurnContext | Input | Awaitable[None]:
        """Begin or queue messages of this process in order of arrival; none waits longer than 5 s for a slow one."""
        if key in (inside := _beginning.get()):  # a listener, or a hook, that sends to its own session
            return await self._begin_or_queue(key, first, when_busy, warm=warm)
        self._store.backend.check_use()
        arriving = self._arriving.setdefault(key, asyncio.Lock())
        mine = not arriving.locked() and await arriving.acquire()
        if not mine:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_ARRIVAL):
                    mine = await arriving.acquire()
        token = _beginning.set(inside | {key})
        try:
            return await self._begin_or_queue(key, first, when_busy, warm=warm)
        finally:
            _beginning.reset(token)
            if mine:
                arriving.release()

    async def _begin_or_queue(
        self, key: SessionKey, first: FirstMessage, when_busy: WhenBusy, *, warm: bool
    ) -> TurnContext | Input | Awaitable[None]:
        try:
            if warm:
                if (turn := await self._dispatcher.begin_warm(key, first)) is not None:
                    return turn
                if (known := await sent_before(self._store, key, first)) is not None:
                    return await self._again(known, first, when_busy)
            return await self._dispatcher.begin_cold(key, first)
        except LaneBusy:
            if when_busy == "reject":
                if (known := await sent_before(self._store, key, first)) is not None:
                    return known  # the same message keeps the session busy
                raise
        except OperationConflict:
            if (known := await sent_before(self._store, key, first)) is None:
                raise
            return await self._again(known, first, when_busy)  # the key's input differs only in what it rolls back
        except OlderInputDue:
            when_busy = "queue"
        return await self._queue(key, first, when_busy)

    async def _queue(self, key: SessionKey, first: FirstMessage, when_busy: WhenBusy) -> Input:
        """Queue a message durably; for interrupt and rollback, the same transaction asks the running run to stop."""
        body = rolling_back(first.body) if when_busy == "rollback" else first.body
        try:
            return await self._enqueue(key, first.key, body, interrupts=when_busy in _MAKE_ROOM)
        except OperationConflict:
            if (known := await sent_before(self._store, key, first)) is None:
                raise
            return await self._again(known, first, when_busy)

    async def _again(self, known: Input, first: FirstMessage, when_busy: WhenBusy) -> Input:
        """Return the input of a message that was sent before; if it still waits, make sure that the run was stopped.

        A message that was first sent without a rollback does not roll anything back, even if its repeat asks for it.
        """
        if known.status is not InputStatus.OPEN or when_busy not in _MAKE_ROOM:
            return known
        plain = known.digest == self._store.inbox.digest(InputKind.MESSAGE, first.body)
        if plain and when_busy == "rollback":
            return known
        body = first.body if plain else rolling_back(first.body)
        return await self._enqueue(known.key, first.key, body, interrupts=True)

    async def _enqueue(self, key: SessionKey, input_key: str | None, body: JSON, *, interrupts: bool) -> Input:
        new = NewInput(kind=InputKind.MESSAGE, body=body, key=input_key)
        queued = await self._store.inbox.enqueue(key, new, interrupts=_REASON if interrupts else None)
        if queued.stopped is not None and queued.stop is not None:
            self._live.stop(queued.stopped, queued.stop)
        return queued.input

    async def settled(self, key: SessionKey, input_id: str, when_busy: WhenBusy = "queue") -> Outcome[Any]:
        """Wait until an input has its outcome, doing what is due before it whenever the session is free.

        If the input was refused, its refusal is raised. Errors of other input, or of work that cannot be done here, are
        not raised: this input waits until some process can do it. If the session is no longer active, `StatusRefused`
        is raised: the input stays queued, except with `reject`, which cancels it.
        """
        clock = asyncio.get_running_loop().time
        pause, rest, rests_until = _FIRST_POLL, _FIRST_REST, 0.0
        with self._dispatcher.waiters.outcome_of(input_id) as done:
            while True:
                outcome = await self._outcome(input_id, key.tenant)
                if outcome.status in FINAL:
                    return await self._as_here(outcome, done)
                async with in_line(self._store, key, clock() + pause):
                    if not done.done() and clock() >= rests_until and await self._is_free(key):
                        try:
                            if await self._advance_to(key, input_id):
                                pause, rest = _FIRST_POLL, _FIRST_REST
                                continue
                        except StoreError:
                            raise
                        except StatusRefused as error:
                            await self._refused_by_status(key, input_id, error, when_busy)
                        except Exception as error:
                            trace = not _is_ours(error)
                            _log.info("Input %s of %s still waits: %s", input_id, key, error, exc_info=trace)
                            rest, rests_until = min(2 * rest, _LONGEST_REST), clock() + rest
                await asyncio.wait([done], timeout=pause)
                if done.done():
                    return done.result()
                pause = min(2 * pause, _LONGEST_POLL)

    async def _outcome(self, input_id: str, tenant: str) -> Outcome[Any]:
        """Return the current outcome of a sender's input; raise its refusal if it was refused."""
        outcome = await self._outcomes.of_input(input_id, tenant)
        if outcome.status == "failed" and outcome.run_id is None:
            raise as_raised(outcome.error, input_id)
        return outcome

    async def _as_here(self, outcome: Outcome[Any], done: "asyncio.Future[Outcome[Any]]") -> Outcome[Any]:
        """Return a stored outcome as the runner of this process reports it: with the exception, if its turn failed."""
        if outcome.status == "failed" and any(turn.run_id == outcome.run_id for turn in self._live):
            await asyncio.wait([done], timeout=_LONGEST_REPORT)
        here = done.result() if done.done() else outcome
        return here if here.run_id == outcome.run_id else outcome

    async def _refused_by_status(
        self, key: SessionKey, input_id: str, error: StatusRefused, when_busy: WhenBusy
    ) -> None:
        """Raise `StatusRefused` for a session that takes no turns any more, and say what happened to the message."""
        what = f"The message stays queued as {input_id} and begins its turn once the session is active again."
        if when_busy == "reject":
            cancelled = (await self._store.inbox.cancel(key, [input_id]))[input_id]
            if cancelled is not Cancelled.CANCELLED:
                return  # another runner took it first: its outcome will be read
            what = "The message was cancelled."
        raise StatusRefused(f"{error.message} {what}", key=key, found=error.found, input_id=input_id) from error

    async def _is_free(self, key: SessionKey) -> bool:
        """Return whether the lane can be taken, without trying to: this read writes nothing."""
        lane = await self._store.lanes.inspect(key)
        return lane is None or lane.state != "held" or (lane.owner is not None and is_dead(lane.owner.host))

    async def _advance_to(self, key: SessionKey, input_id: str) -> bool:
        """Do what is due up to an input. A cancelled caller cuts off its own turn only, not those of others."""
        wanted = True
        working = asyncio.ensure_future(self._dispatcher.advance(key, until=input_id, should_continue=lambda: wanted))
        self.background.add(working)
        working.add_done_callback(self._done_in_background)
        try:
            return (await asyncio.shield(working)).worked
        except asyncio.CancelledError:
            wanted = False
            if any(turn.invocation.input_id == input_id for turn in self._live):
                working.cancel()
                await asyncio.wait([working])
            raise

    def _done_in_background(self, working: "asyncio.Future[Progress]") -> None:
        self.background.discard(working)
        if not working.cancelled():
            working.exception()  # retrieved here; the waiting sender raises it


def _is_ours(error: Exception) -> bool:
    return isinstance(error, TenutoError)


async def within_life(store: Store, key: SessionKey, life: int, work: Awaitable[T]) -> T:
    """Await work on a session; if it fails because the session was deleted meanwhile, raise `SessionDeleted`."""
    try:
        return await work
    except TenutoError as error:
        found = life
        with suppress(TenutoError):
            found = await store.life(key)
        if found == life or isinstance(error, SessionDeleted):
            raise
        raise SessionDeleted(
            f"{key} was deleted while its turn was awaited; the messages sent to it were deleted with it.",
            key=key,
            expected_life=life,
            found_life=found,
        ) from error
