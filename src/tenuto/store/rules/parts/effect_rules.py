"""The effects of a commit: calls it starts, finishes and settles.

A start needs no look, since its row has to be new, and neither has a finish, whose write names the runner that started
it; after a miss, or without memory, what was found says why it is refused.
"""

from typing import Any, NamedTuple

from tenuto.codec import dumps
from tenuto.errors import EffectMismatch, EffectNotOpen, InvalidInput
from tenuto.model.commit import BeginRun, Commit, TakeRun
from tenuto.model.effect import Effect, EffectChange, EffectStatus, FinishEffect, SettleEffect, StartEffect
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.rules.encoding import digest_of, maybe_json
from tenuto.store.rules.plan import Draft, EffectPlace, Found, Write
from tenuto.store.rules.records import RecordReader
from tenuto.store.rules.rows import EffectRow, RunRow, SessionRow

HOLDS_EFFECTS = 2
"""The mark of a run that journaled effects in an earlier commit."""


class PackedEffect(NamedTuple):
    """A change of an effect with its parts as text; a start has a digest, an outcome a status."""

    given: EffectChange
    request: str | None = None
    digest: str = ""
    status: str = ""
    result: str | None = None
    error: str | None = None


class _Runner(NamedTuple):
    run_id: str
    attempt: int
    origin_id: str


def pack_effect(given: EffectChange, where: str) -> PackedEffect:
    """Encode a change of an effect."""
    if isinstance(given, StartEffect):
        if given.making < 1:
            raise InvalidInput(f"{where}.making must be a number from 1, got {given.making}.")
        request = dumps(given.request, f"{where}.request")
        return PackedEffect(given, request, digest_of(str(given.kind), request))
    error = maybe_json(given.error, f"{where}.error")
    if error is not None and given.result is not None:
        raise InvalidInput(f"{where} has a result and an error; an outcome is one of them.")
    result = dumps(given.result, f"{where}.result") if error is None else None
    ended = EffectStatus.DONE if error is None else EffectStatus.FAILED
    status = EffectStatus.SETTLED if isinstance(given, SettleEffect) else ended
    return PackedEffect(given, None, "", str(status), result, error)


def check_effect_shape(commit: Commit) -> None:
    """Refuse an effect outside a run."""
    if commit.run is not None:
        return
    for each in commit.effects:
        if not isinstance(each, SettleEffect) or each.origin_id is None:
            raise InvalidInput("An effect belongs to a run: name it. Without one, settle by the effect's origin.")


def effect_meaning(packed: list[PackedEffect]) -> list[Any]:
    """Return what counts for the intent hash."""
    return ["effects", [_meaning(each) for each in packed]]


def _meaning(each: PackedEffect) -> list[Any]:
    given = each.given
    match given:
        case StartEffect():
            meant: list[Any] = ["start", each.digest, given.idempotent, given.call_id]
            if given.making > 1:
                meant.append(given.making)
        case FinishEffect():
            meant = ["finish", each.status, each.result, each.error]
        case SettleEffect():
            meant = ["settle", given.origin_id, each.result, each.error]
    return [given.namespace, given.step, given.key, *meant]


def is_settlement(given: EffectChange) -> bool:
    """Return whether a change needs the effect's row, since somebody else may have started the effect."""
    return isinstance(given, SettleEffect)


def places_of(commit: Commit) -> tuple[EffectPlace, ...]:
    """Name the effects a commit changes; an empty origin is that of its run, as found."""
    runner = _runner_of(commit, None)
    return tuple({_place(each, runner): None for each in commit.effects})


def _runner_of(commit: Commit, run: RunRow | None) -> _Runner:
    """Return who writes a commit's effects; the origin is the first invocation of the run's resume chain."""
    origin = (run.origin_id or run.invocation_id) if run else ""
    match commit.run:
        case None:
            return _Runner("", 0, origin)
        case BeginRun() as begin:
            return _Runner(begin.run_id, 1, begin.origin_id or begin.invocation_id)
        case TakeRun() as take:
            return _Runner(take.run_id, take.attempt + 1, origin)
        case ref:
            return _Runner(ref.run_id, ref.attempt, origin)


def _place(given: EffectChange, runner: _Runner) -> EffectPlace:
    origin = given.origin_id if isinstance(given, SettleEffect) else None
    return EffectPlace(origin or runner.origin_id, given.namespace, given.step, given.key)


def check_effects(packed: list[PackedEffect], commit: Commit, run: RunRow | None, found: Found) -> None:
    """Refuse a start of what has an outcome or was another request, and an outcome of what was not started so.

    What has failed may be started as its next making.
    """
    runner = _runner_of(commit, run)
    here: dict[EffectPlace, str] = {}
    for each in packed:
        place = _place(each.given, runner)
        known = found.effects.get(place) if found.effects is not None else None
        match each.given:
            case StartEffect():
                state = here.get(place) or (known.status if known else None)
                if known and known.digest != each.digest:
                    raise EffectMismatch(
                        f"Effect {place.key!r} of {commit.key} (step {place.step}) was started with another request "
                        f"({known.digest[:12]}, now {each.digest[:12]}); give another call another key.",
                        key=commit.key,
                        place=place,
                        found=known.digest,
                        given=each.digest,
                    )
                fits = place not in here and _may_start(each.given.making, known)
                here[place] = EffectStatus.STARTED
            case FinishEffect() if place in here or found.effects is None:
                state = here.get(place, EffectStatus.STARTED)
                fits = state == EffectStatus.STARTED
                here[place] = each.status
            case _:
                state = here.get(place) or (known.status if known else "unknown")
                fits = place not in here and state == EffectStatus.STARTED
                here[place] = each.status
                if fits and known and isinstance(each.given, FinishEffect):
                    fits = (known.run_id, known.attempt) == (runner.run_id, runner.attempt)
                    state = state if fits else f"started by run {known.run_id} at attempt {known.attempt}"
        if not fits:
            raise EffectNotOpen(
                f"Effect {place.key!r} of {commit.key} (step {place.step}) is {state}; read it before you continue.",
                key=commit.key,
                place=place,
                found=state,
            )


def _may_start(making: int, known: EffectRow | None) -> bool:
    """Return whether a call may be made: for the first time, again without a known outcome, or after a failure."""
    if known is None or known.status == EffectStatus.STARTED:
        return known is None or making >= known.making
    return known.status == EffectStatus.FAILED and making == known.making + 1


def effect_writes(draft: Draft, packed: list[PackedEffect], writes: list[Write]) -> None:
    """Add the writes of the commit's effects, one per effect: a call started and finished here is one row.

    There is no row where the commit completes the origin: nobody will ask for it again.
    """
    commit, row, now, run = draft.commit, draft.row, draft.found.now, draft.run
    runner = _runner_of(commit, run)
    over = commit.end is not None and commit.end.status == RunStatus.COMPLETED
    new: dict[EffectPlace, EffectRow] = {}
    outcomes: list[tuple[Any, ...]] = []
    for each in packed:
        place = _place(each.given, runner)
        if isinstance(each.given, StartEffect):
            new[place] = _started(each, each.given, place, row, runner, now)
        elif place in new:
            begun = new[place]
            new[place] = begun._replace(status=each.status, result=each.result, error=each.error, ended_at=now)
        else:
            known = (draft.found.effects or {}).get(place)
            starter = (known.run_id, known.attempt) if known else (runner.run_id, runner.attempt)
            dropped = over and place.origin_id == runner.origin_id
            outcome_row = (each.status, None if dropped else each.result, each.error, now, int(dropped))
            outcomes.append((*outcome_row, row.sid, row.life, *place, *starter))
    known_places = (draft.found.effects or {}).keys()
    fresh = [effect for place, effect in new.items() if place not in known_places]
    again = [effect for place, effect in new.items() if place in known_places]
    if over:
        fresh = [effect for effect in fresh if effect.status == EffectStatus.STARTED]
        again = [effect if effect.status == EffectStatus.STARTED else _bare(effect) for effect in again]
    if fresh:
        writes.append(Write("insert_effects", fresh))
    if again:
        writes.append(Write("restart_effects", [effect.changes + effect.place for effect in again], must=True))
    if outcomes:
        writes.append(Write("finish_effects", outcomes, must=True))


def _started(
    each: PackedEffect, given: StartEffect, place: EffectPlace, row: SessionRow, runner: _Runner, now: int
) -> EffectRow:
    return EffectRow(
        row.sid,
        row.life,
        *place,
        kind=str(given.kind),
        digest=each.digest,
        request=each.request,
        result=None,
        status=str(EffectStatus.STARTED),
        idempotent=int(given.idempotent),
        error=None,
        call_id=given.call_id,
        run_id=runner.run_id,
        attempt=runner.attempt,
        started_at=now,
        ended_at=None,
        making=given.making,
    )


def _bare(effect: EffectRow) -> EffectRow:
    return effect._replace(request=None, result=None)


def end_effects(before: RunRow | None, after: RunRow) -> list[Write]:
    """Return what the completion of an origin does to its effects: bodies go, digests stay.

    What this commit itself finishes was still started when it was found, and drops its bodies itself.
    """
    held = before is not None and before.holds & HOLDS_EFFECTS
    resumed = after.chain > 1 or after.origin_id not in (None, after.invocation_id)
    if not (held or resumed):
        return []
    return [Write("drop_effects", [(after.session, after.life, after.origin_id or after.invocation_id)])]


_EFFECT = RecordReader(Effect, EffectRow, effect_key="key")


def effect_of(row: EffectRow, key: SessionKey) -> Effect:
    """Read an effect."""
    what = f"effect {row.key!r} of {key}"
    return _EFFECT(row, what, key=key, has_request=row.request is not None, has_result=row.result is not None)
