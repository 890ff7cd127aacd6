"""What the end of a turn adds to the conversation and to its run's record: a reply, and a result for each open call.

It also decides whether the step that the turn was in is over.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.messages.message import text_of
from tenuto.messages.tool_result import not_executed, outcome_unknown, result_message
from tenuto.model.effect import EffectStatus
from tenuto.model.run import RunStatus, Stop
from tenuto.model.wait import Wait
from tenuto.runtime.calls.failure import without_type
from tenuto.runtime.conversation.history import preview_of, title_of
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.runtime.turn.invocation_waits import answer_message, is_answered_call
from tenuto.writing.slices import MAX_INLINE_ENTRIES


def closing_results(
    open_calls: Iterable[str], waits: Iterable[Wait], journal: EffectJournal, reason: str
) -> list[dict[str, Any]]:
    """Return a result message for each open call: its result if that is known, or that it was not executed."""
    answered = {str(wait.metadata["call_id"]): wait for wait in waits if is_answered_call(wait)}
    results = []
    for call in open_calls:
        begun = journal.by_call(call)
        if call in answered:
            results.append(answer_message(answered[call]))
        elif begun is None:
            results.append(not_executed(call, reason))
        elif begun[1].status is EffectStatus.STARTED:
            results.append(outcome_unknown(call))
        else:
            results.append(result_message(call, begun[1].result, without_type(begun[1].error)))
    return results


def keep_reply(turn: TurnContext, stop: Stop) -> None:
    """Keep the unwritten replies and results of an interrupted turn, marked as such, and no other unwritten change."""
    if turn.traits.resumes:
        turn.discard()
        return
    written = turn.pending.written(MESSAGES)
    fresh = turn.replica.messages[written:]
    said = [each for each in fresh if isinstance(each, Mapping) and each["role"] in ("assistant", "tool")]
    text = turn.said
    turn.discard()
    if text and not any(each["role"] == "assistant" for each in said):
        said.append({"role": "assistant", "content": text})
    last = max((at for at, each in enumerate(said) if each["role"] == "assistant"), default=-1)
    marked = [
        {**each, "metadata": {**each.get("metadata", {}), "interrupted": {"stop": str(stop.kind)}}}
        if at == last
        else each
        for at, each in enumerate(said)
    ]
    turn.pending.add(MESSAGES, [each for each in marked if each["role"] == "tool" or _says_something(each)])


def _says_something(message: Mapping[str, Any]) -> bool:
    return bool(message.get("content") or message.get("tool_calls"))


def outcome_record(turn: TurnContext, output: JSON, returned_by: JSON = None) -> JSON:
    """Return the outcome that a completed run's record stores: the position of its reply, and what was returned.

    The session may have another program by the time that it is read: who returned it is noted, if it has a type.
    """
    record: dict[str, JSON] = {} if output is None else {"output": output}
    if returned_by is not None:
        record["by"] = returned_by
    first = turn.first_entry.get(MESSAGES, 0)
    messages = turn.replica.messages
    at = next((n for n in range(len(messages) - 1, first - 1, -1) if _is_reply(messages[n])), None)
    if at is None:
        return record or None
    end = turn.replica.ends.get(MESSAGES)
    ahead = MESSAGES in turn.writer.logs.ahead or len(messages) - turn.pending.written(MESSAGES) > MAX_INLINE_ENTRIES
    if end is None or turn.pending.is_reset(MESSAGES) or ahead:
        return {"said": messages[at], **record}  # its position is not known before the commit
    return {"reply": [end.session, end.branch, at], **record}


def show_texts(turn: TurnContext) -> None:
    """Set the texts that lists show, where they differ: what was said last, and, of a session without one, a title."""
    replica = turn.replica
    if not replica.is_conversation:
        return
    last = preview_of(replica.messages)
    if last is not None and last != replica.profile.preview:
        turn.pending.show(preview=last)
    if replica.profile.title is None and (title := title_of(replica.messages)) is not None:
        turn.pending.show(title=title)


def ends_step(turn: TurnContext, status: RunStatus) -> bool:
    """Return whether a step is over with its turn.

    It is in a completed turn, and once its calls are answered. A step that was cut off is over too if a recorded call
    of it and messages about it are kept: repeated, the step would make that call on a different conversation.
    """
    if not turn.in_step or status is RunStatus.COMPLETED:
        return turn.in_step
    if not turn.loops:
        return False
    calls = turn.pending.calls()
    if status is RunStatus.SUSPENDED:
        return not turn.pending.open_calls() if calls else turn.step_over
    return turn.step_over or (turn.pending.says and (bool(calls) or turn.journal.knows(turn.step)))


def _is_reply(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "assistant"


def reply_text(turn: TurnContext) -> str:
    """Return the text of a turn's reply; empty if it has none."""
    record: Any = outcome_record(turn, None) or {}
    return text_of(turn.replica.messages[record["reply"][2]] if "reply" in record else record.get("said"))
