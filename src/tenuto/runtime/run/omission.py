"""What the last commit of a turn leaves out when there is no room for all of it."""

from dataclasses import replace

from tenuto.model.commit import EndRun
from tenuto.runtime.calls.effect_call import shorten_result
from tenuto.runtime.turn.context import TurnContext
from tenuto.writing.error_record import bare_record


def without_what_it_made(turn: TurnContext, end: EndRun) -> EndRun:
    """Leave out a turn's unwritten changes and chunks, and results of calls that no commit has room for."""
    turn.discard()
    turn.chunks.take()
    turn.pending.events.clear()
    while shorten_result(turn):
        pass
    return end


def without_anything(turn: TurnContext, end: EndRun) -> EndRun:
    """Leave out everything pending, results of calls included: those calls stay in doubt."""
    turn.discard()
    pending = turn.pending
    turn.journal.forget(pending.effects)
    pending.effects, pending.usage, pending.events, pending.outgoing = [], [], [], []
    return replace(end, error=bare_record(end.error))
