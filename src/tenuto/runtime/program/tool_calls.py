"""A step's tool calls: made concurrently, each once, and suspended together on what has to come from outside.

The tool decides how a call is handled: a tool with a function is called as an effect, one that needs approval waits for
it first, a client's tool waits for the client's result, and one that is a program becomes a child session. A call whose
arguments do not fit gets that as its result. Finished calls have their results in the conversation and are not carried
out again when the turn resumes, which it does for each call that was approved.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.argument import check_items, check_kind
from tenuto.codec import JSON, encode
from tenuto.errors import EffectFailed, InvalidInput
from tenuto.messages.tool_result import not_executed, outcome_unknown, result_message
from tenuto.model.commit import OpenWait
from tenuto.model.effect import EffectKind
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.quote import quote
from tenuto.runtime.calls.additions import append
from tenuto.runtime.calls.effect_call import call_effect, in_doubt_error, settle, start_call
from tenuto.runtime.calls.suspension import spawning, suspend
from tenuto.runtime.program.tool import Tool, ToolSpec, spec_of
from tenuto.runtime.program.tool_parameters import Arguments, ArgumentsInvalid
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Known, Place
from tenuto.runtime.turn.failure_log import log_failed_tool
from tenuto.runtime.turn.invocation import TurnStopped, TurnSuspended
from tenuto.runtime.turn.invocation_waits import WaitRequest, answer_message
from tenuto.writing.error_record import error_record, text_of

_MOST_NAMED = 100
"""The tools that a model is reminded of when it called one that there is not."""

_log = logging.getLogger("tenuto.runtime")


class _Job(NamedTuple):
    """A call to make, with its arguments as the tool runs with them."""

    call: Mapping[str, Any]
    tool: ToolSpec
    values: dict[str, Any]


@dataclass(slots=True)
class _Batch:
    """How the calls of a step are to be handled; `late` are the waits that turned out to be needed in their calls."""

    jobs: list[_Job]
    waits: list[WaitRequest]
    sent: list[NewOutgoing]
    still_open: bool = False
    late: list[OpenWait] = field(default_factory=list)


async def run_tools(turn: Turn[Any], tools: Sequence[Tool]) -> None:
    """Carry out the open calls of the conversation; return once each has its result, suspend until then.

    A tool that the session's definition leaves out is unknown. While some calls wait, the turn resumes for each one
    that is approved or refused, and suspends again on the others.
    """
    context = context_of(turn)
    by_name = _by_name(check_items(tools, "tools"))
    calls = context.open_calls
    if not calls:
        return
    offered = {tool.name: tool for tool in turn.definition.offered(by_name.values())}
    batch = _Batch([], [], [])
    for call in calls:
        _sort(context, call, offered, batch)
    for job in batch.jobs:
        start_call(context, job.call["id"], _arguments(job.call), idempotent=job.tool.idempotent)
    context.pending.outgoing.extend(batch.sent)
    if batch.waits:
        step = context.step if context.loops else None  # the answer to the last of them ends it
        await context.open_waits([wait.opening(step) for wait in batch.waits])
    else:
        await context.save()
    await _side_by_side([_carry_out(turn, job, batch) for job in batch.jobs])
    if batch.waits or batch.still_open:
        suspend(context, batch.late, partial=len(batch.waits) < len(calls))


def _by_name(tools: Iterable[Tool]) -> dict[str, ToolSpec]:
    found: dict[str, ToolSpec] = {}
    for each in tools:
        spec = spec_of(check_kind(each, Tool, "a tool"))
        if spec.name in found:
            raise InvalidInput(f"Two tools are named {spec.name!r}; a model could call only one of them.")
        found[spec.name] = spec
    return found


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


def _sort(turn: TurnContext, call: Mapping[str, Any], offered: Mapping[str, ToolSpec], batch: _Batch) -> None:
    """Decide how a call is handled, from what is known about it: its result is added, or it belongs to the batch."""
    call_id, tool = call["id"], offered.get(str(call.get("name")))
    if turn.waits.is_open(call_id):
        batch.still_open = True
        return
    answered = turn.waits.of_call(call_id, WaitKind.TOOL_RESULT) or turn.waits.of_call(call_id, WaitKind.CHILD)
    if answered is not None:
        append(turn, answer_message(answered))
        return
    begun = turn.journal.by_call(call_id)
    in_doubt = begun is not None and begun[1].in_doubt
    if tool is None:
        append(turn, outcome_unknown(call_id) if in_doubt else result_message(call_id, None, _unknown(call, offered)))
        return
    try:
        arguments = tool.check(call.get("arguments"))
        asks = begun is None and tool.asks_first(arguments)
    except Exception as error:  # they do not fit, or what decides about the approval cannot take them
        if not isinstance(error, ArgumentsInvalid):
            _log.warning("needs_approval of the tool %s failed: %s", tool.name, text_of(error), exc_info=error)
        record = error.record if isinstance(error, ArgumentsInvalid) else error_record(error)
        append(turn, outcome_unknown(call_id) if in_doubt else result_message(call_id, None, record))
        return
    job = _Job(call, tool, arguments.values)
    if begun is not None and in_doubt:
        _sort_in_doubt(turn, job, *begun, batch)
    elif asks and not _is_approved(turn, call, tool, batch):
        return
    elif tool.run is not None:
        batch.jobs.append(job)
    elif tool.child is not None:
        wanted, sent = spawning(turn, tool.child, _question(arguments), seconds=tool.wait_seconds, call_id=call_id)
        batch.waits.append(wanted)
        batch.sent.append(sent)
    else:
        batch.waits.append(_wait(WaitKind.TOOL_RESULT, call, tool, tool.result))


def _is_approved(turn: TurnContext, call: Mapping[str, Any], tool: ToolSpec, batch: _Batch) -> bool:
    """Return whether a call that needs approval has it; if not, it is asked for, or the call is refused."""
    wait = turn.waits.of_call(call["id"], WaitKind.APPROVAL)
    if wait is None:
        batch.waits.append(_wait(WaitKind.APPROVAL, call, tool))
        return False
    answer: Any = wait.answer or {}
    if wait.status is WaitStatus.ANSWERED and answer.get("approved"):
        return True
    append(turn, not_executed(call["id"], _why_not(wait)))
    return False


def _sort_in_doubt(turn: TurnContext, job: _Job, place: Place, known: Known, batch: _Batch) -> None:
    """Decide about a call that a lost runner had started: repeat it, ask, or fail. An answer is about one making."""
    call_id = job.call["id"]
    if known.idempotent or job.tool.idempotent or turn.in_doubt == "retry":
        batch.jobs.append(job)
        return
    if turn.in_doubt == "fail":
        raise in_doubt_error(turn, place)
    wait = turn.waits.of_call(call_id, WaitKind.IN_DOUBT)
    if wait is None or wait.metadata.get("making", 1) != known.making:
        about = {"call_id": call_id, "effect": place.record(), "request": known.request, "tool": job.tool.name}
        if known.making > 1:
            about["making"] = known.making
        batch.waits.append(WaitRequest(signal_id=call_id, kind=WaitKind.IN_DOUBT, metadata=about))
        return
    if wait.status is not WaitStatus.ANSWERED:
        append(turn, outcome_unknown(call_id))
        return
    answer: Any = wait.answer or {}
    if answer.get("outcome") == "retry":
        begun = turn.journal.start(place, known.kind, known.request, idempotent=known.idempotent, call_id=call_id)
        turn.pending.effects.append(begun)
        batch.jobs.append(job)
        return
    append(turn, result_message(call_id, *settle(turn, place, answer)))


async def _carry_out(turn: Turn[Any], job: _Job, batch: _Batch) -> None:
    context, call, tool = context_of(turn), job.call, job.tool

    async def called() -> JSON:
        return await tool.make(turn, job.values)

    def record(result: JSON, error: JSON) -> None:
        append(context, result_message(call["id"], result, error))

    try:
        await call_effect(
            context,
            Place("", context.step, call["id"]),
            called,
            _arguments(call),
            kind=EffectKind.TOOL,
            idempotent=tool.idempotent,
            call_id=call["id"],
            record=record,
            retry=tool.retry,
            tool=tool.name,
        )
    except TurnSuspended as signal:
        batch.late.extend(signal.waits)
        batch.still_open = True
    except EffectFailed as failed:  # the error is reported to the model
        if failed.__cause__ is not None:
            log_failed_tool(context, tool.name, call["id"], failed.__cause__)


def _unknown(call: Mapping[str, Any], offered: Iterable[str]) -> JSON:
    """Return the error that a model gets which called a tool that it was not offered."""
    names = ", ".join(list(offered)[:_MOST_NAMED]) or "none"
    return {"category": "unknown_tool", "message": f"no tool {quote(call.get('name'))}; the tools are: {names}"}


def _arguments(call: Mapping[str, Any]) -> Any:
    return call.get("arguments") or {}


def _wait(kind: str, call: Mapping[str, Any], tool: ToolSpec, schema: JSON = None) -> WaitRequest:
    about = {"call_id": call["id"], "tool": tool.name, "arguments": _arguments(call)}
    return WaitRequest(signal_id=call["id"], kind=kind, schema=schema, timeout=tool.wait_seconds, metadata=about)


def _question(arguments: Arguments) -> str:
    """Return the message for a child: the argument of that name, or all of them as JSON."""
    given = arguments.data.get("message")
    return given if isinstance(given, str) and given else encode(dict(arguments.data))


def _why_not(wait: Wait) -> str:
    answer: Any = wait.answer or {}
    if wait.status is WaitStatus.ANSWERED:
        return answer.get("reason") or "it was not approved"
    return "nobody approved it in time"
