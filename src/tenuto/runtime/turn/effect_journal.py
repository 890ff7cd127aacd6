"""Effects: calls to the outside, each done once and recorded, or in doubt.

This is the one seam to whatever journals them; the store's journal is the only one so far. An effect is known by the
turn's origin, a namespace, the step and its key, so that a run that goes on finds what a former one did.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.errors import EffectFailed, EffectMismatch, EffectResultDropped
from tenuto.model.effect import (
    Effect,
    EffectChange,
    EffectKind,
    EffectStatus,
    FinishEffect,
    SettleEffect,
    StartEffect,
)
from tenuto.store.facets.effects import request_digest

ONCE = "/once"
"""The namespace of what a program adds once: the rows stand for what was written with them."""

USED = "/used"
"""The namespace of what a program counts once."""


class InDoubt(StrEnum):
    """What becomes of a call of which nobody knows whether it was carried out."""

    RETRY = "retry"
    ASK = "ask"
    FAIL = "fail"


class Place(NamedTuple):
    """How an effect is known within its origin."""

    namespace: str
    step: int
    key: str

    def __str__(self) -> str:
        """Name the effect as errors show it."""
        return f"{self.namespace + '/' if self.namespace else ''}{self.key} (step {self.step})"

    def record(self) -> list[JSON]:
        """Return the place as plain data."""
        return [self.namespace, self.step, self.key]


@dataclass(slots=True)
class Known:
    """What is known of one effect: how it stands, and whether this very runner started it."""

    kind: EffectKind
    status: EffectStatus
    request: JSON
    has_request: bool
    result: JSON = None
    has_result: bool = True
    error: JSON = None
    call_id: str | None = None
    idempotent: bool = False
    mine: bool = False
    digest: str = ""
    former: "Known | None" = None

    @property
    def in_doubt(self) -> bool:
        """Whether it was begun by a runner that is gone."""
        return self.status is EffectStatus.STARTED and not self.mine


class EffectJournal:
    """The effects of one origin, as one runner knows them; what is to be written of them goes with its commits."""

    def __init__(self, effects: Iterable[Effect] = (), *, run_id: str = "", attempt: int = 1) -> None:
        self._runner = (run_id, attempt)
        self._known: dict[Place, Known] = {}
        self.learn(effects)

    def learn(self, effects: Iterable[Effect]) -> None:
        """Take note of effects as the store has them."""
        for each in effects:
            self._known[Place(each.namespace, each.step, each.effect_key)] = Known(
                kind=each.kind,
                status=each.status,
                request=each.request,
                has_request=each.has_request,
                result=each.result,
                has_result=each.has_result,
                error=each.error,
                call_id=each.call_id,
                idempotent=each.idempotent,
                mine=(each.run_id, each.attempt) == self._runner,
                digest=each.digest,
            )

    @property
    def has_doubts(self) -> bool:
        """Whether some call is in doubt."""
        return any(each.in_doubt for each in self._known.values())

    def find(self, place: Place) -> Known | None:
        """Return what is known of an effect."""
        return self._known.get(place)

    def knows(self, step: int) -> bool:
        """Tell whether a call of a step came back."""
        return any(
            place.step == step and known.status is not EffectStatus.STARTED and place.namespace not in (ONCE, USED)
            for place, known in self._known.items()
        )

    def called(self, step: int) -> bool:
        """Tell whether a tool call of a step was begun."""
        return any(place.step == step and known.call_id is not None for place, known in self._known.items())

    def is_over(self, place: Place) -> bool:
        """Tell whether a call came back, or was settled."""
        known = self._known.get(place)
        return known is not None and known.status is not EffectStatus.STARTED

    def open_calls(self) -> set[str]:
        """Return the tool calls that were begun and have not come back, as far as is known."""
        return {
            each.call_id
            for each in self._known.values()
            if each.call_id is not None and each.status is EffectStatus.STARTED
        }

    def by_call(self, call_id: str) -> tuple[Place, Known] | None:
        """Return the effect that carries out a tool call."""
        return next(((place, each) for place, each in self._known.items() if each.call_id == call_id), None)

    def start(
        self, place: Place, kind: EffectKind, request: JSON, *, idempotent: bool, call_id: str | None
    ) -> StartEffect:
        """Note that a call is about to be made, and return what is to be written."""
        self._known[place] = Known(
            kind=kind,
            status=EffectStatus.STARTED,
            request=request,
            has_request=True,
            call_id=call_id,
            idempotent=idempotent,
            mine=True,
            former=self._known.get(place),
        )
        return StartEffect(
            key=place.key,
            kind=kind,
            request=request,
            step=place.step,
            namespace=place.namespace,
            idempotent=idempotent,
            call_id=call_id,
        )

    def finish(self, place: Place, *, result: JSON = None, error: JSON = None) -> FinishEffect:
        """Note what came back, and return what is to be written."""
        known = self._known[place]
        known.status = EffectStatus.DONE if error is None else EffectStatus.FAILED
        known.result, known.error = result, error
        return FinishEffect(key=place.key, step=place.step, namespace=place.namespace, result=result, error=error)

    def failed(self, place: Place, error: JSON) -> Known:
        """Note that a call that came back counts as failed, and return what is known of it."""
        known = self._known[place]
        known.result, known.error = None, error
        if known.status is EffectStatus.DONE:
            known.status = EffectStatus.FAILED
        return known

    def undo(self, changes: Sequence[EffectChange]) -> list[EffectChange]:
        """Know nothing of starts that were not written and stand for nothing; return what is still to be written."""
        undone = {place_of(each) for each in unstarted(changes)}
        for place in undone:
            former = self._known.pop(place).former
            if former is not None:
                self._known[place] = former
        return [each for each in changes if place_of(each) not in undone]

    def forget(self, changes: Sequence[EffectChange]) -> None:
        """Know nothing of changes that will not be written: what was begun has not come back."""
        begun = {place_of(each) for each in changes if isinstance(each, StartEffect)}
        for place in {place_of(each) for each in changes}:
            known = self._known.pop(place)
            if place in begun:
                if known.former is not None:
                    self._known[place] = known.former
            else:
                known.status, known.result, known.error = EffectStatus.STARTED, None, None
                self._known[place] = known

    def disown(self) -> None:
        """Know nothing of calls that were begun here and have not come back: they were cut off."""
        for known in self._known.values():
            known.mine = False

    def settle(self, place: Place, *, result: JSON = None, error: JSON = None) -> SettleEffect:
        """Note what was decided about a call in doubt, and return what is to be written."""
        known = self._known[place]
        known.status, known.result, known.error = EffectStatus.SETTLED, result, error
        known.has_result = True
        return SettleEffect(key=place.key, step=place.step, namespace=place.namespace, result=result, error=error)


def unstarted(changes: Sequence[EffectChange]) -> list[StartEffect]:
    """Return the starts among changes that were not written that stand for nothing: nothing came of them yet."""
    ended = {place_of(each) for each in changes if not isinstance(each, StartEffect)}
    starts = [each for each in changes if isinstance(each, StartEffect)]
    return [each for each in starts if each.namespace == ONCE or place_of(each) not in ended]


def place_of(change: EffectChange) -> Place:
    """Return which effect a change is of."""
    return Place(change.namespace, change.step, change.key)


def replayed(place: Place, known: Known) -> JSON:
    """Return the recorded result, or raise the recorded error; what is kept no longer is never called again."""
    if known.error is not None:
        raise failed(place, known.error)
    if not known.has_result:
        raise EffectResultDropped(
            f"The effect {place} was carried out, but its result is kept no longer; it is not called again.",
            place=place.record(),
        )
    return known.result


def failed(place: Place, error: Any, cause: BaseException | None = None) -> EffectFailed:
    """Return the error of a call that failed, the same when it happens as at every replay."""
    refusal = EffectFailed(
        f"The effect {place} failed: {error.get('category')}: {error.get('message')}", place=place.record(), error=error
    )
    refusal.__cause__ = cause
    return refusal


def check_same(place: Place, known: Known, kind: EffectKind, request: JSON) -> None:
    """Refuse another request under a known key, and say where the two differ."""
    path: str | None = None
    digest = request_digest(kind, request)
    if known.kind is not kind:
        where = f"it is a {known.kind} call there, a {kind} call here"
    elif not known.has_request:
        where = "its body is kept no longer, and their digests differ"
        if digest == known.digest:
            return
    else:
        path = difference(known.request, request)
        if path is None:
            return
        where = f"they differ at {path}"
    raise EffectMismatch(
        f"The effect {place} was called before with another request: {where}. Use another key for another call.",
        place=place.record(),
        found=known.digest or request_digest(known.kind, known.request),
        given=digest,
        path=path,
    )


def difference(one: JSON, other: JSON, path: str = "request") -> str | None:
    """Return where two values first differ, or None."""
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if name not in one or name not in other:
                return f"{path}.{name}"
            if (found := difference(one[name], other[name], f"{path}.{name}")) is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list):
        for index, (left, right) in enumerate(zip(one, other, strict=False)):
            if (found := difference(left, right, f"{path}[{index}]")) is not None:
                return found
        return None if len(one) == len(other) else f"{path}[{min(len(one), len(other))}]"
    return None if type(one) is type(other) and one == other else path
