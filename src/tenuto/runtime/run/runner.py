"""Runs turns that have begun, to whatever end they come."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from tenuto.errors import (
    StopWithdrawn,
    TenutoError,
)
from tenuto.model.input import Boundary
from tenuto.runtime.program.program import Programs, Result
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.end import InputArrived, TurnEnder
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.turn.invocation import TurnStopped, TurnSuspended, signal_in


class Runner:
    """Runs programs in their turns, and knows which turns are live here."""

    def __init__(self, programs: Programs, endings: TurnEnder) -> None:
        self.live: dict[str, Turn] = {}
        self._programs = programs
        self._endings = endings
        self.on_live: Callable[[], None] = lambda: None

    async def run(self, live: Turn) -> Outcome:
        """Run a begun turn to its end and say how it went; the end is one commit."""
        self.live[live.run_id] = live
        self.on_live()
        try:
            while True:
                try:
                    return await self._run(live)
                except StopWithdrawn:
                    _take_up_again(live)
                except asyncio.CancelledError as signal:
                    if live.writer.ended:
                        raise
                    live.pending.settled.clear()
                    live.pending.outgoing.clear()
                    return await self._endings.cut_off(live, signal)
        finally:
            self.live.pop(live.run_id, None)
            live.close()

    async def _run(self, live: Turn) -> Outcome:
        done: Result | None = None
        while True:
            ended = await self._ended(live, done)
            if isinstance(ended, Outcome):
                return ended
            done = ended  # something came in just before the end

    async def _ended(self, live: Turn, done: Result | None) -> Outcome | Result:
        """Run the program, unless it is done, and end its turn; if something came in for it meanwhile, do not."""
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        live.runs_in(task)
        try:
            result = await self._executed(live, done)
        except TurnSuspended as signal:
            live.runs_in(None)
            return await self._endings.suspended(live, signal)
        except (TurnStopped, asyncio.CancelledError) as signal:
            live.runs_in(None)
            own = isinstance(signal, asyncio.CancelledError) and task.cancelling() <= cancels
            if own and live.stop is None and live.writer.lost is None:
                return await self._endings.failed(live, signal)  # of something the program waited for
            if live.cut and isinstance(signal, TurnStopped):
                task.uncancel()  # the program took the stop's cancellation for itself
            outcome = await self._endings.cut_off(live, signal)
            # A program that left by itself may have had a task group, which counts as a cancellation afterwards too.
            cancelled = live.cut or isinstance(signal, asyncio.CancelledError)
            if cancelled and task.cancelling() > cancels:
                raise asyncio.CancelledError from None  # the caller went away beside the stop
            return outcome
        except GeneratorExit:
            raise  # nothing can be awaited any more
        except BaseException as signal:
            live.runs_in(None)
            if not isinstance(signal, KeyboardInterrupt | SystemExit):
                return await self._endings.failed(live, signal)
            with suppress(TenutoError):
                await self._endings.failed(live, signal)
            raise
        live.runs_in(None)
        if result.error is not None:
            return await self._endings.failed(live, result.error)
        try:
            return await self._endings.completed(live, result)
        except InputArrived:
            return result

    async def _executed(self, live: Turn, done: Result | None) -> Result:
        program = self._programs.of(live.copy.definition)
        live.check_stop()
        while True:
            try:
                result = await program.run(live) if done is None else done
                done = None
            except BaseExceptionGroup as group:
                signal = signal_in(group)
                if signal is not None:
                    raise signal from None
                if not isinstance(group, Exception):
                    raise
                return Result(outcome="errored", error=group)
            except Exception as error:
                return Result(outcome="errored", error=error)
            if result.error is not None or live.writer.ended:
                return result
            if live.stop is not None:
                raise TurnStopped
            if live.steps + 1 >= live.budget:
                return result  # no step is left to answer in: what was sent for this turn is for the next one
            try:
                if not await live.steer(Boundary.BEFORE_COMPLETION):
                    return result
            except TenutoError as error:
                return Result(outcome="errored", error=error)


def _take_up_again(live: Turn) -> None:
    """Let a program run again that was told of a stop before it was withdrawn, on what it had written."""
    live.stop, live.cut = None, False
    live.discard()
    if live.step_over:
        live.count_step()
    live.pending.further.pop("sees_stop", None)
    live.pending.settled.clear()
    live.waits.ask_again()
    live.called.clear()
    live.journal.disown()
    live.discard_chunks()
