"""The turn that follows on another: if its message is queued already, it begins in the commit that ends that one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenuto.ids import new_id
from tenuto.model.commit import NextRun, Receipt
from tenuto.model.input import Input
from tenuto.model.session import SessionStatus
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.run.begin import TurnFactory, invocation_of, note_live, point_cursor
from tenuto.runtime.run.first_message import plain_first_message
from tenuto.runtime.stream.notices import Notice, RunStarted, SessionLoaded
from tenuto.runtime.turn.effect_journal import EffectJournal
from tenuto.writing.liveness import live_run_ids
from tenuto.writing.run_writer import RunWriter, begin_run


class NextTurn(NamedTuple):
    """A turn that is about to begin with the commit that ends the one before it.

    `begun` puts it up once that commit stands; `notices` tell of it.
    """

    part: NextRun
    begun: Callable[[Receipt], Turn]
    notices: Sequence[Notice]

    def drop(self) -> None:
        """Let go of it: the commit was refused, or nobody knows whether it stands."""
        live_run_ids.discard(self.part.begin.run_id)


def foresee(beginnings: TurnFactory, live: Turn, queued: Input) -> NextTurn | None:
    """Return the turn that may begin with a queued message in the commit that ends another; None if it may not.

    It may not where something has to be done between the two, or the message has to be refused.
    """
    copy, declared, given = live.copy, live.declared, plain_first_message(queued)
    if given is None or beginnings.hooks is not None or declared.resumes or not _leaves_a_plain_session(live):
        return None
    try:
        entry = declared.item(given.message)
        if declared.input_log in declared.message_logs:
            copy.history.judged([entry])  # no call is open or was made since, so it fits behind what is pending too
    except Exception:
        return None  # whoever takes it by itself refuses it
    run_id, invocation = new_id(), invocation_of(given, queued.input_id)
    notices = (
        SessionLoaded(key=copy.key, version=copy.version + 1, status=str(copy.status)),
        RunStarted(key=copy.key, run_id=run_id, invocation_id=invocation.invocation_id, input_id=invocation.input_id),
    )
    part = NextRun(
        begin=begin_run(beginnings.store, run_id, invocation.invocation_id, invocation.invocation_id),
        input_id=queued.input_id,
        log=declared.input_log,
        item=entry,
        cursor=point_cursor(invocation),
        events=tuple(notice.event() for notice in notices),
    )

    def begun(receipt: Receipt) -> Turn:
        follower = beginnings.put_up(copy, RunWriter.after(live.writer, run_id, receipt), invocation, EffectJournal())
        follower.pending.stands(part.log, [entry])
        copy.took(queued)
        note_live(follower, receipt)
        return follower

    return NextTurn(part, begun, notices)


def _leaves_a_plain_session(live: Turn) -> bool:
    """Tell whether a turn that ends now saves its session, active, to the same program, and with no call open."""
    pending, writer = live.pending, live.writer
    if pending.status or pending.profile or pending.ahead or writer.ahead or pending.calls():
        return False
    return live.copy.status is SessionStatus.ACTIVE and writer.lane is not None and pending.moves_head
