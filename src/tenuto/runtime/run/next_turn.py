"""The turn after another: if its message is already queued, it begins in the commit that ends the other."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tenuto.model.commit import NextRun, Receipt
from tenuto.model.session import SessionStatus
from tenuto.runtime.stream.notices import Notice
from tenuto.runtime.turn.context import TurnContext
from tenuto.writing.liveness import live_run_ids


class NextTurn(NamedTuple):
    """A turn that is about to begin with the commit that ends the one before it.

    `begun` builds it once that commit has landed; `notices` report it.
    """

    part: NextRun
    begun: Callable[[Receipt], TurnContext]
    notices: Sequence[Notice]

    def drop(self) -> None:
        """Drop it: the commit was refused, or it is unknown whether it landed."""
        live_run_ids.discard(self.part.begin.run_id)


PlanNext: TypeAlias = Callable[[TurnContext], NextTurn | None]
"""Returns the turn that the commit which ends a turn begins, None if there is none."""


def leaves_plain_session(turn: TurnContext) -> bool:
    """Return whether a turn that ends now saves its session as active, with the same program and no open call."""
    pending, writer = turn.pending, turn.writer
    if (
        pending.status
        or pending.profile
        or pending.metadata
        or pending.handover
        or writer.logs.ahead
        or pending.calls()
    ):
        return False
    return turn.replica.status is SessionStatus.ACTIVE and writer.lane is not None and pending.moves_head
