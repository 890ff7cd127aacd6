"""Handoffs: another program continues the session, in a new frame."""

from tenuto.codec import JSON
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.runtime.calls.additions import append
from tenuto.runtime.conversation.frame import FrameKind, frame_mark
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.session.session_view import changes_between
from tenuto.runtime.turn.context import TurnContext


def hand_off(turn: TurnContext, program: str, *, summary: str | None, keep: int, message: JSON) -> None:
    """See `Turn.hand_off`."""
    following = None if message is None else as_message(message)
    name, _, version = program.partition("@")
    if not version:
        version = turn.version_of(name)
    append(turn, frame_mark(FrameKind.HANDOFF, turn.replica.messages, summary=summary, keep=keep, program=program))
    before = turn.replica.value()
    after = before.with_definition(name=name, label=name, version=version)
    turn.pending.apply(changes_between(before, after), after)
    if following is not None:
        turn.pending.outgoing.append(NewOutgoing(kind=OutboxKind.WAKE, target=turn.key, body={"message": following}))
