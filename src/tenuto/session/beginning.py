"""How turns begin: with a message, by going on with a run that stopped, or by taking over from a lost runner."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    ClaimLost,
    LaneLost,
    ProgramNotRegistered,
    SessionDeleted,
    SessionNotFound,
    StatusRefused,
    TenutoError,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.commit import EndRun, NewCheckpoint, Receipt
from tenuto.model.event import NewEvent
from tenuto.model.inbox import Consume, Input, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.outbox import NewOutgoing
from tenuto.model.run import Run, RunStatus, WaitStatus
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.session.chunks import BOUNDARIES, REWOUND
from tenuto.session.copy import Copy
from tenuto.session.effects import InDoubt, Journal
from tenuto.session.ending import (
    MOST_ATTEMPTS,
    RUN_ABANDONED,
    given_up,
    is_answered_call,
    result_for_parent,
)
from tenuto.session.endings import Endings
from tenuto.session.forking import begin_point
from tenuto.session.history import not_executed, outcome_unknown
from tenuto.session.hooks import Controller, Stage
from tenuto.session.invocation import Invocation
from tenuto.session.live import DEFAULT_STEPS, LiveTurn
from tenuto.session.notices import (
    LaneTakenOver,
    Listeners,
    LoadFailed,
    Notice,
    RunStarted,
    SessionLoaded,
    failure,
)
from tenuto.session.pending import Pending
from tenuto.session.program import Declared, Programs, declared_by
from tenuto.session.rewinding import rewind
from tenuto.session.tools import ANSWERS_CALLS, answer_message
from tenuto.session.turn import Turn, is_let_go
from tenuto.session.value import MESSAGES, changes_between
from tenuto.store.port import Store

_ACTIVE = frozenset({SessionStatus.ACTIVE})
_MOVED_ON = (LaneLost, VersionConflict, StatusRefused, SessionDeleted, ClaimLost)


class Missed(Exception):
    """The session is not what its copy in memory was; nothing was written, and it has to be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What begins a turn: a message, as it arrives or from the inbox."""

    message: JSON
    body: JSON
    key: str | None = None
    queued: Input | None = None
    rolls_back: str | None = None


@dataclass(slots=True)
class Beginnings:
    """Begins turns of sessions that its caller has the lane of: with a message, or where another run stopped."""

    store: Store
    programs: Programs
    listeners: Listeners
    hooks: Controller | None
    ending: Endings
    in_doubt: InDoubt = InDoubt.ASK
    budget: int = DEFAULT_STEPS

    async def load(self, key: SessionKey) -> tuple[Copy, Run | None]:
        """Load a session and its last run, or say that there is none."""
        found = await self.store.load_with_run(key)
        if found is None:
            raise SessionNotFound(f"There is no {key}; create it first.", key=key)
        copy = Copy.of(found[0])
        copy.judge_as(conversation=self.declared(copy).is_conversation)
        return copy, found[1]

    def declared(self, copy: Copy) -> Declared:
        """Return how a session's program keeps it; one that is not registered here says nothing."""
        with suppress(ProgramNotRegistered):
            return declared_by(self.programs.of(copy.definition))
        return Declared()

    async def loaded(self, pending: Pending) -> SessionLoaded:
        """Let the controllers see a loaded session, and return the notice of it."""
        copy = pending.copy
        if self.hooks is not None:
            before = copy.value()
            after = await self.hooks.on_stage(Stage.AFTER_LOAD, before)
            pending.take(changes_between(before, after), after)
        return SessionLoaded(key=copy.key, version=copy.version, status=str(copy.status))

    async def begin(self, copy: Copy, lane: Lane, given: Given, *, warm: bool) -> LiveTurn:
        """Begin a turn with a message, in one commit: waits of the last run are given up first, results before it.

        With `warm`, that commit takes the lane back, if nothing happened to the session since it was copied.
        """
        store = self.store
        writer = Turn.rearming(store, lane, copy.commit_number) if warm else Turn.under(store, lane)
        writer.heard = copy.heard
        live: LiveTurn | None = None
        try:
            self._check_takes_turns(copy)
            writer.stand(copy.base)
            reply_to = given.body.get("for") if isinstance(given.body, Mapping) else None
            invocation_id = new_id()
            invocation = Invocation(
                invocation_id=invocation_id,
                origin_id=invocation_id,
                correlation_id=invocation_id,
                input=given.message,
                input_id=_input_id(given, writer),
                reply_to=reply_to,
            )
            writer.begins(invocation_id=invocation_id, correlation_id=invocation_id)
            live = self._turn(copy, writer, invocation, Journal())
            return await self._begun(live, given, warm=warm)
        except asyncio.CancelledError as signal:
            await self._cut_off(live, writer, signal)
            raise
        except BaseException:
            await writer.abandon()
            raise

    async def _cut_off(self, live: LiveTurn | None, writer: Turn, signal: asyncio.CancelledError) -> None:
        """End a run whose caller went away as it began; if it had not begun, free the lane."""
        try:
            if live is not None and writer.begun and not writer.ended:
                with suppress(asyncio.CancelledError, TenutoError):
                    await self.ending.cut_off(live, signal)
        finally:
            await writer.abandon()

    def _check_takes_turns(self, copy: Copy) -> None:
        self.programs.of(copy.definition)
        if copy.status is not SessionStatus.ACTIVE:
            raise StatusRefused(
                f"{copy.key} is {copy.status}; it takes no messages. Resume it first.", key=copy.key, found=copy.status
            )

    def _turn(self, copy: Copy, writer: Turn, invocation: Invocation, journal: Journal) -> LiveTurn:
        declared = self.declared(copy)
        return LiveTurn(
            copy=copy,
            writer=writer,
            invocation=invocation,
            journal=journal,
            pending=Pending(copy, message_logs=declared.message_logs),
            declared=declared,
            in_doubt=self.in_doubt,
            budget=self.budget,
            programs=self.programs,
            ends_guarded=self.hooks is None,
        )

    async def _begun(self, live: LiveTurn, given: Given, *, warm: bool) -> LiveTurn:
        copy, pending = live.copy, live.pending
        log, entry = live.declared.input_log, live.declared.item(given.message)
        notices: list[Notice] = [await self._told_load(live)]
        if given.rolls_back is not None:
            await self._roll_back(live, given.rolls_back)
        elif copy.last_run is not None and copy.last_run[1] is RunStatus.SUSPENDED:
            await self._give_up(live, copy.last_run[0])
        item = pending.add(log, [entry])
        if given.queued is not None:
            pending.consume.append(Consume(input_id=given.queued.input_id, log=log, item=item, spent=True))
        elif given.key is not None:
            arrived = NewInput(
                kind=InputKind.MESSAGE,
                body=given.body,
                key=given.key,
                log=log,
                item=item,
                input_id=live.invocation.input_id,
                spent=True,
            )
            pending.inputs.append(arrived)
        pending.further["statuses"] = _ACTIVE
        if warm and copy.quiet and given.queued is None:
            pending.further["expected_events"] = copy.event_seq
        self._leave_point(live)
        notices.append(self._started(live, given.queued.input_id if given.queued else None))
        pending.events.extend(notice.event() for notice in notices)
        try:
            receipt = await live.commit()
        except _MOVED_ON as error:
            if not warm:
                raise
            raise Missed from error
        if given.queued is not None:
            copy.took(given.queued)
        self._is_live(live, receipt)
        if self.listeners:
            await self.listeners.tell(*notices)
        return live

    async def _told_load(self, live: LiveTurn) -> SessionLoaded:
        try:
            loaded = await self.loaded(live.pending)
        except Exception as error:
            await self.listeners.tell(LoadFailed(key=live.key, stage=str(Stage.AFTER_LOAD), **failure(error)))
            raise
        if self.hooks is not None:
            self._check_takes_turns(live.copy)
        return loaded

    def _started(self, live: LiveTurn, input_id: str | None = None) -> RunStarted:
        return RunStarted(
            key=live.key,
            run_id=live.run_id,
            invocation_id=live.invocation.invocation_id,
            attempt=live.attempt,
            input_id=input_id,
            resumes=live.invocation.resumes,
        )

    def _leave_point(self, live: LiveTurn) -> None:
        """Leave the session as it is before this turn, to be rewound to and forked from, and whom the turn is for."""
        reply_to = live.invocation.reply_to
        live.pending.further["checkpoint"] = NewCheckpoint(
            step=0,
            cursor=None if reply_to is None else {"for": reply_to},
            document=live.pending.stored_document,
            schema_version=live.copy.schema_version,
            before=True,
        )

    def _is_live(self, live: LiveTurn, receipt: Receipt) -> None:
        live.copy.last_run = (live.run_id, RunStatus.RUNNING)
        live.chunks.boundary = receipt.event_seq

    async def _give_up(self, live: LiveTurn, run_id: str) -> None:
        """Settle what a suspended run still waits for, and give each of its open calls a result."""
        waits = await self.store.waits.of_session(live.key, run_id=run_id, status=None)
        settled, owed = given_up(waits, live.key.tenant)
        live.pending.settled.extend(settled)
        live.pending.outgoing.extend(owed)
        run = await self.store.runs.get(run_id)
        if run is not None and (told := await self._told_parent(run)) is not None:
            live.pending.outgoing.append(told)
        answered = {str(w.metadata["call_id"]): w for w in waits if is_answered_call(w)}
        doubtful = {str(w.metadata.get("call_id")) for w in waits if w.kind == "in_doubt"}
        begun = {each.call_id for each in await self.store.effects.list(live.key, in_doubt=True)}
        for call in list(live.copy.history.open):
            if call in answered:
                message = answer_message(answered[call])
            elif call in doubtful or call in begun:
                message = outcome_unknown(call)
            else:
                message = not_executed(call, "it was abandoned for a new message")
            live.pending.add(MESSAGES, [message])

    async def _told_parent(self, run: Run) -> NewOutgoing | None:
        """Return what tells a parent that the run it waits for is given up, if one does."""
        error = {"category": "child_abandoned", "message": "The child was told something else and gave this up."}
        return result_for_parent(await self._reply_to(run), run.key, status="abandoned", error=error)

    async def _reply_to(self, run: Run) -> JSON:
        """Return whom a run is for, as it was noted when it began."""
        point = await begin_point(self.store, run)
        cursor: Any = point.cursor if point else None
        return cursor.get("for") if isinstance(cursor, Mapping) else None

    def _take_notices(self, live: LiveTurn, inputs: Sequence[Input]) -> None:
        for each in inputs:
            body: Any = each.body
            told = live.declared.notice(notice_message(body["notice"])) if _is_notice(each) else None
            if told is not None:
                item = live.pending.add(MESSAGES, [told])
                live.pending.consume.append(Consume(input_id=each.input_id, log=MESSAGES, item=item))
            else:
                live.pending.consume.append(Consume(input_id=each.input_id))

    async def _roll_back(self, live: LiveTurn, run_id: str) -> None:
        """Go back to before a run that was stopped for this turn; a turn that was completed since stays."""
        run = await self.store.runs.get(run_id)
        last = live.copy.last_run
        if run is None or last is None or last[0] != run_id or run.status is RunStatus.COMPLETED:
            return
        found = await begin_point(self.store, run)
        if found is None:
            return
        if run.status is RunStatus.SUSPENDED:
            await self._give_up(live, run_id)
        await rewind(self.store, live.pending, found)
        live.first_entry = {name: len(items) for name, items in live.copy.logs.items()}
        live.pending.further["rolls_back"] = run_id

    async def resume(self, copy: Copy, lane: Lane, run: Run, wakes: Sequence[Input] = ()) -> LiveTurn:
        """Go on with a suspended, interrupted or failed run as a new run of its invocation, in one commit."""
        writer = Turn.under(self.store, lane)
        live: LiveTurn | None = None
        try:
            self._check_takes_turns(copy)
            writer.stand(copy.base)
            live = await self._going_on(copy, writer, run, resumes=run.run_id)
            writer.begins(
                invocation_id=run.invocation_id,
                correlation_id=run.correlation_id,
                origin_id=run.origin_id,
                fresh=False,
            )
            notices: list[Notice] = [await self._told_load(live)]
            overdue = [wait for wait in live.invocation.waits if wait.run_id == run.run_id]
            settled, owed = given_up(overdue, copy.key.tenant, WaitStatus.EXPIRED)
            live.pending.settled.extend(settled)
            live.pending.outgoing.extend(owed)
            live.waits.expire(run.run_id)
            open_calls = set(copy.history.open)
            for wait in live.waits.of_run(run.run_id):
                call = str(wait.metadata.get("call_id"))
                if wait.kind in ANSWERS_CALLS and call in open_calls:
                    live.pending.add(MESSAGES, [answer_message(wait)])
                    open_calls.discard(call)
            if open_calls or live.declared.resumes:  # an engine goes on where it stood
                self._take_notices(live, [each for each in wakes if not _is_notice(each)])
            else:
                self._take_notices(live, wakes)
            live.pending.further |= {"statuses": _ACTIVE, "count_resume": True}
            self._leave_point(live)
            notices.append(self._started(live))
            live.pending.events.extend(notice.event() for notice in notices)
            receipt = await live.commit()
            copy.resume_count += 1
            self._is_live(live, receipt)
        except asyncio.CancelledError as signal:
            await self._cut_off(live, writer, signal)
            raise
        except BaseException:
            await writer.abandon()
            raise
        await self.listeners.tell(*notices)
        return live

    async def take_over(self, copy: Copy, lane: Lane, run: Run) -> LiveTurn | None:
        """Go on with a run whose runner is gone, as its next attempt; None if it had all its attempts and was ended."""
        writer = Turn.under(self.store, lane)
        try:
            writer.stand(copy.base)
            writer.takes(run.run_id, run.attempt, run.ends, run.worker if is_let_go(run) else None)
            live = await self._going_on(copy, writer, run, resumes=None)
            boundary = await self._last_boundary(run)
            live.chunks.boundary = boundary
            notices: list[Notice] = [SessionLoaded(key=copy.key, version=copy.version, status=str(copy.status))]
            if lane.displaced is not None:
                gone = lane.displaced
                notices.append(LaneTakenOver(key=copy.key, owner=gone.owner.owner_id, generation=gone.generation))
            live.pending.events.extend(notice.event() for notice in notices)
            rewound: dict[str, JSON] = {"from": boundary, "attempt": live.attempt}
            live.pending.events.append(NewEvent(type=REWOUND, data=rewound))
            copy.last_run = (run.run_id, RunStatus.RUNNING)
            if run.attempt >= MOST_ATTEMPTS:
                error = {
                    "category": RUN_ABANDONED,
                    "message": f"{run.attempt} runners tried to finish this run and were lost.",
                }
                end = EndRun(status=RunStatus.FAILED, error=error)
                await self.ending.close(live, end, "its run was abandoned", notices)
                return None
            notices.append(self._started(live))
            live.pending.events.append(notices[-1].event())
            receipt = await live.commit()
            live.chunks.boundary = receipt.event_seq
        except BaseException:
            await writer.abandon()
            raise
        await self.listeners.tell(*notices)
        return live

    async def _going_on(self, copy: Copy, writer: Turn, run: Run, *, resumes: str | None) -> LiveTurn:
        """Put up a turn with everything former runs of its invocation left."""
        effects = await self.store.effects.list(copy.key, origin_id=run.origin_id, limit=10_000)
        waits = await self.store.waits.of_invocation(copy.key, run.origin_id)
        runs = await self.store.runs.of_invocation(run.invocation_id, tenant=copy.key.tenant)
        before = sum(each.steps for each in runs if each.run_id != run.run_id)
        invocation = Invocation(
            invocation_id=run.invocation_id,
            origin_id=run.origin_id,
            correlation_id=run.correlation_id,
            input=_last_said(copy),
            resumes=resumes,
            steps_before=before + run.steps if resumes else before,
            waits=tuple(waits),
            reply_to=await self._reply_to(run),
        )
        journal = Journal(effects, run_id=writer.run_id, attempt=writer.attempt)
        live = self._turn(copy, writer, invocation, journal)
        if resumes is None:
            live.steps, live.stop = run.steps, run.stop
        return live

    async def _last_boundary(self, run: Run) -> int:
        """Return up to where a run's chunks stand for something written; what was emitted after it never was."""
        after, found = run.start_sequence, run.start_sequence
        while True:
            page = await self.store.events.read(run.key, after=after, run_id=run.run_id)
            found = max([found, *(event.seq for event in page.events if event.type in BOUNDARIES)])
            if page.next == after or page.next >= page.tail:
                return found
            after = page.next


def _input_id(given: Given, writer: Turn) -> str:
    """Return the id a message is known by; one that begins its turn at once, without a key, is known by its run."""
    if given.queued is not None:
        return given.queued.input_id
    return writer.run_id if given.key is None else new_id()


def notice_message(notice: JSON) -> dict[str, Any]:
    """Return what tells the model of something that came too late to be a result."""
    told: Any = notice
    return {"role": "system", "content": told["text"], "metadata": {"notice": told}}


def _is_notice(each: Input) -> bool:
    return isinstance(each.body, Mapping) and "notice" in each.body


def _last_said(copy: Copy) -> JSON:
    return next(
        (each for each in reversed(copy.messages) if isinstance(each, Mapping) and each.get("role") == "user"), None
    )
