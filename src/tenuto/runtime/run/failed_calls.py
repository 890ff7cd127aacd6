"""The failed calls that a resumed run makes again, as the record of the run that failed names them."""

from collections.abc import Iterable
from typing import Any

from tenuto.codec import JSON
from tenuto.model.effect import Effect
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.turn.effect_journal import EffectJournal, Place

_AGAIN = "again"


def outcome_with_last(journal: EffectJournal) -> JSON:
    """Return what a failed run's record says of its calls: those that failed last, and that nothing followed."""
    places = sorted(place for place in journal.last if journal.is_over(place))
    return {_AGAIN: [place.record() for place in places]} if places else None


def again_of(runs: Iterable[Run], effects: Iterable[Effect]) -> set[Place]:
    """Return the failed calls that a runner makes again if its program comes to them, of an invocation's runs.

    The last run that failed names them. A later run may have been cut off before it came to them, or have made some.
    """
    in_order = sorted(runs, key=lambda run: run.number)
    failed = next((run for run in reversed(in_order) if run.status is RunStatus.FAILED), None)
    if failed is None:
        return set()
    outcome: Any = failed.outcome
    later = {run.run_id for run in in_order if run.number > failed.number}
    made = {Place(each.namespace, each.step, each.effect_key) for each in effects if each.run_id in later}
    return {Place(*each) for each in (outcome or {}).get(_AGAIN, ())} - made
