"""Who runs next: takes a session's lane and does what is due for it, in order.

A session that is busy is rejected, queued for, or asked to stop; one that was left by a lost runner is gone on with
first; then come the waits that are settled, commands and messages, in the order they arrived.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from tenuto.codec import JSON
from tenuto.errors import (
    ClaimLost,
    LaneBusy,
    LaneLost,
    MessageRefused,
    OperationConflict,
    StoreError,
    TenutoError,
    WaitNotOpen,
)
from tenuto.ids import new_id
from tenuto.model.commit import Append, Commit
from tenuto.model.event import NewEvent
from tenuto.model.inbox import Consume, Input, InputKind, NewInput
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import Run, RunStatus, StopKind, StopReply, WaitStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.session.beginning import Beginnings, Given, Missed, notice_message
from tenuto.session.commands import Commands
from tenuto.session.copies import Copies
from tenuto.session.copy import Copy
from tenuto.session.forking import begin_point
from tenuto.session.lanes import ask_for_lane, in_line, take_lane
from tenuto.session.live import LiveTurn
from tenuto.session.lost import end_lost
from tenuto.session.outcome import OVER, Outcome
from tenuto.session.outcomes import Outcomes
from tenuto.session.pipeline import Pipeline
from tenuto.session.runner import Runner
from tenuto.session.turn import error_record
from tenuto.session.value import MESSAGES
from tenuto.store.host import is_dead
from tenuto.store.port import Store

T = TypeVar("T")

_beginning: ContextVar[frozenset[SessionKey]] = ContextVar("tenuto_beginning", default=frozenset())

_FIRST_POLL = 0.005
_LONGEST_POLL = 0.1
_LONGEST_ARRIVAL = 5.0
_AHEAD = 16
_ROLLS_BACK = "rolls_back"


class WhenBusy(StrEnum):
    """What becomes of a message to a session whose turn is under way."""

    REJECT = "reject"
    QUEUE = "queue"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"


class Dispatcher:
    """Takes lanes and does what is due."""

    def __init__(
        self,
        store: Store,
        beginnings: Beginnings,
        runner: Runner,
        pipeline: Pipeline,
        commands: Commands,
        *,
        owner: Owner,
        warm_bytes: int,
        lane_wait: float,
    ) -> None:
        self.store = store
        self._beginnings = beginnings
        self._runner = runner
        self._owner = owner
        self._pipeline = pipeline
        self._commands = commands
        self._copies = Copies(warm_bytes)
        self._lane_wait = lane_wait
        self._outcomes = Outcomes(store)
        self._arriving: WeakValueDictionary[SessionKey, asyncio.Lock] = WeakValueDictionary()
        self.background: set[asyncio.Future[bool]] = set()
        self._waiting: dict[str, list[asyncio.Future[Outcome]]] = {}

    async def begin(
        self,
        key: SessionKey,
        message: JSON,
        *,
        input_key: str | None,
        body: JSON,
        when_busy: WhenBusy = WhenBusy.REJECT,
    ) -> LiveTurn | Input:
        """Begin a turn with a message if the session is idle: on the copy in memory, or with the lane and a load.

        What was left undone before it comes first. For a message whose key is known, its first input is returned. A
        session that is busy is `LaneBusy`, or the message is queued, and its input returned.
        """
        given = Given(message=message, body=body, key=input_key)
        async with self._in_order_of_arrival(key):
            begun = await self._begin_or_queue(key, given, when_busy, warm=True)
        while not isinstance(begun, LiveTurn | Input):
            await begun
            async with self._in_order_of_arrival(key):
                begun = await self._begin_or_queue(key, given, when_busy, warm=False)
        return begun

    async def _begin_or_queue(
        self, key: SessionKey, given: Given, when_busy: WhenBusy, *, warm: bool
    ) -> LiveTurn | Input | Awaitable[None]:
        try:
            copy = self._copies.take(key) if warm else None
            if copy is not None and _is_idle(copy) and (copy.quiet or await self._is_current(copy, without_input=True)):
                live = await self._begin_warm(copy, given)
                if live is not None:
                    return live
            if warm and (known := await self._known(key, given)) is not None:
                return known
            return await self._begin_cold(key, given)
        except LaneBusy:
            if when_busy is WhenBusy.REJECT:
                if (known := await self._known(key, given)) is not None:
                    return known  # it is this very message that keeps the session busy
                raise
        except QueuedFirst:
            when_busy = WhenBusy.QUEUE
        return await self.queue(key, given.body, input_key=given.key, when_busy=when_busy)

    async def _known(self, key: SessionKey, given: Given) -> Input | None:
        return None if given.key is None else await self.known(key, given.key, given.body)

    @asynccontextmanager
    async def _in_order_of_arrival(self, key: SessionKey) -> AsyncIterator[None]:
        """Let who came first in this process begin first, or be queued first; nobody waits long for a slow one."""
        if key in (inside := _beginning.get()):  # a listener, or a hook, that sends to the session it is called for
            yield
            return
        arriving = self._arriving.setdefault(key, asyncio.Lock())
        mine = not arriving.locked() and await arriving.acquire()
        if not mine:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_ARRIVAL):
                    mine = await arriving.acquire()
        token = _beginning.set(inside | {key})
        try:
            yield
        finally:
            _beginning.reset(token)
            if mine:
                arriving.release()

    async def _begin_cold(self, key: SessionKey, given: Given) -> LiveTurn | Input | Awaitable[None]:
        """Begin with the lane and a load, or return what has to be done under that lane first."""
        lane = await self._acquire(key)
        async with self._freed_on_error(lane):
            copy, run = await self._load(key, lane)
            first = await self._next_input(copy)
            if run is not None and run.status is RunStatus.RUNNING:
                return self._first(lane, self._take_over(copy, lane, run))
            if first is not None and not _waits_for_turn(first):
                return self._first(lane, self._handle(copy, lane, first))
            if first is not None:
                raise QueuedFirst
            try:
                return await self._beginnings.begin(copy, lane, given, warm=False)
            except WaitNotOpen:
                return _nothing()  # what was to be given up was answered at this very moment: look again
            except ClaimLost:
                if (known := await self._known(key, given)) is None:
                    raise
                return known

    async def _first(self, lane: Lane, work: Awaitable[None]) -> None:
        async with self._freed_on_error(lane):
            await work

    async def _is_current(self, copy: Copy, *, without_input: bool = False) -> bool:
        """Tell whether a copy still is what the store holds; the commit that uses it makes sure."""
        stamp = await self.store.stamp(copy.key)
        if stamp is None or stamp[:4] != (copy.life, copy.version, copy.commit_number, copy.generation):
            return False
        copy.seen(stamp)
        return copy.quiet or not without_input

    async def _begin_warm(self, copy: Copy, given: Given) -> LiveTurn | None:
        lane = Lane(
            key=copy.key,
            life=copy.life,
            generation=copy.generation,
            nonce=new_id(),
            owner=self._owner,
            claimed_at=copy.updated_at,
            expires_at=copy.updated_at,
        )
        with suppress(Missed):
            return await self._beginnings.begin(copy, lane, given, warm=True)
        return None

    async def known(self, key: SessionKey, input_key: str, body: JSON) -> Input | None:
        """Return the input that was sent with this key, None if there is none; other content is refused."""
        found = await self.store.inbox.find(key, input_key)
        if found is None:
            return None
        digest = self.store.inbox.digest
        if found.digest not in (digest(InputKind.MESSAGE, each) for each in (body, _rolling_back(body))):
            raise OperationConflict(
                f"The key {input_key!r} was used before for other input ({found.input_id}); mint a new key.",
                operation_id=input_key,
                input_id=found.input_id,
            )
        return found

    async def queue(self, key: SessionKey, body: JSON, *, input_key: str | None, when_busy: WhenBusy) -> Input:
        """Queue a message durably, and ask the run under way to stop if it is to make room."""
        queued = _rolling_back(body) if when_busy is WhenBusy.ROLLBACK else body
        try:
            enqueued = await self.store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body=queued, key=input_key))
        except OperationConflict:
            known = None if input_key is None else await self.known(key, input_key, body)
            if known is None:
                raise
            return known
        if not enqueued.replayed and when_busy in (WhenBusy.INTERRUPT, WhenBusy.ROLLBACK):
            run = await self.store.runs.current(key)
            if run is not None and run.status is RunStatus.RUNNING and run.start_sequence < enqueued.input.seq:
                await self.stop(run.run_id, StopKind.INTERRUPT, "a new message came in")
        return enqueued.input

    async def stop(self, run_id: str, kind: StopKind, reason: str | None) -> StopReply:
        """Record a stop on a run, and tell it at once if it runs here."""
        reply = await self.store.runs.request_stop(run_id, kind, reason)
        live = self._runner.live.get(run_id)
        if live is not None and reply.stop is not None and reply.status is RunStatus.RUNNING:
            live.ask_to_stop(reply.stop)
        return reply

    async def settled(self, key: SessionKey, input_id: str) -> Outcome:
        """Wait until an input has its outcome, doing what is due before it whenever the session is free."""
        pause = _FIRST_POLL
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(input_id, []).append(done)
        try:
            while True:
                outcome = await self._outcomes.of_input(input_id)
                if outcome.status in OVER:
                    return outcome
                deadline = asyncio.get_running_loop().time() + pause
                async with in_line(self.store, key, deadline):
                    if not done.done() and await self._is_free(key) and await self._advance_to(key, input_id):
                        pause = _FIRST_POLL
                        continue
                await asyncio.wait([done], timeout=pause)
                if done.done():
                    return done.result()
                pause = min(2 * pause, _LONGEST_POLL)
        finally:
            self._waiting[input_id].remove(done)
            if not self._waiting[input_id]:
                del self._waiting[input_id]

    async def _advance_to(self, key: SessionKey, input_id: str) -> bool:
        """Do what is due up to an input. A caller that goes away cuts off its own turn only, not those of others."""
        wanted = True
        working = asyncio.ensure_future(self.advance(key, until=input_id, go_on=lambda: wanted))
        self.background.add(working)
        working.add_done_callback(self._done_in_background)
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            wanted = False
            if any(live.invocation.input_id == input_id for live in self._runner.live.values()):
                working.cancel()
                await asyncio.wait([working])
            raise

    def _done_in_background(self, working: "asyncio.Future[bool]") -> None:
        self.background.discard(working)
        if not working.cancelled():
            working.exception()  # whoever waits for it hears of it

    async def _is_free(self, key: SessionKey) -> bool:
        """Tell whether the lane can be taken, without trying to: a look writes nothing."""
        lane = await self.store.lanes.inspect(key)
        return lane is None or lane.state != "held" or (lane.owner is not None and is_dead(lane.owner.host))

    async def advance(
        self, key: SessionKey, *, until: str | None = None, go_on: Callable[[], bool] | None = None
    ) -> bool:
        """Do what is due for a session, as long as nobody else has it; return whether anything was done.

        With `until`, stop once that input was worked on; `go_on` is asked before each turn.
        """
        worked = False
        while go_on is None or go_on():
            known = self._copies.take(key)
            if known is not None and _is_idle(known):
                if worked and known.quiet:  # as of the commit that ended the last turn
                    self._copies.put(known)
                    return worked
                queued = await self._next_input(known, looked=worked)
                if queued is None and await self._is_current(known):
                    self._copies.put(known)
                    return worked
                if queued is not None and _waits_for_turn(queued):
                    live = await self._begin_warm(known, await self._given(known, queued))
                    if live is not None:
                        await self.run(live)
                        worked = True
                        if queued.input_id == until:
                            return True
                        continue
            try:
                lane = await self._acquire(key)
            except LaneBusy:
                return worked
            async with self._freed_on_error(lane):
                copy, run = await self._load(key, lane)
                first = await self._next_input(copy)
                if run is not None and run.status is RunStatus.RUNNING:
                    await self._take_over(copy, lane, run)
                elif run is not None and run.status is RunStatus.SUSPENDED and await self._can_go_on(run):
                    wakes = [first] if first is not None and first.kind is InputKind.WAKE else []
                    with suppress(WaitNotOpen):  # answered at this very moment: look again
                        await self.run(await self._beginnings.resume(copy, lane, run, wakes))
                elif first is None:
                    await self._free(lane)
                    return worked
                else:
                    await self._handle(copy, lane, first)
            worked = True
            if until is not None and first is not None and first.input_id == until:
                return True
        return worked

    async def _next_input(self, copy: Copy, *, looked: bool = False) -> Input | None:
        """Return the first due input for the next turn.

        If this copy was `looked` at a moment ago and nothing came in since, its queue tells. Should that be wrong, the
        commit that takes the input is refused.
        """
        if not (looked and copy.queue and copy.queue.inputs):
            found = await self.store.inbox.list(copy.key, limit=_AHEAD + 1)
            copy.looked(found[:_AHEAD], more=len(found) > _AHEAD)
        if copy.queue is None:
            return await self.store.inbox.first(copy.key)
        return copy.queue.inputs[0] if copy.queue.inputs else None

    async def act(
        self, key: SessionKey, work: "Callable[[Copy, Lane], Awaitable[T]]", *, keeps_lane: bool = False
    ) -> T:
        """Do something to a session under its lane, after whatever was left undone; waits for the lane in line.

        The lane is free afterwards, unless what was done `keeps_lane`.
        """
        deadline = asyncio.get_running_loop().time() + self._lane_wait
        async with in_line(self.store, key, deadline):
            while True:
                lane = await take_lane(self.store, key, deadline=deadline, owner=self._owner, alive=True)
                async with self._freed_on_error(lane):
                    copy, run = await self._load(key, lane)
                    if run is not None and run.status is RunStatus.RUNNING:
                        await self._take_over(copy, lane, run)
                        continue
                    holding = self.store.keeper.hold(lane, lambda: None)
                    try:
                        done = await work(copy, lane)
                    finally:
                        self.store.keeper.release(holding)
                    if not keeps_lane:
                        await self._free(lane)
                    return done

    async def _acquire(self, key: SessionKey) -> Lane:
        return await ask_for_lane(self.store, key, self._owner, new_id(), alive=True)

    async def _free(self, lane: Lane) -> None:
        with suppress(TenutoError):
            await self.store.lanes.disarm(lane)

    @asynccontextmanager
    async def _freed_on_error(self, lane: Lane) -> AsyncIterator[None]:
        """Free the lane if what is done under it fails; whoever comes next need not wait until it lapses."""
        try:
            yield
        except BaseException:
            await self._free(lane)
            raise

    async def _load(self, key: SessionKey, lane: Lane) -> tuple[Copy, Run | None]:
        copy, run = await self._beginnings.load(key)
        copy.generation = lane.generation
        copy.last_run = (run.run_id, run.status) if run else None
        return copy, run

    async def run(self, live: LiveTurn) -> Outcome:
        """Run a begun turn to its end, keep the copy for the next one, and tell whoever waits for it here."""
        try:
            outcome = await self._runner.run(live)
        except BaseException:
            self._copies.take(live.key)
            raise
        live.copy.size += 256 + sum(
            _rough_size(item)
            for name, items in live.copy.logs.items()
            for item in items[live.first_entry.get(name, 0) :]
        )
        self._copies.put(live.copy)
        if live.invocation.input_id is not None:
            for done in self._waiting.get(live.invocation.input_id, ()):
                if not done.done():
                    done.set_result(outcome)
        return outcome

    async def _take_over(self, copy: Copy, lane: Lane, run: Run) -> None:
        """Go on with a lost run if its program is ours; end any other as interrupted, resumable by its own engine."""
        if await begin_point(self.store, run) is None:
            await end_lost(self.store, run, lane)
            return
        self._beginnings.programs.of(copy.definition)
        live = await self._beginnings.take_over(copy, lane, run)
        if live is not None:
            await self.run(live)

    async def _can_go_on(self, run: Run) -> bool:
        """Tell whether a suspended run waits for nothing any more: all is settled, or overdue."""
        waits = await self.store.waits.of_session(run.key, run_id=run.run_id, status=None)
        open_waits = [wait for wait in waits if wait.status is WaitStatus.OPEN]
        if not waits or any(wait.status in (WaitStatus.ABANDONED, WaitStatus.CANCELLED) for wait in waits):
            return False
        now = (await self.store.moment()) if open_waits else None
        return all(wait.deadline is not None and now is not None and wait.deadline <= now for wait in open_waits)

    async def _handle(self, copy: Copy, lane: Lane, given: Input) -> None:
        """Take one input: a message begins a turn, a command is executed, a wake that finds nothing to do is over."""
        match given.kind:
            case InputKind.MESSAGE:
                await self._answer(copy, lane, given)
            case InputKind.COMMAND:
                with suppress(ClaimLost):  # cancelled at this very moment
                    await self._command(copy, lane, given)
                await self._free(lane)
            case InputKind.WAKE:
                if isinstance(given.body, Mapping) and "message" in given.body:
                    await self._answer(copy, lane, given)
                    return
                with suppress(ClaimLost):
                    await self._woken(copy, lane, given)
                await self._free(lane)

    async def _answer(self, copy: Copy, lane: Lane, given: Input) -> None:
        body: Any = given.body
        try:
            self._beginnings.declared(copy).item(body["message"])
        except MessageRefused as error:
            await self._consumed(copy, lane, given, "session_action_failed", error_record(error))
            await self._free(lane)
            return
        try:
            live = await self._beginnings.begin(copy, lane, await self._given(copy, given), warm=False)
        except (ClaimLost, WaitNotOpen):
            return  # cancelled, or what is given up was answered, at this very moment
        await self.run(live)

    async def _given(self, copy: Copy, given: Input) -> Given:
        body: Any = given.body
        rolls_back = await self._rolled_back_by(copy, given)
        return Given(message=body["message"], body=body, queued=given, rolls_back=rolls_back)

    async def _rolled_back_by(self, copy: Copy, given: Input) -> str | None:
        """Return the run that was under way when a message came in that takes it back, if it was the last one."""
        body: Any = given.body
        if _ROLLS_BACK not in body or copy.last_run is None:
            return None
        run = await self.store.runs.get(copy.last_run[0])
        if run is None or run.ended_at is None or run.start_sequence >= given.seq:
            return None
        return run.run_id if run.ended_at >= given.created_at else None

    async def _command(self, copy: Copy, lane: Lane, given: Input) -> None:
        consume = (Consume(input_id=given.input_id),)
        try:
            action = self._commands.read(given.body)
            await self._pipeline.execute(copy, lane, action, consume=consume, input_id=given.input_id)
        except (LaneLost, ClaimLost, StoreError):
            raise  # the command is not at fault: it waits for the next runner
        except Exception as error:
            await self._consumed(copy, lane, given, "session_action_failed", error_record(error))

    async def _woken(self, copy: Copy, lane: Lane, given: Input) -> None:
        body: Any = given.body
        told = None
        if isinstance(body, Mapping) and "notice" in body:
            told = self._beginnings.declared(copy).notice(notice_message(body["notice"]))
        if told is not None:
            await self.store.commit(
                Commit(
                    key=copy.key,
                    operation_id=new_id(),
                    life=lane.life,
                    generation=lane.generation,
                    expected_version=copy.version,
                    save=True,
                    logs={MESSAGES: Append(items=(told,))},
                    consume=(Consume(input_id=given.input_id, log=MESSAGES, item=0),),
                )
            )
            return
        await self._consumed(copy, lane, given, None, None)

    async def _consumed(self, copy: Copy, lane: Lane, given: Input, event: str | None, data: JSON) -> None:
        events = () if event is None else (NewEvent(type=event, data={"input_id": given.input_id, "error": data}),)
        await self.store.commit(
            Commit(
                key=copy.key,
                operation_id=new_id(),
                life=lane.life,
                generation=lane.generation,
                consume=(Consume(input_id=given.input_id),),
                events=events,
            )
        )


async def _nothing() -> None:
    return None


class QueuedFirst(Exception):
    """Older input is due, so this one has to wait its turn."""


def _rough_size(value: Any) -> int:
    """Return about how much text a value is, without making it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(name) + _rough_size(each) for name, each in value.items())
    return sum(map(_rough_size, value)) if isinstance(value, list) else 8


def _rolling_back(body: Any) -> JSON:
    return {**body, _ROLLS_BACK: True}


def _is_idle(copy: Copy) -> bool:
    """Tell whether nothing was left undone in a session, as far as its copy knows, and a message may begin a turn."""
    over = copy.last_run is None or copy.last_run[1] not in (RunStatus.SUSPENDED, RunStatus.RUNNING)
    return over and copy.status is SessionStatus.ACTIVE


def _waits_for_turn(given: Input) -> bool:
    body: Any = given.body
    return given.kind is InputKind.MESSAGE or (isinstance(body, Mapping) and "message" in body)
