"""The dispatcher: takes a session's lane and does what is due for it, in order.

The run of a lost runner is taken over first; then a run whose waits are settled is resumed; then come commands and
messages, in order of arrival.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenuto.errors import ClaimLost, InvalidInput, LaneBusy, SessionNotFound, StreamMoved, WaitNotOpen
from tenuto.ids import new_id
from tenuto.model.input import Input, InputKind
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.conversation.scheduled_message import spares_waits
from tenuto.runtime.queue.input_handler import InputHandler
from tenuto.runtime.queue.orphans import end_orphan
from tenuto.runtime.queue.waiters import Waiters
from tenuto.runtime.run.begin import ReplicaStale, TurnFactory
from tenuto.runtime.run.end import Ended
from tenuto.runtime.run.first_message import FirstMessage, begins_turn, first_message_of, sent_before
from tenuto.runtime.run.next_turn import NextTurn, PlanNext
from tenuto.runtime.run.refusal import Declined, refusal_in
from tenuto.runtime.run.resume import is_resumable, resume_run
from tenuto.runtime.run.runner import Runner
from tenuto.runtime.run.takeover import take_over_run
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.turn.context import Continuation, TurnContext
from tenuto.runtime.turn.invocation import start_point
from tenuto.runtime.turn.replica import Replica, rough_size
from tenuto.store.store import Store
from tenuto.writing.lane_claim import ask_for_lane, free_lane, freed_on_error, in_line, take_lane
from tenuto.writing.lru import Lru

T = TypeVar("T")

_QUEUE_PREFETCH = 16


class OlderInputDue(Exception):
    """Older input is due, so this message has to be queued."""


@dataclass(slots=True)
class Progress:
    """What was done for a session: whether anything was, and the outcome of each turn with its invocation id."""

    worked: bool = False
    outcomes: list[tuple[str, Outcome[Any]]] = field(default_factory=list)

    def outcome_of(self, invocation_id: str) -> Outcome[Any] | None:
        """Return the outcome of an invocation's last turn, if one ran here."""
        return next((outcome for found, outcome in reversed(self.outcomes) if found == invocation_id), None)


class Dispatcher:
    """Takes lanes and does what is due; tasks of this process that wait for an outcome are in `waiters`."""

    def __init__(
        self,
        store: Store,
        factory: TurnFactory,
        runner: Runner,
        inputs: InputHandler,
        *,
        owner: Owner,
        cache_bytes: int,
        lane_wait: float,
    ) -> None:
        self.waiters = Waiters()
        self._store = store
        self._factory = factory
        self._inputs = inputs
        self._runner = runner
        self._owner = owner
        self._replicas: Lru[SessionKey, Replica] = Lru(cache_bytes)  # each in use by at most one turn
        self._lane_wait = lane_wait

    async def begin_warm(self, key: SessionKey, first: FirstMessage) -> TurnContext | None:
        """Begin a turn on the replica in memory, if there is one and the session is idle and unchanged."""
        replica = self._replicas.pop(key)
        if replica is None or not _is_idle(replica):
            return None
        if replica.queue_empty or await self._is_current(replica, without_input=True):
            return await self._begin_on(replica, first)
        return None

    async def begin_cold(self, key: SessionKey, first: FirstMessage) -> TurnContext | Input | Awaitable[None]:
        """Acquire the lane, load the session and begin a turn, or return the work to do under that lane first.

        Raise `LaneBusy` if the lane is taken, and `OlderInputDue` if older messages wait or input arrived during the
        load. If the message's key was used meanwhile, return the input that was sent under it.
        """
        lane = await self._acquire(key)
        async with freed_on_error(self._store, lane):
            replica, run = await self._factory.load(key)
            older = await self._next_input(replica)
            if run is not None and run.status is RunStatus.RUNNING:
                return self._before_it(lane, self._take_over(replica, lane, run))
            if older is not None and not begins_turn(older):
                return self._before_it(lane, self._handle(replica, lane, older))
            self._factory.check_takes_turns(replica)
            if older is not None:
                raise OlderInputDue
            try:
                return await self._factory.begin(replica, lane, first, warm=False)
            except WaitNotOpen:
                return _nothing()  # raced with an answer to a wait that was to be abandoned: retry
            except StreamMoved as error:
                raise OlderInputDue from error  # it is queued behind the input that arrived
            except ClaimLost:
                if (known := await sent_before(self._store, key, first)) is None:
                    raise
                return known

    async def _before_it(self, lane: Lane, work: Awaitable[object]) -> None:
        async with freed_on_error(self._store, lane):
            await work

    async def advance(
        self, key: SessionKey, *, until: str | None = None, should_continue: Continuation | None = None
    ) -> Progress:
        """Do what is due for a session, unless another runner holds it; return what was done.

        With `until`, stop after that input; `should_continue` is called before each turn, and False stops too.
        """
        progress = Progress()
        while should_continue is None or should_continue():
            warm = await self._advance_warm(key, progress, until, should_continue)
            if warm is not None:
                if warm:
                    return progress
                continue
            try:
                lane = await self._acquire(key)
            except LaneBusy:
                return progress
            except SessionNotFound:
                if progress.worked:
                    return progress  # what was done deleted it
                raise
            async with freed_on_error(self._store, lane):
                replica, run = await self._factory.load(key)
                queued = await self._next_input(replica)
                if run is not None and run.status is RunStatus.RUNNING:
                    await self._take_over(replica, lane, run, progress)
                elif run is not None and run.status is RunStatus.SUSPENDED and await is_resumable(self._store, run):
                    await self._resume(replica, lane, run, queued, progress)
                elif queued is None:
                    await free_lane(self._store, lane)
                    return progress
                else:
                    turn = await self._inputs.handle(replica, lane, queued)
                    if turn is not None and await self._run_on(turn, progress, until, should_continue):
                        return progress
            progress.worked = True
            if until is not None and queued is not None and queued.input_id == until:
                return progress
        return progress

    async def _advance_warm(
        self, key: SessionKey, progress: Progress, until: str | None, should_continue: Continuation | None
    ) -> bool | None:
        """Do what is due on the replica in memory; return whether all is done, or None if a load is needed."""
        known = self._replicas.pop(key)
        if known is None or not _is_idle(known):
            return None
        if progress.worked and known.queue_empty:  # as of the commit that ended the last turn
            self._keep(known)
            return True
        queued = await self._next_input(known, prefetched=progress.worked)
        if queued is None and await self._is_current(known):
            self._keep(known)
            return True
        if queued is None or not begins_turn(queued):
            return None
        turn = None
        with suppress(Declined, InvalidInput):  # it is refused under the lane
            turn = await self._begin_on(known, await first_message_of(self._store, queued, known))
        if turn is None:
            return None
        progress.worked = True
        return await self._run_on(turn, progress, until, should_continue)

    async def _resume(self, replica: Replica, lane: Lane, run: Run, queued: Input | None, progress: Progress) -> None:
        """Resume a run whose waits are all settled.

        If the session refuses that, the wake that caused it is refused too; a message that is first in the queue is
        handled instead, and abandons the run.
        """
        wakes = [queued] if queued is not None and queued.kind is InputKind.WAKE and not begins_turn(queued) else []
        try:
            turn = await resume_run(self._factory, replica, lane, run, wakes)
        except WaitNotOpen:
            return  # raced with an answer: retry
        except Exception as error:
            refusal = refusal_in(error)
            if refusal is None or queued is None:
                raise
            await free_lane(self._store, lane)
            if wakes:
                await self._inputs.refuse(queued, refusal)
                return
            again = await self._acquire(replica.key)
            async with freed_on_error(self._store, again):
                await self._handle((await self._factory.load(replica.key))[0], again, queued, progress)
            return
        await self._run_noted(turn, progress)

    async def act(
        self, key: SessionKey, work: "Callable[[Replica, Lane], Awaitable[T]]", *, keeps_lane: bool = False
    ) -> T:
        """Do something to a session under its lane, after taking over a lost run; wait for the lane in line.

        The lane is freed afterwards, unless the work `keeps_lane`.
        """
        deadline = asyncio.get_running_loop().time() + self._lane_wait
        async with in_line(self._store, key, deadline):
            while True:
                lane = await take_lane(self._store, key, deadline=deadline, owner=self._owner, alive=True)
                async with freed_on_error(self._store, lane):
                    replica, run = await self._factory.load(key)
                    if run is not None and run.status is RunStatus.RUNNING:
                        await self._take_over(replica, lane, run)
                        continue
                    holding = self._store.keeper.hold(lane, lambda: None)
                    try:
                        done = await work(replica, lane)
                    finally:
                        self._store.keeper.release(holding)
                    if not keeps_lane:
                        await free_lane(self._store, lane)
                    return done

    async def _acquire(self, key: SessionKey) -> Lane:
        return await ask_for_lane(self._store, key, self._owner, new_id(), alive=True)

    async def _is_current(self, replica: Replica, *, without_input: bool = False) -> bool:
        """Return whether a replica is still current; the commit that uses it verifies that."""
        stamp = await self._store.stamp(replica.key)
        known = (replica.life, replica.version, replica.commit_number, replica.generation)
        if stamp is None or stamp[:4] != known:
            return False
        replica.note_stamp(stamp)
        return replica.queue_empty or not without_input

    async def _next_input(self, replica: Replica, *, prefetched: bool = False) -> Input | None:
        """Return the first due input for the next turn.

        If this replica's queue was `prefetched` and nothing arrived since, it is used. If it is out of date, the commit
        that takes the input is refused.
        """
        if not (prefetched and replica.queue and replica.queue.inputs):
            found = await self._store.inbox.list(replica.key, limit=_QUEUE_PREFETCH + 1)
            replica.note_queue(found[:_QUEUE_PREFETCH], more=len(found) > _QUEUE_PREFETCH)
            if any(map(self._inputs.is_for_others, found)) or _may_be_held(replica, found):
                replica.invalidate_queue()
                return await self._next_for_here(replica)
        if replica.queue is None:
            first = await self._store.inbox.first(replica.key)
            mine = first is None or not (self._inputs.is_for_others(first) or _may_be_held(replica, [first]))
            return first if mine else await self._next_for_here(replica)
        return replica.queue.inputs[0] if replica.queue.inputs else None

    async def _next_for_here(self, replica: Replica) -> Input | None:
        """Return the first due input for the next turn that is not for other processes, nor held by an open wait."""
        key, now = replica.key, await self._store.moment()
        after: int | None = None
        holds = _is_suspended(replica) and bool(await self._store.waits.of_session(key))
        while found := await self._store.inbox.list(key, after=after):
            for each in found:
                due = each.boundary is None and each.run_id is None and (each.due_at is None or each.due_at <= now)
                if due and not self._inputs.is_for_others(each) and not (holds and spares_waits(each)):
                    return each
            after = found[-1].seq
        return None

    async def _begin_on(self, replica: Replica, first: FirstMessage) -> TurnContext | None:
        """Begin a turn on a replica: its first commit re-arms the lane; None if the replica is stale."""
        lane = Lane(
            key=replica.key,
            life=replica.life,
            generation=replica.generation,
            nonce=new_id(),
            owner=self._owner,
            claimed_at=replica.updated_at,
            expires_at=replica.updated_at,
        )
        try:
            return await self._factory.begin(replica, lane, first, warm=True)
        except ReplicaStale:
            return None

    async def _take_over(self, replica: Replica, lane: Lane, run: Run, progress: Progress | None = None) -> None:
        """Take over a lost run of the runtime; end any other as interrupted, so that its own engine can resume it."""
        if await start_point(self._store, run) is None:
            await end_orphan(self._store, run, lane)
            return
        self._factory.check_known(replica)
        turn = await take_over_run(self._factory, replica, lane, run)
        if turn is not None:
            await self._run_noted(turn, progress)

    async def _handle(self, replica: Replica, lane: Lane, queued: Input, progress: Progress | None = None) -> None:
        turn = await self._inputs.handle(replica, lane, queued)
        if turn is not None:
            await self._run_noted(turn, progress)

    async def _run_on(
        self, turn: TurnContext, progress: Progress, until: str | None, should_continue: Continuation | None
    ) -> bool:
        """Run a turn and those that begin when it ends; return whether the last one was for the input `until`."""

        def plan_next(ending: TurnContext) -> NextTurn | None:
            queue = ending.replica.queue
            if queue is None or not queue.inputs or (until is not None and ending.invocation.input_id == until):
                return None
            stays = should_continue is None or should_continue()
            return self._factory.plan_next(ending, queue.inputs[0]) if stays else None

        while True:
            input_id, next_turn = turn.invocation.input_id, await self._run_noted(turn, progress, plan_next)
            if next_turn is None:
                return until is not None and input_id == until
            turn = next_turn

    async def _run_noted(
        self, turn: TurnContext, progress: Progress | None, plan_next: PlanNext | None = None
    ) -> TurnContext | None:
        """Run a turn that has begun, note its outcome, and return the turn that its last commit began."""
        ended = await self._run(turn, plan_next)
        if progress is not None:
            progress.outcomes.append((turn.invocation.invocation_id, ended.outcome))
        return ended.next_turn

    def _keep(self, replica: Replica) -> None:
        """Keep a replica for the session's next turn, whose first commit confirms it."""
        self._replicas.put(replica.key, replica, replica.size)

    async def run(self, turn: TurnContext) -> Outcome[Any]:
        """Run a turn that has begun to its end, and return its outcome."""
        return (await self._run(turn, None)).outcome

    async def _run(self, turn: TurnContext, plan_next: PlanNext | None) -> Ended:
        """Run a turn that has begun, keep the replica for the next one, and notify the waiters of this process."""
        try:
            ended = await self._runner.run(turn, plan_next)
        except BaseException:
            self._replicas.pop(turn.key)
            raise
        replica, next_turn = turn.replica, ended.next_turn
        upto = next_turn.first_entry if next_turn is not None else {}
        replica.size += 256 + sum(
            rough_size(item)
            for name, items in replica.logs.items()
            for item in items[turn.first_entry.get(name, 0) : upto.get(name)]
        )
        if next_turn is None:
            self._keep(replica)
        if (input_id := turn.invocation.input_id) in self.waiters and input_id is not None:
            self.waiters.notify(input_id, ended.outcome)
        return ended


async def _nothing() -> None:
    return None


def _is_suspended(replica: Replica) -> bool:
    return replica.last_run is not None and replica.last_run[1] is RunStatus.SUSPENDED


def _may_be_held(replica: Replica, inputs: Sequence[Input]) -> bool:
    """Return whether one of these inputs may have to wait until the session waits for nothing."""
    return _is_suspended(replica) and any(map(spares_waits, inputs))


def _is_idle(replica: Replica) -> bool:
    """Return whether a message may begin a turn at once, as far as the replica knows: no run is open."""
    over = replica.last_run is None or replica.last_run[1] not in (RunStatus.SUSPENDED, RunStatus.RUNNING)
    return over and replica.status is SessionStatus.ACTIVE
