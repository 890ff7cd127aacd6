"""A turn's additions to its session's logs: messages of the conversation, and entries of other logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenuto.argument import MAPPING
from tenuto.codec import JSON, dumps, loads
from tenuto.errors import ReplayMismatch
from tenuto.messages.message_form import FRAME, calls_of, check_message, with_unique_calls
from tenuto.model.effect import EffectKind
from tenuto.model.input import InputKind, NewInput
from tenuto.runtime.calls.arguments import check_log, check_once, check_values
from tenuto.runtime.conversation.frame import frame_mark
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.session.session_view import MESSAGES, changes_between
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import ONCE, Place, difference


def append(turn: TurnContext, *messages: JSON) -> list[Any]:
    """Add messages to the conversation and return them as they will be stored, with unique call ids."""
    added = _as_stored(turn, messages)
    if any(isinstance(each, MAPPING) and each.get("role") == "assistant" for each in added):
        turn.said = ""
    turn.pending.add(MESSAGES, added)
    return added


def say(turn: TurnContext, *messages: JSON, once: str | None = None) -> list[Any]:
    """See `Turn.append`."""
    turn.check_open()
    check_once(once)
    if once is not None:
        added = _as_stored(turn, messages)
        return [] if was_done(turn, once) else append(turn, *added)
    known = _repeated(turn, MESSAGES, messages)
    added = _as_stored(turn, messages[len(known) :])
    stored = turn.replica.messages
    _count(turn, MESSAGES, known, len(added))
    return [*(stored[place] for place in known), *append(turn, *added)]


def add(turn: TurnContext, log: str, *items: JSON, once: str | None = None) -> None:
    """See `Turn.add`."""
    turn.check_open()
    check_log(log, turn.replica.document, MESSAGES)
    check_once(once)
    check_values(items, log, turn.writer.store.budget)
    if once is not None:
        if not was_done(turn, once):
            turn.pending.add(log, items)
        return
    known = _repeated(turn, log, items)
    _count(turn, log, known, len(items) - len(known))
    turn.pending.add(log, items[len(known) :])


def begin_frame(turn: TurnContext, mark: JSON) -> bool:
    """Add the mark of a frame; return False if a program that runs again had begun that frame before."""
    repeats = bool(_repeated(turn, MESSAGES, [mark]))
    say(turn, mark)
    return not repeats


def pass_calls(turn: TurnContext, calls: Iterable[Mapping[str, Any]]) -> None:
    """Count what was added up to these calls as repeated: a program that reads its open calls continues from them."""
    made, messages = {call["id"] for call in calls}, turn.replica.messages
    left = turn.additions.left(MESSAGES)
    last = next((at for at in reversed(left) if made & {call["id"] for call in calls_of(messages[at])}), None)
    if last is not None:
        turn.additions.repeat(MESSAGES, last)


def _repeated(turn: TurnContext, log: str, items: Sequence[JSON]) -> list[int]:
    """Return where the first of these items are stored already, because the program runs again; raise `ReplayMismatch`.

    What is added within a call has no place among them: the call is not made again once it has a result.
    """
    places: list[int] = []
    left = [] if turn.call_under_way() else list(turn.additions.left(log))
    for item in items:
        if not left:
            break
        stored = turn.replica.logs[log]
        given = _bare(loads(dumps(item), "item"))
        at = next((n for n, place in enumerate(left) if _bare(stored[place]) == given), None)
        if at is None:
            where = difference(_bare(stored[left[0]]), given, "item")
            raise ReplayMismatch(
                f"The program of {turn.key} runs step {turn.step} again, and adds something else to {log!r} than "
                f"it had added as entry {left[0]}: they differ at {where}. Let what it adds depend on recorded calls "
                "and answers alone (turn.model, turn.effect, turn.wait), or name the addition with `once`.",
                log=log,
                entry=left[0],
            )
        places.append(left[at])
        left = left[at + 1 :]
    return places


def _count(turn: TurnContext, log: str, known: Sequence[int], more: int) -> None:
    """Count additions of the program: the known ones as repeated, and `more` that follow at the end of the log."""
    if turn.call_under_way():
        return
    if known:
        turn.additions.repeat(log, known[-1])
        turn.journal.went_past()
    end = len(turn.replica.logs.get(log, ()))
    for place in range(end, end + more):
        turn.additions.add(log, place)


def _bare(item: Any) -> Any:
    """Return an item without what differs when it is added again: the ids of its calls, the buffer of a frame."""
    if not isinstance(item, Mapping):
        return item
    if item.get("role") == FRAME:
        return {name: value for name, value in item.items() if name != "buffer"}
    if item.get("tool_calls") and all(isinstance(call, Mapping) for call in item["tool_calls"]):
        return {**item, "tool_calls": [{**call, "id": None} for call in item["tool_calls"]]}
    return dict(item)


def _as_stored(turn: TurnContext, messages: Iterable[JSON]) -> list[Any]:
    """Check messages and return them as they will be stored, with unique call ids."""
    turn.check_open()
    used, made = turn.replica.history.used, set[str]()
    if any(isinstance(each, MAPPING) and each.get("tool_calls") for each in messages):
        made = turn.pending.calls() | turn.journal.keys(turn.step)  # a tool call is an effect under its id
    added, budget = [], turn.writer.store.budget
    for message in messages:
        if not isinstance(message, MAPPING):
            if turn.traits.is_conversation:
                check_message(message)
            check_values([message], "message", budget)
            added.append(message)
            continue
        unique = with_unique_calls(message, used, made)
        check_values([unique], "message", budget)
        added.append(unique)
        made |= {call["id"] for call in calls_of(unique)}
    return added


def was_done(turn: TurnContext, once: str, namespace: str = ONCE) -> bool:
    """Return whether something was already done in this step; if not, the next commit records it as done."""
    place = Place(namespace, turn.step, once)
    if turn.journal.find(place) is not None:
        return True
    turn.pending.effects.append(turn.journal.start(place, EffectKind.OTHER, None, idempotent=True, call_id=None))
    turn.pending.effects.append(turn.journal.finish(place))
    return False


def hand_off(turn: TurnContext, program: str, *, summary: str | None, keep: int, message: JSON) -> None:
    """See `Turn.hand_off`."""
    following = None if message is None else as_message(message)
    before = turn.replica.value()
    handed = turn.handed_to(before, program)
    if not begin_frame(turn, frame_mark("handoff", turn.replica.messages, summary=summary, keep=keep, program=program)):
        return
    before = turn.replica.value()
    after = replace(before, definition=handed.definition)
    turn.pending.apply(changes_between(before, after), after)
    if following is not None:
        turn.pending.inputs.append(NewInput(kind=InputKind.MESSAGE, body={"message": following}, leads=True))
        turn.replica.invalidate_queue()
