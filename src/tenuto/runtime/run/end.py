"""How turns end, each in one commit: completed, suspended, failed, stopped, or cut off."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    InvalidInput,
    LaneLost,
    RunNotLive,
    StopRequested,
    StoreError,
    StoreUnavailable,
    TenutoError,
    VersionConflict,
    WaitNotOpen,
)
from tenuto.model.commit import EndRun
from tenuto.model.run import RunStatus, Stop, StopKind
from tenuto.model.session import SessionStatus
from tenuto.model.wait import Wait
from tenuto.runtime.change.hooks import Controller, Stage
from tenuto.runtime.program.program import Result
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.remains import (
    RUN_ABORTED,
    closing_results,
    given_up,
    keep_reply,
    outcome_record,
    result_for_parent,
)
from tenuto.runtime.session.outcome import Outcome, OutcomeStatus
from tenuto.runtime.session.session_view import MESSAGES, changes_between
from tenuto.runtime.session.status import check_transition
from tenuto.runtime.stream.notices import (
    ActionFailed,
    HookFailed,
    Listeners,
    Notice,
    RunEnded,
    SaveFailed,
    SessionActionExecuted,
    SessionSaved,
    failure,
)
from tenuto.runtime.turn.invocation import TurnSuspended
from tenuto.store.store import Store
from tenuto.writing.error_record import bare_record, clipped, error_record, shown, text_of

_ACTION = "SendMessage"


_NOT_FOR_WHAT_FOLLOWS = (StopRequested, LaneLost, RunNotLive, StoreError)


class InputArrived(Exception):
    """Something was sent to the session just as its turn was about to end; nothing was written."""


@dataclass(slots=True)
class TurnEnder:
    """Ends turns; nothing of one that did not complete stays open."""

    store: Store
    listeners: Listeners
    hooks: Controller | None

    async def completed(self, live: Turn, result: Result) -> Outcome:
        """End a turn whose program came to its end; a stop that was asked for first wins."""
        try:
            await self._settle_hooks(live)
            end = EndRun(status=RunStatus.COMPLETED, outcome=outcome_record(live, result.output))
            live.following = live.foresee() if live.foresee is not None else None
            if live.following is not None:
                try:
                    return await self._end(live, end, output=result.output)
                except _NOT_FOR_WHAT_FOLLOWS:
                    raise
                except TenutoError:
                    live.copy.disturbed()  # what was to follow cannot: the turn ends by itself
            return await self._end(live, end, output=result.output)
        except StopRequested as refusal:
            return await self._stopped(live, refusal.stop)
        except (LaneLost, RunNotLive, InputArrived):
            raise
        except _StageFailed as fault:
            return await self.failed(live, fault.error, fault.notice)
        except Exception as error:
            live.note_store(error)
            return await self.failed(live, error)

    async def _settle_hooks(self, live: Turn) -> None:
        if self.hooks is None:
            return
        before, key = live.copy.value(), live.key
        try:
            after = await self.hooks.on_stage(Stage.AFTER_ACTION, before)
        except Exception as error:
            notice = ActionFailed(key=key, stage=str(Stage.AFTER_ACTION), action=_ACTION, **failure(error))
            raise _StageFailed(error, notice) from error
        try:
            after = await self.hooks.on_stage(Stage.BEFORE_SAVE, after)
            check_transition(key, before.status, after.status, before.version)
            changes = changes_between(before, after)
        except Exception as error:
            saving = SaveFailed(key=key, stage=str(Stage.BEFORE_SAVE), **failure(error))
            raise _StageFailed(error, saving) from error
        live.pending.take(changes, after)

    async def suspended(self, live: Turn, signal: TurnSuspended) -> Outcome:
        """End a turn whose program waits for something, with its waits."""
        try:
            await self._settle_hooks(live)
            end = EndRun(status=RunStatus.SUSPENDED, partial=signal.partial)
            return await self._end(live, end, waits=signal.waits)
        except StopRequested as refusal:
            return await self._stopped(live, refusal.stop)
        except (LaneLost, RunNotLive):
            raise
        except _StageFailed as fault:
            return await self.failed(live, fault.error, fault.notice)
        except Exception as error:
            live.note_store(error)
            return await self.failed(live, error)

    async def cut_off(self, live: Turn, signal: BaseException) -> Outcome:
        """End a turn whose program was stopped from outside: by a stop, by losing the lane, or by its own caller."""
        task = asyncio.current_task()
        if live.writer.lost is not None:
            if task is not None and isinstance(signal, asyncio.CancelledError):
                task.uncancel()
            raise live.writer.lost
        if live.stop is not None:
            if task is not None and isinstance(signal, asyncio.CancelledError):
                task.uncancel()
            return await self._stopped(live, live.stop)
        error = {"category": "cancelled", "message": "The task that ran this turn was cancelled."}
        now = live.copy.updated_at
        keep_reply(live, Stop(kind=StopKind.INTERRUPT, reason="cancelled", at=now, seen_at=now))
        with suppress(TenutoError):
            await asyncio.shield(
                self.close(live, EndRun(status=RunStatus.INTERRUPTED, error=error), "the run was cancelled")
            )
        raise signal

    async def _stopped(self, live: Turn, stop: Stop) -> Outcome:
        keep_reply(live, stop)
        live.pending.further["sees_stop"] = True
        if stop.kind is StopKind.ABORT:
            error = {"category": RUN_ABORTED, "message": clipped(stop.reason or "The run was aborted.")}
            end = EndRun(status=RunStatus.FAILED, error=error)
        else:
            end = EndRun(status=RunStatus.INTERRUPTED, error=_stop_record(stop))
        return await self.close(live, end, "the run was stopped")

    async def failed(self, live: Turn, error: BaseException, fault: Notice | None = None) -> Outcome:
        """End a turn whose program, or a controller after it, failed; it keeps its message and what it had written.

        If the lane is lost, the commit says so; an error that says it may be of another session.
        """
        if live.writer.lost is not None:
            raise live.writer.lost
        await self._check_known(live, error)
        live.discard()
        end = EndRun(status=RunStatus.FAILED, error=error_record(error))
        return await self.close(live, end, "the run failed", fault=fault)

    async def close(
        self, live: Turn, end: EndRun, reason: str, told: Sequence[Notice] = (), *, fault: Notice | None = None
    ) -> Outcome:
        """End a run that did not come to its own end: no wait and no call of it stays open.

        What is pending is left out, part by part, if no commit would take it.
        """
        await self._check_known(live)
        without = iter((_without_what_it_made, _without_anything))
        while True:
            waits = await self.store.waits.of_session(live.key, run_id=live.run_id, status=None)
            settled, owed = given_up(waits, live.key.tenant)
            results = closing_results(live.pending.open_calls(), waits, live.journal, reason)
            if results:
                live.pending.add(MESSAGES, results)
            live.pending.outgoing.extend(owed)
            live.pending.settled.extend(settled)
            try:
                return await self._end(live, end, told=told, fault=fault)
            except WaitNotOpen:  # answered at this very moment: look again
                live.pending.settled.clear()
                live.pending.outgoing.clear()
                if results:
                    del live.copy.messages[-len(results) :]
            except InvalidInput:
                live.pending.settled.clear()
                if (leave_out := next(without, None)) is None:
                    raise
                end, fault = leave_out(live, end), None

    async def _check_known(self, live: Turn, error: BaseException | None = None) -> None:
        """Leave a run that the store failed to whoever takes it over, and sees what stands; nobody else is to blame.

        What was written last may have landed or not, and if that cannot be found out, no end can be written either.
        """
        await live.chunks.settle()
        with suppress(StoreError):
            async with live.writer.writing:
                await live.chunks.resolve()
        failed_by_store = error is not None and error is live.store_failure
        if failed_by_store or live.writer.in_doubt or live.chunks.in_doubt:
            await live.writer.abandon()
            raise StoreUnavailable(
                f"The store failed the turn of {live.key}, which goes on from whatever stands. Send again with the "
                "same key, or ask for the input's outcome."
            ) from error

    async def _end(
        self,
        live: Turn,
        end: EndRun,
        *,
        output: JSON = None,
        waits: tuple[Any, ...] = (),
        told: Sequence[Notice] = (),
        fault: Notice | None = None,
    ) -> Outcome:
        copy, pending = live.copy, live.pending
        steps = live.steps + int(_ends_step(live, end.status))
        notices = self._ending_notices(live, end, steps, fault)
        await live.chunks.settle()
        if live.chunks.is_heavy:
            async with live.writer.writing:
                await live.chunks.lighten()
        pending.events.extend(live.chunks.take())
        marked = len(pending.events)
        pending.events.extend(notice.event() for notice in notices)
        pending.steps = steps
        if end.status is not RunStatus.SUSPENDED and live.invocation.reply_to is not None:
            answer = result_for_parent(
                live.invocation.reply_to, live.key, status=str(end.status), output=_told(live, output), error=end.error
            )
            if answer is not None:
                pending.outgoing.append(answer)
        following = live.following
        undisturbed = copy.undisturbed or following is not None
        guarded = end.status is RunStatus.COMPLETED and live.ends_guarded and undisturbed
        if guarded:
            pending.further["expected_events"] = copy.event_seq
        if following is not None:
            pending.further["next_run"] = following.part
        try:
            await live.commit(end=end, waits=waits)
        except BaseException as error:
            pending.further.pop("expected_events", None)
            if following is not None and live.follower is None:
                pending.further.pop("next_run", None)
                following.drop()
                live.following = None
            del pending.events[marked:]
            if pending.outgoing and end.status is not RunStatus.SUSPENDED and live.invocation.reply_to is not None:
                pending.outgoing.pop()
            if guarded and isinstance(error, VersionConflict) and error.details().get("counted") == "events":
                copy.disturbed()
                raise InputArrived from error
            raise
        if following is None:
            copy.last_run = (live.run_id, end.status)
        outcome = await self._outcome(live, end, output)
        if self.listeners:
            await self.listeners.tell(*told, notices[0])
        await self._after_save(live)
        if self.listeners:
            await self.listeners.tell(*notices[1:], *(following.notices if following else ()))
        return outcome

    def _ending_notices(self, live: Turn, end: EndRun, steps: int, fault: Notice | None) -> list[Notice]:
        copy = live.copy
        ended = RunEnded(key=copy.key, run_id=live.run_id, status=str(end.status), steps=steps, error=end.error)
        if fault is not None:
            return [fault, ended]
        saves = live.pending.moves_head
        status = str(copy.status)
        return [
            SessionActionExecuted(
                key=copy.key,
                action=_ACTION,
                before_version=copy.version,
                before_status=str(SessionStatus.ACTIVE),
                after_status=status,
            ),
            SessionSaved(key=copy.key, version=copy.version + int(saves), status=status),
            ended,
        ]

    async def _after_save(self, live: Turn) -> None:
        if self.hooks is None:
            return
        try:
            await self.hooks.on_stage(Stage.AFTER_SAVE, live.copy.value())
        except Exception as error:
            await self.listeners.tell(HookFailed(key=live.key, stage=str(Stage.AFTER_SAVE), error=shown(error)))

    async def _outcome(self, live: Turn, end: EndRun, output: JSON) -> Outcome:
        waits: list[Wait] = []
        if end.status is RunStatus.SUSPENDED:
            waits = await self.store.waits.of_session(live.key, run_id=live.run_id)
        record: Any = end.outcome or {}
        reply = live.copy.messages[record["reply"][2]] if "reply" in record else record.get("said")
        if output is None and reply is not None:
            output = reply.get("content")
        return Outcome(
            session_id=live.session_id,
            status=OutcomeStatus(str(end.status)),
            run_id=live.run_id,
            input_id=live.invocation.input_id,
            output=output,
            reply=reply,
            error=end.error,
            waits=tuple(waits),
            version=live.copy.version,
        )


def _without_what_it_made(live: Turn, end: EndRun) -> EndRun:
    """Leave out what a turn said and made that is not written, and results of calls that no commit has room for."""
    live.discard()
    live.chunks.take()
    live.pending.events.clear()
    while live.shorten_result():
        pass
    return end


def _without_anything(live: Turn, end: EndRun) -> EndRun:
    """Leave out all that is pending, calls that came back included: of those nobody knows what became."""
    live.discard()
    pending = live.pending
    live.journal.forget(pending.effects)
    pending.effects, pending.usage, pending.events, pending.outgoing = [], [], [], []
    return replace(end, error=bare_record(end.error))


class _StageFailed(Exception):
    """A controller failed before the turn's last commit; the notice names the stage."""

    def __init__(self, error: Exception, notice: Notice) -> None:
        super().__init__(text_of(error))
        self.error = error
        self.notice = notice


def _ends_step(live: Turn, status: RunStatus) -> bool:
    """Tell whether a step is over with its turn.

    It is in a completed turn, and once its calls are answered. So is one that is cut off but for a call on record and
    what it said of it, which stays: begun again, it would make that call on another conversation.
    """
    if not live.in_step or status is RunStatus.COMPLETED:
        return live.in_step
    if not live.loops:
        return False
    calls = live.pending.calls()
    if status is RunStatus.SUSPENDED:
        return not live.pending.open_calls() if calls else live.step_over
    return live.step_over or (live.pending.says and (bool(calls) or live.journal.knows(live.step)))


def _told(live: Turn, output: JSON) -> JSON:
    if output is not None:
        return output
    record: Any = outcome_record(live, None) or {}
    return live.copy.messages[record["reply"][2]].get("content") if "reply" in record else record.get("output")


def _stop_record(stop: Stop) -> JSON:
    return {"category": "run_interrupted", "message": clipped(stop.reason or "The run was interrupted.")}
