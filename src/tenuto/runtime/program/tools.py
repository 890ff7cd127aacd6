"""A step's tool calls: made concurrently, each once, and suspended together on what has to come from outside.

The tool decides how a call is handled: a tool with a function is called as an effect, one that needs approval waits for
it first, a client's tool waits for the client's result, and one that is a program becomes a child session. Finished
calls have their results in the conversation and are not carried out again when the turn resumes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenuto.codec import JSON, encode
from tenuto.errors import EffectFailed
from tenuto.messages.tool_result import not_executed, outcome_unknown, result_message
from tenuto.model.effect import EffectKind
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.runtime.calls.additions import append
from tenuto.runtime.calls.effect_call import call_effect, in_doubt_error, settle, start_call
from tenuto.runtime.calls.suspension import spawning, suspend
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Known, Place
from tenuto.runtime.turn.failure_log import log_failed_tool
from tenuto.runtime.turn.invocation import TurnStopped
from tenuto.runtime.turn.invocation_waits import WaitFor, answer_message


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something a model can call. Without `run` and `child`, the client carries it out and sends the result."""

    name: str
    run: Callable[[Turn, Mapping[str, Any]], Awaitable[JSON]] | None = None
    child: str | None = None
    idempotent: bool = False
    needs_approval: bool | Callable[[Mapping[str, Any]], bool] = False
    timeout: float | None = None

    def asks_first(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call needs approval."""
        return self.needs_approval(arguments) if callable(self.needs_approval) else self.needs_approval


@dataclass(slots=True)
class _Batch:
    """How the calls of a step are to be handled."""

    jobs: list[tuple[Mapping[str, Any], Tool]]
    waits: list[WaitFor]
    sent: list[NewOutgoing]
    still_open: bool = False


async def run_tools(turn: Turn, tools: Sequence[Tool]) -> None:
    """Carry out the open calls of the conversation; return once each has its result, suspend until then."""
    context = context_of(turn)
    calls = context.open_calls
    if not calls:
        return
    by_name = {tool.name: tool for tool in tools}
    batch = _Batch([], [], [])
    for call in calls:
        _sort(context, call, by_name.get(str(call.get("name"))), batch)
    for call, tool in batch.jobs:
        start_call(context, call["id"], _arguments(call), idempotent=tool.idempotent)
    context.pending.outgoing.extend(batch.sent)
    if batch.waits:
        step = context.step if context.loops else None  # the answer to the last of them ends it
        await context.open_waits([wait.opening(step) for wait in batch.waits])
    else:
        await context.save()
    await _side_by_side([_carry_out(turn, call, tool) for call, tool in batch.jobs])
    if batch.waits or batch.still_open:
        suspend(context, [], partial=len(batch.waits) < len(calls))


async def _side_by_side(jobs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run jobs concurrently; none is left running when this returns. If one fails, the others are cancelled.

    A stop does not count as a failure: it lets running jobs finish.
    """
    tasks = [asyncio.create_task(_held_back(job)) for job in jobs]
    left = set(tasks)
    try:
        while left and not any(_broke(task) for task in tasks):
            _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in left:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    raised = [end for end in ends if end is not None and not isinstance(end, asyncio.CancelledError)]
    if raised:
        raise raised[0]


async def _held_back(job: Coroutine[Any, Any, None]) -> BaseException | None:
    """Run a job; return a signal that would end the event loop from this task, for the program's task to raise."""
    try:
        await job
    except (KeyboardInterrupt, SystemExit) as signal:
        return signal
    return None


def _broke(task: "asyncio.Task[BaseException | None]") -> bool:
    if not task.done() or task.cancelled():
        return False
    failure = task.exception() or task.result()
    return failure is not None and not isinstance(failure, TurnStopped)


def _sort(turn: TurnContext, call: Mapping[str, Any], tool: Tool | None, batch: _Batch) -> None:
    call_id, arguments = call["id"], _arguments(call)
    if tool is None:
        append(
            turn,
            result_message(call_id, None, {"category": "unknown_tool", "message": f"no tool {call.get('name')!r}"}),
        )
        return
    begun = turn.journal.by_call(call_id)
    if begun is not None and begun[1].in_doubt:
        _sort_in_doubt(turn, call, tool, begun[0], begun[1], batch)
        return
    if tool.asks_first(arguments) and begun is None:
        wait = turn.waits.of_call(call_id, WaitKind.APPROVAL)
        if wait is None:
            batch.waits.append(_wait(WaitKind.APPROVAL, call, arguments, tool))
            return
        if wait.status is WaitStatus.OPEN:
            batch.still_open = True
            return
        answer: Any = wait.answer or {}
        if wait.status is not WaitStatus.ANSWERED or not answer.get("approved"):
            append(turn, not_executed(call_id, _why_not(wait)))
            return
    if tool.run is not None:
        batch.jobs.append((call, tool))
        return
    kind = WaitKind.CHILD if tool.child else WaitKind.TOOL_RESULT
    wait = turn.waits.of_call(call_id, kind)
    if wait is not None:
        batch.still_open = batch.still_open or wait.status is WaitStatus.OPEN
        if wait.status is not WaitStatus.OPEN:
            append(turn, answer_message(wait))
    elif tool.child:
        message = arguments.get("message") or encode(arguments)
        wanted, sent = spawning(turn, tool.child, message, seconds=tool.timeout, call_id=call_id)
        batch.waits.append(wanted)
        batch.sent.append(sent)
    else:
        batch.waits.append(_wait(WaitKind.TOOL_RESULT, call, arguments, tool))


def _sort_in_doubt(
    turn: TurnContext, call: Mapping[str, Any], tool: Tool, place: Place, known: Known, batch: _Batch
) -> None:
    """Decide about a call that a lost runner had started: repeat it, ask, or fail."""
    if known.idempotent or tool.idempotent or turn.in_doubt == "retry":
        batch.jobs.append((call, tool))
        return
    if turn.in_doubt == "fail":
        raise in_doubt_error(turn, place)
    wait = turn.waits.of_call(call["id"], WaitKind.IN_DOUBT)
    if wait is None:
        metadata = {"call_id": call["id"], "effect": place.record(), "request": known.request, "tool": tool.name}
        batch.waits.append(WaitFor(signal_id=call["id"], kind=WaitKind.IN_DOUBT, metadata=metadata))
        return
    if wait.status is WaitStatus.OPEN:
        batch.still_open = True
        return
    if wait.status is not WaitStatus.ANSWERED:
        append(turn, outcome_unknown(call["id"]))
        return
    answer: Any = wait.answer or {}
    if answer.get("outcome") == "retry":
        begun = turn.journal.start(place, known.kind, known.request, idempotent=known.idempotent, call_id=call["id"])
        turn.pending.effects.append(begun)
        batch.jobs.append((call, tool))
        return
    append(turn, result_message(call["id"], *settle(turn, place, answer)))


async def _carry_out(turn: Turn, call: Mapping[str, Any], tool: Tool) -> None:
    context, arguments = context_of(turn), _arguments(call)
    assert tool.run is not None
    run = tool.run

    async def called() -> JSON:
        return await run(turn, arguments)

    def record(result: JSON, error: JSON) -> None:
        append(context, result_message(call["id"], result, error))

    try:
        await call_effect(
            context,
            Place("", context.step, call["id"]),
            called,
            arguments,
            kind=EffectKind.TOOL,
            idempotent=tool.idempotent,
            call_id=call["id"],
            record=record,
        )
    except EffectFailed as failed:  # the error is reported to the model
        if failed.__cause__ is not None:
            log_failed_tool(context, tool.name, call["id"], failed.__cause__)


def _arguments(call: Mapping[str, Any]) -> Any:
    return call.get("arguments") or {}


def _wait(kind: str, call: Mapping[str, Any], arguments: JSON, tool: Tool) -> WaitFor:
    metadata = {"call_id": call["id"], "tool": tool.name, "arguments": arguments}
    return WaitFor(signal_id=call["id"], kind=kind, timeout=tool.timeout, metadata=metadata)


def _why_not(wait: Wait) -> str:
    answer: Any = wait.answer or {}
    if wait.status is WaitStatus.ANSWERED:
        return answer.get("reason") or "it was not approved"
    return "nobody approved it in time"
