"""The makings of a call to the outside: it is made, and made again after failures that may pass."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from tenuto.codec import JSON, dumps
from tenuto.errors import EffectFailed, InvalidInput, NotJson
from tenuto.model.wait import WaitKind, WaitStatus
from tenuto.runtime.calls.arguments import sized
from tenuto.runtime.calls.failure import failure_of, failure_record, without_type
from tenuto.runtime.calls.result_form import PlainForm, ResultForm
from tenuto.runtime.calls.retry import Retry
from tenuto.runtime.calls.suspension import suspend
from tenuto.runtime.stream.moments import CallBegan, CallOver, CallRepeated
from tenuto.runtime.turn.context import TurnContext, leave_call
from tenuto.runtime.turn.effect_journal import Known, Place, place_of
from tenuto.runtime.turn.invocation_waits import PAUSED, WaitRequest

Call: TypeAlias = Callable[[], Awaitable[JSON]]
Record: TypeAlias = Callable[[JSON, JSON], None]


LONGEST_REST = 30.0
"""The longest pause between two makings, in seconds, that a turn stays in memory for."""


class TimedOut(Exception):
    """A call that must not be repeated took too long: it may have been carried out."""


@dataclass(slots=True)
class Making:
    """A call that is about to be made: how often, what its result is, and what is added with it (`record`).

    A call that is not `repeatable` may have been carried out if it took too long. Of its exceptions, the program gets
    only those that it `raises`. `tool` is the name of the tool that a model called.
    """

    turn: TurnContext
    place: Place
    call: Call
    retry: Retry
    form: ResultForm[Any] | PlainForm
    repeatable: bool
    raises: tuple[type[Exception], ...] = ()
    record: Record | None = None
    tool: str | None = None
    may_suspend: bool = True
    number: int = 1
    is_paused: bool = False

    async def made(self) -> Any:
        """Make the call, and note its result, or its last failure, which is raised."""
        begun = self.turn.journal.find(self.place)
        assert begun is not None
        if begun.making > 1 and (pause := self.turn.waits.pause_of(str(self.place), begun.making - 1)) is not None:
            self.number = int(str(pause.metadata["number"])) + 1
        if (inline := self.turn.inline) is None:
            return (await self._noted())[0]
        ids = self.turn.ids
        kind, request, call_id = begun.kind, begun.request, begun.call_id
        inline.mark(CallBegan(ids=ids, place=self.place, kind=kind, request=request, call_id=call_id, tool=self.tool))
        try:
            value, stored = await self._noted()
        except BaseException as error:  # its moment has what its code raised, rather than how that is reported
            cause = (error.__cause__ if isinstance(error, EffectFailed | TimedOut) else None) or error
            inline.mark(CallOver(ids=ids, place=self.place, exception=cause))
            raise
        inline.mark(CallOver(ids=ids, place=self.place, result=stored))
        return value

    async def _noted(self) -> tuple[Any, JSON]:
        """Return the result as the program gets it, and as it is stored."""
        turn, where = self.turn, f"result of {self.place}"
        result = await self._repeated()
        try:
            stored = self.form.stored(result, where)
            value = self.form.read(sized(dumps(stored, where), where, turn.room), where)
        except Exception as error:
            if isinstance(error, NotJson) and isinstance(self.form, PlainForm) and self.tool is None:
                told = f"{error.message} To keep its type, declare it: pass `returns=`."
                error = NotJson(told, path=error.path)
            problem = self._failed(error)
            raise problem from problem.__cause__
        turn.pending.effects.append(turn.journal.finish(self.place, result=stored))
        turn.journal.went_past(self.place.inner)
        if self.record is not None:
            self.record(stored, None)
        return value, stored

    async def _repeated(self) -> Any:
        """Make the call until it returns, or fails for the last time."""
        while True:
            before = self.turn.enter_call(self.place)
            try:
                async with asyncio.timeout(self.retry.seconds) as limit:
                    return await self.call()
            except Exception as error:
                if limit.expired() and not self.repeatable:
                    raise TimedOut from error
                failure = self._timed_out(error) if limit.expired() else error
            finally:
                leave_call(before)
            try:
                again = await self._may_repeat(failure)
            except asyncio.CancelledError:  # it was cut off between two makings
                if self.record is not None or not self.repeatable:
                    self._failed(failure)  # nothing is in doubt; what may be repeated is, when the run is resumed
                raise
            except InvalidInput as error:  # `retry_on` or `backoff` cannot say
                error.__cause__ = error.__cause__ or failure
                failure, again = error, False
            if not again:
                problem = self._failed(failure)
                raise problem from problem.__cause__
            self.number += 1
            await self._restart()

    def _timed_out(self, error: Exception) -> Exception:
        """Say which limit it was, where a call took too long: the exception of a cut-off has no text."""
        if str(error) or type(error) is not TimeoutError:
            return error
        told = TimeoutError(f"The call {self.place} took longer than {self.retry.seconds:g} s.")
        told.__cause__ = error
        return told

    async def _may_repeat(self, error: Exception) -> bool:
        """Return whether the call is made again, after a pause."""
        turn, retry = self.turn, self.retry
        if self.number > retry.retries or turn.stop is not None or not retry.repeats(error):
            return False
        pause = retry.pause(self.number, error)
        if turn.inline is not None:
            place, number = self.place, self.number
            turn.inline.mark(CallRepeated(ids=turn.ids, place=place, making=number, pause=pause, exception=error))
        turn.journal.repeats(self.place)
        if pause > LONGEST_REST and self.may_suspend and turn.call_under_way() is None:
            await self._suspend(pause, error)
        await asyncio.sleep(pause)
        return turn.stop is None

    async def _restart(self) -> None:
        """Record that the next making begins, in one commit with what the last one used."""
        turn, place = self.turn, self.place
        async with turn.writer.writing:  # no commit is under way that has what is replaced here
            effects = turn.pending.effects
            known = turn.journal.find(place)
            assert known is not None
            started = turn.journal.start(
                place, known.kind, known.request, idempotent=known.idempotent, call_id=known.call_id
            )
            turn.pending.effects = [each for each in effects if place_of(each) != place]
            turn.pending.effects.append(started)
        await turn.commit()

    def is_due(self, known: Known) -> bool:
        """Return whether a failed call is to be made again now; during a long pause before that, the turn suspends."""
        if self.place in self.turn.journal.again:
            return True
        pause = self.turn.waits.pause_of(str(self.place), known.making)
        if pause is not None and pause.status is WaitStatus.OPEN:
            suspend(self.turn, [])
        return pause is not None

    async def _suspend(self, seconds: float, error: Exception) -> NoReturn:
        """Record the failure and the wait for the next making in one commit: a tool's call is always covered."""
        known = self.turn.journal.find(self.place)
        assert known is not None
        about: dict[str, JSON] = {PAUSED: str(self.place), "making": known.making, "number": self.number}
        if known.call_id is not None:
            about["call_id"] = known.call_id
        request = WaitRequest(signal_id=f"retry:{self.place}", kind=WaitKind.TIME, timeout=seconds, metadata=about)
        self.is_paused = True
        await self.turn.open_waits([request.opening(self.turn.step)], lambda: self._note(failure_record(error)))
        suspend(self.turn, [])

    def _failed(self, error: Exception) -> Exception:
        """Note the call's last failure, and return what the program gets for it."""
        stored = failure_record(error)
        self._note(stored)
        if self.record is not None:
            self.record(None, without_type(stored))
        return self.failure(stored, error)

    def _note(self, stored: JSON) -> None:
        self.turn.pending.effects.append(self.turn.journal.finish(self.place, error=stored))
        self.note_failure()

    def note_failure(self) -> None:
        """Note that the program got a failure: nothing follows it yet, or the model gets it."""
        journal = self.turn.journal
        if self.record is not None:
            journal.went_past(self.place.inner)
        elif self.repeatable:
            journal.last.add(self.place)

    def failure(self, record: JSON, live: Exception | None = None) -> Exception:
        """Return what the program gets for a failure; a model that called a tool gets a result."""
        own = self.repeatable and self.record is None
        return failure_of(self.place, record, own=own, raises=self.raises, live=live)
