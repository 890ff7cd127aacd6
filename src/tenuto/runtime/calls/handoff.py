"""Handing a session off: another program goes on with it, from a frame of its own."""

from typing import TYPE_CHECKING

from tenuto.codec import JSON
from tenuto.model.outgoing import NewOutgoing, OutboxKind
from tenuto.runtime.conversation.frame import FrameKind, frame_mark
from tenuto.runtime.conversation.history import as_message
from tenuto.runtime.session.session_view import changes_between

if TYPE_CHECKING:
    from tenuto.runtime.program.turn import Turn


def hand_off(turn: "Turn", program: str, *, summary: str | None, keep: int, message: JSON) -> None:
    """See `Turn.hand_off`."""
    told = None if message is None else as_message(message)
    name, _, version = program.partition("@")
    if not version:
        version = turn.programs.latest(name).version
    turn.append(frame_mark(FrameKind.HANDOFF, turn.copy.messages, summary=summary, keep=keep, program=program))
    before = turn.session
    after = before.with_definition(name=name, label=name, version=version)
    turn.pending.take(changes_between(before, after), after)
    if told is not None:
        turn.pending.outgoing.append(NewOutgoing(kind=OutboxKind.WAKE, target=turn.key, body={"message": told}))
