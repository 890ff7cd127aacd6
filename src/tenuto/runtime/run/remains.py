"""How a turn ends: what is left open of it is closed in the commit that ends it."""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.argument import MAPPING
from tenuto.codec import JSON
from tenuto.model.commit import SettleWait
from tenuto.model.effect import EffectStatus
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.model.run import Stop
from tenuto.model.session import SessionKey
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.runtime.conversation.history import not_executed, outcome_unknown, result_message
from tenuto.runtime.program.tools import ANSWERS_CALLS, answer_message
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.session.session_view import MESSAGES
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.writing.slices import MAX_INLINE_ENTRIES

RUN_ABANDONED = "run_abandoned"
RUN_ABORTED = "run_aborted"
MAX_ATTEMPTS = 3
"""How many runners may try to finish one run."""


def closing_results(
    open_calls: Iterable[str], waits: Iterable[Wait], journal: EffectJournal, reason: str
) -> list[dict[str, Any]]:
    """Return a result for each call that is open: what came of it, if that is known, or that it was not executed."""
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
            results.append(result_message(call, begun[1].result, begun[1].error))
    return results


def is_answered_call(wait: Wait) -> bool:
    """Tell whether a wait has brought the result of a tool call."""
    return wait.status is WaitStatus.ANSWERED and wait.kind in ANSWERS_CALLS and "call_id" in wait.metadata


def given_up(
    waits: Iterable[Wait], tenant: str, status: WaitStatus = WaitStatus.ABANDONED
) -> tuple[list[SettleWait], list[NewOutgoing]]:
    """Return what settles waits nobody will be there for, and the stops that are owed to children they were for."""
    settled, owed = [], []
    for wait in waits:
        if wait.status is not WaitStatus.OPEN:
            continue
        settled.append(SettleWait(wait_id=wait.wait_id, status=status))
        if wait.kind == WaitKind.CHILD:
            target = SessionKey(str(wait.metadata["child"]), tenant=tenant)
            owed.append(NewOutgoing(kind=OutboxKind.STOP, target=target, body={"token": wait.metadata["token"]}))
    return settled, owed


def keep_reply(turn: Turn, stop: Stop) -> None:
    """Keep what an interrupted turn had said, flagged, and nothing else it has not written."""
    if turn.declared.resumes:
        turn.discard()
        return
    written = turn.pending.written(MESSAGES)
    said = [
        each for each in turn.messages[written:] if isinstance(each, Mapping) and each["role"] in ("assistant", "tool")
    ]
    text = turn.said
    turn.discard()
    if text and not any(each["role"] == "assistant" for each in said):
        said.append({"role": "assistant", "content": text})
    marked = [
        {**each, "metadata": {**each.get("metadata", {}), "interrupted": {"stop": str(stop.kind)}}}
        if each["role"] == "assistant" and at == _last_reply(said)
        else each
        for at, each in enumerate(said)
    ]
    turn.pending.add(MESSAGES, [each for each in marked if each["role"] == "tool" or _says_something(each)])


def _last_reply(messages: list[Any]) -> int:
    return max((at for at, each in enumerate(messages) if each["role"] == "assistant"), default=-1)


def _says_something(message: Mapping[str, Any]) -> bool:
    return bool(message.get("content") or message.get("tool_calls"))


def outcome_record(turn: Turn, output: JSON) -> JSON:
    """Return what a completed run's record keeps: the place of its reply, and the output if that differs."""
    first = turn.first_entry.get(MESSAGES, 0)
    messages = turn.copy.messages
    at = next((n for n in range(len(messages) - 1, first - 1, -1) if _is_reply(messages[n])), None)
    end = turn.copy.ends.get(MESSAGES)
    if at is None:
        return None if output is None else {"output": output}
    told = output if output is not None else messages[at].get("content")
    ahead = MESSAGES in turn.writer.ahead or len(messages) - turn.pending.written(MESSAGES) > MAX_INLINE_ENTRIES
    if end is None or turn.pending.begins_anew(MESSAGES) or ahead:
        return {"output": told, "said": messages[at]}  # where it will stand is not known before the commit
    record: dict[str, JSON] = {"reply": [end.session, end.branch, at]}
    return record if messages[at].get("content") == told else {**record, "output": told}


def _is_reply(message: Any) -> bool:
    return isinstance(message, MAPPING) and message.get("role") == "assistant"


def result_for_parent(
    reply_to: Any, key: SessionKey, *, status: str, output: JSON = None, error: JSON = None
) -> NewOutgoing | None:
    """Return how a child's turn went, for the parent that waits for it."""
    if not isinstance(reply_to, Mapping):
        return None
    target = SessionKey(str(reply_to["parent"]), tenant=key.tenant)
    body = {"token": reply_to["token"], "child": key.session_id, "status": status}
    body |= {"result": output} if error is None else {"error": error}
    return NewOutgoing(kind=OutboxKind.RESULT, target=target, body=body)
