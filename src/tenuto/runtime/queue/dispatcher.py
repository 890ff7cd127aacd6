"""Who runs next: takes a session's lane and does what is due for it, in order.

A session that was left by a lost runner is gone on with first; then come the waits that are settled, commands and
messages, in the order they arrived.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from tenuto.argument import MAPPING
from tenuto.errors import ClaimLost, InvalidInput, LaneBusy, VersionConflict, WaitNotOpen
from tenuto.ids import new_id
from tenuto.model.input import Input, InputKind
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.cache.replicas import Replicas
from tenuto.runtime.change.fork import begin_point
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.queue.input_handler import InputHandler
from tenuto.runtime.queue.orphans import end_orphan
from tenuto.runtime.queue.waiters import Waiters
from tenuto.runtime.run.begin import ReplicaStale, TurnFactory
from tenuto.runtime.run.first_message import FirstMessage, begins_turn, first_message_of, sent_before
from tenuto.runtime.run.next_turn import NextTurn, foresee
from tenuto.runtime.run.refusal import Declined, refusal_in
from tenuto.runtime.run.resume import is_resumable, resume_run, take_over_run
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.session.outcome import Outcome
from tenuto.store.store import Store
from tenuto.writing.lane_claim import ask_for_lane, free_lane, freed_on_error, in_line, take_lane

T = TypeVar("T")

_AHEAD = 16


class OlderInputDue(Exception):
    """Older input is due, so this one has to wait its turn."""


class Dispatcher:
    """Takes lanes and does what is due; who waits here for an outcome is `awaited`, and told."""

    def __init__(
        self,
        store: Store,
        beginnings: TurnFactory,
        runner: Runner,
        inputs: InputHandler,
        *,
        owner: Owner,
        warm_bytes: int,
        lane_wait: float,
    ) -> None:
        self.awaited = Waiters()
        self._store = store
        self._beginnings = beginnings
        self._inputs = inputs
        self._runner = runner
        self._owner = owner
        self._copies = Replicas(warm_bytes)
        self._lane_wait = lane_wait

    async def begin_warm(self, key: SessionKey, given: FirstMessage) -> Turn | None:
        """Begin a turn on the copy in memory, if there is one and the session is idle and still what was copied."""
        copy = self._copies.take(key)
        if copy is not None and _is_idle(copy) and (copy.quiet or await self._is_current(copy, without_input=True)):
            return await self._begin_on(copy, given)
        return None

    async def begin_cold(self, key: SessionKey, given: FirstMessage) -> Turn | Input | Awaitable[None]:
        """Begin with the lane and a load, or return what has to be done under that lane first.

        A session whose lane is taken is `LaneBusy`. If older messages wait, or something came in while the session was
        loaded, this one is `OlderInputDue`; for one whose key was used meanwhile, its first input is returned.
        """
        lane = await self._acquire(key)
        async with freed_on_error(self._store, lane):
            copy, run = await self._load(key, lane)
            first = await self._next_input(copy)
            if run is not None and run.status is RunStatus.RUNNING:
                return self._first(lane, self._take_over(copy, lane, run))
            if first is not None and not begins_turn(first):
                return self._first(lane, self._handle(copy, lane, first))
            self._beginnings.check_takes_turns(copy)
            if first is not None:
                raise OlderInputDue
            try:
                return await self._beginnings.begin(copy, lane, given, warm=False)
            except WaitNotOpen:
                return _nothing()  # what was to be given up was answered at this very moment: look again
            except VersionConflict as error:
                if error.details().get("counted") != "events":
                    raise
                raise OlderInputDue from error  # queued, it has its place behind whatever came in
            except ClaimLost:
                if (known := await sent_before(self._store, key, given)) is None:
                    raise
                return known

    async def _first(self, lane: Lane, work: Awaitable[None]) -> None:
        async with freed_on_error(self._store, lane):
            await work

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
                if queued is not None and begins_turn(queued):
                    live = None
                    with suppress(Declined, InvalidInput):  # it is refused under the lane
                        live = await self._begin_on(known, await first_message_of(self._store, queued, known))
                    if live is not None:
                        worked = True
                        if await self._run_on(live, until, go_on):
                            return True
                        continue
            try:
                lane = await self._acquire(key)
            except LaneBusy:
                return worked
            async with freed_on_error(self._store, lane):
                copy, run = await self._load(key, lane)
                first = await self._next_input(copy)
                if run is not None and run.status is RunStatus.RUNNING:
                    await self._take_over(copy, lane, run)
                elif run is not None and run.status is RunStatus.SUSPENDED and await is_resumable(self._store, run):
                    await self._go_on(copy, lane, run, first)
                elif first is None:
                    await free_lane(self._store, lane)
                    return worked
                else:
                    live = await self._inputs.take(copy, lane, first)
                    if live is not None and await self._run_on(live, until, go_on):
                        return True
            worked = True
            if until is not None and first is not None and first.input_id == until:
                return True
        return worked

    async def _go_on(self, copy: Replica, lane: Lane, run: Run, first: Input | None) -> None:
        """Go on with a run that waits for nothing any more.

        If that is refused, so is the wake that was to bring it about; a message that comes first gives the run up.
        """
        wakes = [first] if first is not None and first.kind is InputKind.WAKE and not begins_turn(first) else []
        try:
            live = await resume_run(self._beginnings, copy, lane, run, wakes)
        except WaitNotOpen:
            return  # answered at this very moment: look again
        except Exception as error:
            refusal = refusal_in(error)
            if refusal is None or first is None:
                raise
            await free_lane(self._store, lane)
            if wakes:
                await self._inputs.refuse(first, refusal)
                return
            again = await self._acquire(copy.key)
            async with freed_on_error(self._store, again):
                await self._handle((await self._load(copy.key, again))[0], again, first)
            return
        await self.run(live)

    async def act(
        self, key: SessionKey, work: "Callable[[Replica, Lane], Awaitable[T]]", *, keeps_lane: bool = False
    ) -> T:
        """Do something to a session under its lane, after whatever was left undone; waits for the lane in line.

        The lane is free afterwards, unless what was done `keeps_lane`.
        """
        deadline = asyncio.get_running_loop().time() + self._lane_wait
        async with in_line(self._store, key, deadline):
            while True:
                lane = await take_lane(self._store, key, deadline=deadline, owner=self._owner, alive=True)
                async with freed_on_error(self._store, lane):
                    copy, run = await self._load(key, lane)
                    if run is not None and run.status is RunStatus.RUNNING:
                        await self._take_over(copy, lane, run)
                        continue
                    holding = self._store.keeper.hold(lane, lambda: None)
                    try:
                        done = await work(copy, lane)
                    finally:
                        self._store.keeper.release(holding)
                    if not keeps_lane:
                        await free_lane(self._store, lane)
                    return done

    async def _acquire(self, key: SessionKey) -> Lane:
        return await ask_for_lane(self._store, key, self._owner, new_id(), alive=True)

    async def _load(self, key: SessionKey, lane: Lane) -> tuple[Replica, Run | None]:
        copy, run = await self._beginnings.load(key)
        copy.generation = lane.generation
        copy.last_run = (run.run_id, run.status) if run else None
        return copy, run

    async def _is_current(self, copy: Replica, *, without_input: bool = False) -> bool:
        """Tell whether a copy still is what the store holds; the commit that uses it makes sure."""
        stamp = await self._store.stamp(copy.key)
        if stamp is None or stamp[:4] != (copy.life, copy.version, copy.commit_number, copy.generation):
            return False
        copy.seen(stamp)
        return copy.quiet or not without_input

    async def _next_input(self, copy: Replica, *, looked: bool = False) -> Input | None:
        """Return the first due input for the next turn.

        If this copy was `looked` at a moment ago and nothing came in since, its queue tells. Should that be wrong, the
        commit that takes the input is refused.
        """
        if not (looked and copy.queue and copy.queue.inputs):
            found = await self._store.inbox.list(copy.key, limit=_AHEAD + 1)
            copy.looked(found[:_AHEAD], more=len(found) > _AHEAD)
            if any(map(self._inputs.is_for_others, found)):
                copy.disturbed()
                return await self._next_for_here(copy.key)
        if copy.queue is None:
            first = await self._store.inbox.first(copy.key)
            mine = first is None or not self._inputs.is_for_others(first)
            return first if mine else await self._next_for_here(copy.key)
        return copy.queue.inputs[0] if copy.queue.inputs else None

    async def _next_for_here(self, key: SessionKey) -> Input | None:
        """Return the first due input for the next turn that is not for other processes."""
        now, after = await self._store.moment(), 0
        while found := await self._store.inbox.list(key, after=after):
            for each in found:
                due = each.boundary is None and each.run_id is None and (each.due_at is None or each.due_at <= now)
                if due and not self._inputs.is_for_others(each):
                    return each
            after = found[-1].seq
        return None

    async def _begin_on(self, copy: Replica, given: FirstMessage) -> Turn | None:
        lane = Lane(
            key=copy.key,
            life=copy.life,
            generation=copy.generation,
            nonce=new_id(),
            owner=self._owner,
            claimed_at=copy.updated_at,
            expires_at=copy.updated_at,
        )
        try:
            return await self._beginnings.begin(copy, lane, given, warm=True)
        except ReplicaStale:
            return None

    async def _take_over(self, copy: Replica, lane: Lane, run: Run) -> None:
        """Go on with a lost run if its program is ours; end any other as interrupted, resumable by its own engine."""
        if await begin_point(self._store, run) is None:
            await end_orphan(self._store, run, lane)
            return
        self._beginnings.check_known(copy)
        live = await take_over_run(self._beginnings, copy, lane, run)
        if live is not None:
            await self.run(live)

    async def _handle(self, copy: Replica, lane: Lane, given: Input) -> None:
        live = await self._inputs.take(copy, lane, given)
        if live is not None:
            await self.run(live)

    async def _run_on(self, live: Turn, until: str | None, go_on: Callable[[], bool] | None) -> bool:
        """Run a begun turn and those that follow on it; tell whether the last one was that of the input `until`."""
        while True:
            live.foresee = partial(self._following, live, until, go_on)
            await self.run(live)
            last, follower = live.invocation.input_id, live.follower
            live.foresee = live.follower = None
            if follower is None:
                return until is not None and last == until
            live = follower

    def _following(self, live: Turn, until: str | None, go_on: Callable[[], bool] | None) -> NextTurn | None:
        queue = live.copy.queue
        if queue is None or not queue.inputs or (until is not None and live.invocation.input_id == until):
            return None
        return foresee(self._beginnings, live, queue.inputs[0]) if go_on is None or go_on() else None

    async def run(self, live: Turn) -> Outcome:
        """Run a begun turn to its end, keep the copy for the next one, and tell whoever waits for it here."""
        try:
            outcome = await self._runner.run(live)
        except BaseException as error:
            self._copies.take(live.key)
            if live.follower is not None:
                await self._beginnings.let_go(live.follower, live.follower.writer, error)
            raise
        upto = live.follower.first_entry if live.follower is not None else {}
        live.copy.size += 256 + sum(
            _rough_size(item)
            for name, items in live.copy.logs.items()
            for item in items[live.first_entry.get(name, 0) : upto.get(name)]
        )
        if live.follower is None:
            self._copies.put(live.copy)
        if live.invocation.input_id is not None:
            self.awaited.tell(live.invocation.input_id, outcome)
        return outcome


async def _nothing() -> None:
    return None


def _rough_size(value: Any) -> int:
    """Return about how much text a value is, without making it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, MAPPING):
        return sum(len(name) + _rough_size(each) for name, each in value.items())
    return sum(map(_rough_size, value)) if isinstance(value, list) else 8


def _is_idle(copy: Replica) -> bool:
    """Tell whether nothing was left undone in a session, as far as its copy knows, and a message may begin a turn."""
    over = copy.last_run is None or copy.last_run[1] not in (RunStatus.SUSPENDED, RunStatus.RUNNING)
    return over and copy.status is SessionStatus.ACTIVE
