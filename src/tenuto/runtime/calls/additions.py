"""A turn's additions to its session's logs: messages of the conversation, and entries of other logs."""

from typing import Any

from tenuto.argument import MAPPING
from tenuto.codec import JSON
from tenuto.messages.message_form import calls_of, check_message, with_unique_calls
from tenuto.model.effect import EffectKind
from tenuto.model.outgoing_item import NewOutgoing, OutboxKind
from tenuto.runtime.calls.arguments import check_log, check_once, check_values
from tenuto.runtime.conversation.frame import frame_mark
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.session.session_view import MESSAGES, changes_between
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import ONCE, Place


def append(turn: TurnContext, *messages: JSON, once: str | None = None) -> list[Any]:
    """Add messages to the conversation and return them as they will be stored, with unique call ids.

    With `once`, a program that runs again does not add them again: the key is journaled with them.
    """
    turn.check_open()
    check_once(once)
    used, made = turn.replica.history.used, set[str]()
    if any(isinstance(each, MAPPING) and each.get("tool_calls") for each in messages):
        made = turn.pending.calls()
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
    if once is not None and was_done(turn, once):
        return []
    if any(isinstance(each, MAPPING) and each.get("role") == "assistant" for each in added):
        turn.said = ""
    turn.pending.add(MESSAGES, added)
    return added


def add(turn: TurnContext, log: str, *items: JSON, once: str | None = None) -> None:
    """Add entries to a log that is not the conversation; `once` is as for `append`."""
    turn.check_open()
    check_log(log, turn.replica.document, MESSAGES)
    check_once(once)
    check_values(items, log, turn.writer.store.budget)
    if once is not None and was_done(turn, once):
        return
    turn.pending.add(log, items)


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
    name, _, version = program.partition("@")
    if not version:
        version = turn.version_of(name)
    append(turn, frame_mark("handoff", turn.replica.messages, summary=summary, keep=keep, program=program))
    before = turn.replica.value()
    after = before.with_definition(name=name, label=name, version=version)
    turn.pending.apply(changes_between(before, after), after)
    if following is not None:
        turn.pending.outgoing.append(NewOutgoing(kind=OutboxKind.WAKE, target=turn.key, body={"message": following}))
