"""How turns end, each in one commit: completed, suspended, failed, stopped, or cut off."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.errors import (
    InvalidHistory,
    InvalidInput,
    LaneLost,
    RunNotLive,
    StopRequested,
    StoreError,
    StoreUnavailable,
    StreamMoved,
    TenutoError,
    WaitNotOpen,
)
from tenuto.model.commit import EndRun
from tenuto.model.run import RunStatus, Stop, StopKind
from tenuto.model.session import SessionStatus
from tenuto.model.wait import Wait
from tenuto.runtime.calls.retry import transient_record
from tenuto.runtime.change.hooks import Hooks
from tenuto.runtime.change.program_state import take_changes
from tenuto.runtime.run.failed_calls import outcome_with_last
from tenuto.runtime.run.next_turn import NextTurn, PlanNext
from tenuto.runtime.run.omission import without_anything, without_what_it_made
from tenuto.runtime.run.reply import closing_results, ends_step, keep_reply, outcome_record, reply_text, show_texts
from tenuto.runtime.session.outcome import ABORTED, RUN_ABORTED, Outcome
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.session.status import check_transition
from tenuto.runtime.stream.failures import Failures
from tenuto.runtime.stream.notices import (
    ActionFailed,
    Listeners,
    Notice,
    RunEnded,
    SaveFailed,
    SessionActionExecuted,
    SessionSaved,
    failure,
)
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.debts import abandon_waits, news_for_root, result_for_parent
from tenuto.runtime.turn.failure_log import log_failed_turn
from tenuto.runtime.turn.invocation import TurnSuspended
from tenuto.store.store import Store
from tenuto.writing.error_record import clipped, text_of, with_frames, without_frames
from tenuto.writing.run_writer import RunWriter

_ACTION = "SendMessage"

_NOT_CAUSED_BY_NEXT_TURN = (StopRequested, LaneLost, RunNotLive, StoreError)


class InputArrived(Exception):
    """Input arrived just as the turn was about to end; nothing was written."""


class Ended(NamedTuple):
    """The outcome of a turn, and the turn that its last commit began, if any."""

    outcome: Outcome[Any]
    next_turn: TurnContext | None = None


@dataclass(slots=True)
class TurnEnder:
    """Ends turns; a turn that did not complete leaves no wait and no call open, unless it suspends."""

    store: Store
    listeners: Listeners
    failures: Failures
    hooks: Hooks
    tracebacks: bool = True

    async def completed(
        self, turn: TurnContext, output: JSON, plan_next: PlanNext | None = None, returned_by: JSON = None
    ) -> Ended:
        """End a turn whose program completed; an earlier stop wins. `plan_next` returns the turn to begin with it.

        `returned_by` is the name and version of a program that declares a type for its output.
        """
        try:
            if not turn.traits.resumes and (left := turn.pending.open_calls()):
                raise InvalidHistory(
                    f"The program ended while call {min(left)!r} has no result; call run_tools, or append its result.",
                    call_id=min(left),
                )
            await self._settle_hooks(turn)
            end = EndRun(status=RunStatus.COMPLETED, outcome=outcome_record(turn, output, returned_by))
            planned = plan_next(turn) if plan_next is not None else None
            if planned is not None:
                try:
                    return await self._end(turn, end, output=output, planned=planned)
                except _NOT_CAUSED_BY_NEXT_TURN:
                    raise
                except TenutoError:
                    turn.replica.invalidate_queue()  # the next turn cannot begin in this commit: end this one alone
            return await self._end(turn, end, output=output)
        except StopRequested as refusal:
            return await self._stopped(turn, refusal.stop)
        except (LaneLost, RunNotLive, InputArrived):
            raise
        except _StageFailed as fault:
            return await self.failed(turn, fault.error, fault.notice)
        except Exception as error:
            turn.note_store_failure(error)
            return await self.failed(turn, error)

    async def _settle_hooks(self, turn: TurnContext) -> None:
        if not self.hooks:
            return
        await turn.pending.catch_up(self.store)
        before, key = turn.replica.value(), turn.key
        try:
            after = await self.hooks.on_stage("after_action", before)
        except Exception as error:
            notice = ActionFailed(key=key, stage="after_action", action=_ACTION, **failure(error))
            raise _StageFailed(error, notice) from error
        try:
            after = await self.hooks.on_stage("before_save", after)
            check_transition(key, before.status, after.status, before.version)
            take_changes(turn, before, after)
        except Exception as error:
            saving = SaveFailed(key=key, stage="before_save", **failure(error))
            raise _StageFailed(error, saving) from error

    async def suspended(self, turn: TurnContext, signal: TurnSuspended) -> Ended:
        """End a turn whose program waits for something, with its waits."""
        try:
            await self._settle_hooks(turn)
            end = EndRun(status=RunStatus.SUSPENDED, partial=signal.partial)
            turn.pending.outgoing.extend(news_for_root(turn.key, turn.replica.profile.root, turn.run_id))
            return await self._end(turn, end, waits=signal.waits)
        except StopRequested as refusal:
            return await self._stopped(turn, refusal.stop)
        except (LaneLost, RunNotLive):
            raise
        except _StageFailed as fault:
            return await self.failed(turn, fault.error, fault.notice)
        except Exception as error:
            turn.note_store_failure(error)
            return await self.failed(turn, error)

    async def cut_off(self, turn: TurnContext, signal: BaseException) -> Ended:
        """End a turn whose program was stopped from outside: by a stop, by losing the lane, or by its own caller."""
        task = asyncio.current_task()
        if turn.writer.lost is not None:
            if task is not None and isinstance(signal, asyncio.CancelledError):
                task.uncancel()
            raise turn.writer.lost
        if turn.stop is not None:
            if task is not None and isinstance(signal, asyncio.CancelledError):
                task.uncancel()
            return await self._stopped(turn, turn.stop)
        error = {"category": "cancelled", "message": "The task that ran this turn was cancelled."}
        now = turn.replica.updated_at
        keep_reply(turn, Stop(kind=StopKind.INTERRUPT, reason="cancelled", at=now, seen_at=now))
        with suppress(TenutoError):
            await asyncio.shield(
                self.close(turn, EndRun(status=RunStatus.INTERRUPTED, error=error), "the run was cancelled")
            )
        raise signal

    async def _stopped(self, turn: TurnContext, stop: Stop) -> Ended:
        keep_reply(turn, stop)
        turn.pending.extras["sees_stop"] = True
        if stop.kind is StopKind.ABORT:
            status, category, what = RunStatus.FAILED, RUN_ABORTED, "The run was aborted."
        else:
            status, category, what = RunStatus.INTERRUPTED, "run_interrupted", "The run was interrupted."
        end = EndRun(status=status, error={"category": category, "message": clipped(stop.reason or what)})
        return await self.close(turn, end, "the run was stopped")

    async def failed(self, turn: TurnContext, error: BaseException, fault: Notice | None = None) -> Ended:
        """End a turn whose program, or a hook after it, failed; it keeps its message and what it had written.

        Whether the lane is lost is decided by the commit: an error that says so may come from another session.
        """
        if turn.writer.lost is not None:
            raise turn.writer.lost
        await self._check_known(turn, error)
        log_failed_turn(turn, error)
        turn.discard()
        record = transient_record(error)
        record = with_frames(record, error) if self.tracebacks else record
        end = EndRun(status=RunStatus.FAILED, error=record, outcome=outcome_with_last(turn.journal))
        ended = await self.close(turn, end, "the run failed", fault=fault)
        return ended._replace(outcome=replace(ended.outcome, exception=error))

    async def close(
        self, turn: TurnContext, end: EndRun, reason: str, told: Sequence[Notice] = (), *, fault: Notice | None = None
    ) -> Ended:
        """End a run that did not complete: none of its waits and calls stays open.

        If no commit accepts the pending changes, they are left out, part by part.
        """
        await self._check_known(turn)
        without = iter((without_what_it_made, without_anything))
        while True:
            waits = await self.store.waits.of_session(turn.key, run_id=turn.run_id, status=None)
            settled, owed = abandon_waits(waits, turn.key.tenant)
            results = closing_results(turn.pending.open_calls(), waits, turn.journal, reason)
            if results:
                turn.pending.add(MESSAGES, results)
            turn.pending.outgoing.extend(owed)
            turn.pending.settled.extend(settled)
            try:
                return await self._end(turn, end, told=told, fault=fault)
            except WaitNotOpen:  # raced with an answer: retry
                turn.pending.settled.clear()
                turn.pending.outgoing.clear()
                if results:
                    del turn.replica.messages[-len(results) :]
            except InvalidInput:
                turn.pending.settled.clear()
                if (leave_out := next(without, None)) is None:
                    raise
                end, fault = leave_out(turn, end), None

    async def _check_known(self, turn: TurnContext, error: BaseException | None = None) -> None:
        """Leave a run whose store failed to the runner that takes it over; raise `StoreUnavailable`.

        The last write may have landed or not; while that is unknown, no end can be written either.
        """
        await turn.chunks.settle()
        with suppress(StoreError):
            async with turn.writer.writing:
                await turn.chunks.resolve()
        failed_by_store = error is not None and error is turn.store_failure
        if failed_by_store or turn.writer.in_doubt or turn.chunks.in_doubt:
            await turn.writer.abandon()
            lost = StoreUnavailable(
                f"The store became unavailable during a turn of {turn.key}. Another runner will resume the turn from "
                "its last commit; send again with the same key, or call outcome(input_id)."
            )
            await self.failures.save(turn.key, lost)
            raise lost from error

    async def _end(
        self,
        turn: TurnContext,
        end: EndRun,
        *,
        output: JSON = None,
        waits: tuple[Any, ...] = (),
        told: Sequence[Notice] = (),
        fault: Notice | None = None,
        planned: NextTurn | None = None,
    ) -> Ended:
        replica, pending = turn.replica, turn.pending
        show_texts(turn)
        steps = turn.steps + int(ends_step(turn, end.status))
        notices = self._ending_notices(turn, end, steps, fault)
        await turn.chunks.settle()
        if turn.chunks.is_heavy:
            async with turn.writer.writing:
                await turn.chunks.lighten()
        pending.events.extend(turn.chunks.take())
        marked = len(pending.events)
        pending.events.extend(notice.event() for notice in notices)
        pending.steps = steps
        if end.status is not RunStatus.SUSPENDED and turn.invocation.reply_to is not None:
            answer = result_for_parent(
                turn.invocation.reply_to,
                turn.key,
                status=str(end.status),
                output=output,
                text=reply_text(turn),
                error=end.error and without_frames(end.error),
            )
            if answer is not None:
                pending.outgoing.append(answer)
        guarded = (
            end.status is RunStatus.COMPLETED and turn.ends_guarded and (replica.no_steering or planned is not None)
        )
        if guarded:
            pending.extras["expected_events"] = replica.event_seq
        if planned is not None:
            pending.extras["next_run"] = planned.part
        before = turn.last_receipt
        try:
            receipt = await turn.commit(end=end, waits=waits)
        except BaseException as error:
            if planned is not None:
                if turn.last_receipt is not None and turn.last_receipt is not before:  # it landed after all
                    begun = planned.begun(turn.last_receipt)
                    await self.release(begun, begun.writer, error)
                else:
                    pending.extras.pop("next_run", None)
                    planned.drop()
            pending.extras.pop("expected_events", None)
            del pending.events[marked:]
            if pending.outgoing and end.status is not RunStatus.SUSPENDED and turn.invocation.reply_to is not None:
                pending.outgoing.pop()
            if guarded and isinstance(error, StreamMoved):
                replica.invalidate_queue()
                raise InputArrived from error
            raise
        next_turn = None if planned is None else planned.begun(receipt)
        if planned is None:
            replica.last_run = (turn.run_id, end.status)
        outcome = await self._outcome(turn, end, output)
        try:
            if self.listeners:
                await self.listeners.tell(*told, notices[0])
            await self._after_save(turn)
            if self.listeners:
                await self.listeners.tell(*notices[1:], *(planned.notices if planned else ()))
        except BaseException as error:
            if next_turn is not None:
                await self.release(next_turn, next_turn.writer, error)
            raise
        return Ended(outcome, next_turn)

    async def release(self, turn: TurnContext | None, writer: RunWriter, error: BaseException) -> None:
        """Release a turn that will not run: if its caller was cancelled as the run began, end the run."""
        try:
            if isinstance(error, asyncio.CancelledError) and turn is not None and writer.begun and not writer.ended:
                with suppress(asyncio.CancelledError, TenutoError):
                    await self.cut_off(turn, error)
        finally:
            await writer.abandon()

    def _ending_notices(self, turn: TurnContext, end: EndRun, steps: int, fault: Notice | None) -> list[Notice]:
        replica = turn.replica
        error = end.error and without_frames(end.error)
        ended = RunEnded(key=replica.key, run_id=turn.run_id, status=str(end.status), steps=steps, error=error)
        if fault is not None:
            return [fault, ended]
        version = replica.version + int(turn.pending.moves_head)
        status = str(replica.status)
        return [
            SessionActionExecuted(
                key=replica.key,
                action=_ACTION,
                before_version=replica.version,
                after_version=version,
                before_status=str(SessionStatus.ACTIVE),
                after_status=status,
            ),
            SessionSaved(key=replica.key, version=version, status=status),
            ended,
        ]

    async def _after_save(self, turn: TurnContext) -> None:
        if not self.hooks:
            return
        try:
            await turn.pending.catch_up(self.store)
            await self.hooks.on_stage("after_save", turn.replica.value())
        except Exception as error:
            await self.failures.hook(turn.key, error, "after_save")

    async def _outcome(self, turn: TurnContext, end: EndRun, output: JSON) -> Outcome[Any]:
        waits: list[Wait] = []
        if end.status is RunStatus.SUSPENDED:
            waits = await self.store.waits.of_session(turn.key, run_id=turn.run_id)
        record: Any = end.outcome or {}
        reply = turn.replica.messages[record["reply"][2]] if "reply" in record else record.get("said")
        return Outcome(
            session_id=turn.key.session_id,
            status=end.status.value,
            run_id=turn.run_id,
            input_id=turn.invocation.input_id,
            output=output,
            reply=reply,
            error=end.error,
            waits=tuple(waits),
            version=turn.replica.version,
            resume_refused=ABORTED if _is_aborted(end) else None,
        )


class _StageFailed(Exception):
    """A hook failed before the turn's last commit; the notice names the stage."""

    def __init__(self, error: Exception, notice: Notice) -> None:
        super().__init__(text_of(error))
        self.error = error
        self.notice = notice


def _is_aborted(end: EndRun) -> bool:
    error: Any = end.error or {}
    return end.status is RunStatus.FAILED and error.get("category") == RUN_ABORTED
