"""Runs turns, once they have begun, to their end."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from tenuto.errors import StopWithdrawn, TenutoError
from tenuto.model.input import Boundary
from tenuto.runtime.calls.steps import steer
from tenuto.runtime.program.output_form import read_output
from tenuto.runtime.program.program import Program, Programs
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.end import Ended, InputArrived, TurnEnder
from tenuto.runtime.run.live_turns import LiveTurns
from tenuto.runtime.run.next_turn import PlanNext
from tenuto.runtime.run.turn_moments import began, left, over
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.invocation import TurnStopped, TurnSuspended, signal_in
from tenuto.writing.run_ids import run_ids


class Runner:
    """Runs programs in their turns; `live` are the turns that run here."""

    def __init__(self, programs: Programs, ender: TurnEnder, live: LiveTurns) -> None:
        self.live = live
        self._programs = programs
        self._ender = ender

    async def run(self, turn: TurnContext, plan_next: PlanNext | None = None) -> Ended:
        """Run a turn that has begun and return how it ended; the end is one commit, which may begin the next turn."""
        before, ids, inline = run_ids.get(), turn.ids, turn.inline
        run_ids.set(ids)
        if inline is not None:
            inline.mark(began(turn, ids))
        try:
            ended = await self._run_live(turn, plan_next)
        except BaseException as error:
            if inline is not None:
                inline.mark(left(ids, error))
            raise
        else:
            if inline is not None:
                inline.mark(over(ids, ended.outcome))
            return ended
        finally:
            run_ids.set(before)  # not by a token, which another context would not accept when the event loop closes

    async def _run_live(self, turn: TurnContext, plan_next: PlanNext | None) -> Ended:
        self.live.add(turn)
        try:
            while True:
                try:
                    return await self._run(turn, plan_next)
                except StopWithdrawn:
                    turn.run_again()
                except asyncio.CancelledError as signal:
                    if turn.writer.ended:
                        raise
                    turn.pending.settled.clear()
                    turn.pending.outgoing.clear()
                    return await self._ender.cut_off(turn, signal)
        finally:
            self.live.remove(turn)
            turn.close()

    async def _run(self, turn: TurnContext, plan_next: PlanNext | None) -> Ended:
        done: _Done | None = None
        while True:
            ended = await self._ended(turn, done, plan_next)
            if isinstance(ended, Ended):
                return ended
            done = ended  # input arrived just before the end

    async def _ended(self, turn: TurnContext, done: "_Done | None", plan_next: PlanNext | None) -> "Ended | _Done":
        """Run the program, unless it is done, and end its turn; if input for it arrived, return its result instead."""
        task = asyncio.current_task()
        assert task is not None
        cancels = task.cancelling()
        turn.runs_in(task)
        try:
            result = await self._executed(turn, done)
        except TurnSuspended as signal:
            turn.runs_in(None)
            return await self._ender.suspended(turn, signal)
        except (TurnStopped, asyncio.CancelledError) as signal:
            turn.runs_in(None)
            own = isinstance(signal, asyncio.CancelledError) and task.cancelling() <= cancels
            if own and turn.stop is None and turn.writer.lost is None:
                return await self._ender.failed(turn, signal)  # something that the program awaited was cancelled
            if turn.cut and isinstance(signal, TurnStopped):
                task.uncancel()  # the program swallowed the stop's cancellation
            ended = await self._ender.cut_off(turn, signal)
            # A program that left by itself may have used a task group, which also raises the count of cancellations.
            cancelled = turn.cut or isinstance(signal, asyncio.CancelledError)
            if cancelled and task.cancelling() > cancels:
                raise asyncio.CancelledError from None  # the caller was cancelled too, besides the stop
            return ended
        except GeneratorExit:
            raise  # nothing can be awaited any more
        except BaseException as signal:
            turn.runs_in(None)
            if not isinstance(signal, KeyboardInterrupt | SystemExit):
                return await self._ender.failed(turn, signal)
            with suppress(TenutoError):
                await self._ender.failed(turn, signal)
            raise
        turn.runs_in(None)
        try:
            typed = result.typed
            if typed is None or result.output is None:
                return await self._ender.completed(turn, result.output, plan_next)
            ended = await self._ender.completed(turn, result.output, plan_next, [typed.name, typed.version])
        except InputArrived:
            return result
        read = read_output(typed, ended.outcome.output)  # as every repeat of the message reads it
        return ended._replace(outcome=replace(ended.outcome, output=read))

    async def _executed(self, turn: TurnContext, done: "_Done | None") -> "_Done":
        program = self._programs.of(turn.replica.definition)
        typed = program if getattr(program, "types_output", False) else None
        turn.check_stop()
        while True:
            try:
                result = _Done(await program.run(Turn(turn)), typed) if done is None else done
            except BaseExceptionGroup as group:
                if (signal := signal_in(group)) is not None:
                    raise signal from None
                raise
            done = None
            if turn.writer.ended:
                return result
            if turn.stop is not None:
                raise TurnStopped
            if turn.steps + 1 >= turn.budget:
                return result  # no step is left: input sent for this turn is left to the next one
            boundary = Boundary.BEFORE_COMPLETION
            if not turn.may_be_steered(boundary) or not await steer(turn, boundary):
                return result


class _Done(NamedTuple):
    """What a program returned, and the program if it declares a type for it."""

    output: Any
    typed: Program[Any] | None
