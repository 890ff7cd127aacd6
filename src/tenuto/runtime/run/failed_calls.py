"""The failed calls that a resumed run makes again, as the record of the run that failed names them."""

from collections.abc import Iterable
from typing import Any

from tenuto.codec import JSON
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.turn.effect_journal import EffectJournal, Place

_AGAIN = "again"


def outcome_with_last(journal: EffectJournal) -> JSON:
    """Return what a failed run's record says of its calls: those that failed last, and that nothing followed."""
    places = sorted(place for place in journal.last if journal.is_over(place))
    return {_AGAIN: [place.record() for place in places]} if places else None


def again_of(run: Run) -> Iterable[Place]:
    """Return the failed calls that are made again when a run is resumed: only a run that failed names any."""
    outcome: Any = run.outcome if run.status is RunStatus.FAILED else None
    return {Place(*each) for each in (outcome or {}).get(_AGAIN, ())}
