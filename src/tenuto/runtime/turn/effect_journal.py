"""Effects: calls to the outside, each made once and recorded, or in doubt.

This is the only seam to a journal of effects; the only implementation is the store's. An effect is identified by the
turn's origin, a namespace, the step and its key, so that a run that resumes finds what an earlier one did.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenuto.codec import JSON
from tenuto.errors import EffectMismatch, EffectResultDropped
from tenuto.model.effect import Effect, EffectChange, EffectKind, EffectStatus, FinishEffect, SettleEffect, StartEffect
from tenuto.store.bounds import request_digest

ONCE = "/once"
"""The namespace of `once` keys of additions: a row means that the addition was written with it."""

USED = "/used"
"""The namespace of `once` keys of usage."""

SENT = "/sent"
"""The namespace of what a program queued: a row means that the outgoing item was written with it."""

KEPT = "/kept"
"""The same, for what is queued even if the turn fails."""

_UNDONE = frozenset({ONCE, SENT})
"""Namespaces of what is undone with the other unwritten changes of a turn that fails."""


class Place(NamedTuple):
    """The identity of an effect within its origin."""

    namespace: str
    step: int
    key: str

    def __str__(self) -> str:
        """Return the name that errors show."""
        return f"{self.namespace + '/' if self.namespace else ''}{self.key} (step {self.step})"

    def record(self) -> list[JSON]:
        """Return the place as plain data."""
        return [self.namespace, self.step, self.key]

    @property
    def inner(self) -> str:
        """The namespace of the effects that are called in this one's call."""
        return f"{self.namespace}/{self.key}".removeprefix("/")


@dataclass(slots=True)
class Known:
    """What is known of one effect: its status, and whether this runner started it (`mine`)."""

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
    making: int = 1
    former: "Known | None" = None

    @property
    def in_doubt(self) -> bool:
        """Whether a runner that is gone started it, and no result is recorded."""
        return self.status is EffectStatus.STARTED and not self.mine


class EffectJournal:
    """The effects of one origin, as one runner knows them; the changes it returns are written by the turn's commits.

    `again` are the failed calls that are made again if the program comes to them. `last` are those that failed, or
    whose failure was replayed, while the program has done nothing since that stands.
    """

    def __init__(
        self, effects: Iterable[Effect] = (), *, run_id: str = "", attempt: int = 1, again: Iterable[Place] = ()
    ) -> None:
        self._runner = (run_id, attempt)
        self._known: dict[Place, Known] = {}
        self.again = set(again)
        self.last: set[Place] = set()
        self._models: set[Place] = set()
        self.learn(effects)

    def learn(self, effects: Iterable[Effect]) -> None:
        """Add effects as they are stored."""
        for each in effects:
            place = Place(each.namespace, each.step, each.effect_key)
            if each.kind is EffectKind.MODEL and each.run_id == self._runner[0]:
                self._models.add(place)
            self._known[place] = Known(
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
                making=each.making,
            )

    @property
    def has_doubts(self) -> bool:
        """Whether some call is in doubt."""
        return any(each.in_doubt for each in self._known.values())

    def find(self, place: Place) -> Known | None:
        """Return what is known of an effect; None if it was never started."""
        return self._known.get(place)

    def keys(self, step: int) -> set[str]:
        """Return the keys of the calls that a program itself made in a step, and the ids of its tools' calls."""
        return {place.key for place in self._known if place.step == step and not place.namespace}

    def knows(self, step: int) -> bool:
        """Return whether a call of a step has a result."""
        return any(
            place.step == step and known.status is not EffectStatus.STARTED and not place.namespace.startswith("/")
            for place, known in self._known.items()
        )

    def called(self, step: int) -> bool:
        """Return whether a tool call of a step was started."""
        return any(place.step == step and known.call_id is not None for place, known in self._known.items())

    def is_over(self, place: Place) -> bool:
        """Return whether a call has a result, or was settled."""
        known = self._known.get(place)
        return known is not None and known.status is not EffectStatus.STARTED

    def open_calls(self) -> set[str]:
        """Return the tool calls that were started and have no recorded result."""
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
        """Note that a call is about to be made, and return the change to write."""
        former = self._known.get(place)
        making = 1 if former is None else former.making + 1
        if former is None or not former.mine:
            self.went_past(place.namespace)
        self.again.discard(place)
        if kind is EffectKind.MODEL:
            self._models.add(place)
        self._known[place] = Known(
            kind=kind,
            status=EffectStatus.STARTED,
            request=request,
            has_request=True,
            call_id=call_id,
            idempotent=idempotent,
            mine=True,
            making=making,
            former=former,
        )
        return StartEffect(
            key=place.key,
            kind=kind,
            request=request,
            step=place.step,
            namespace=place.namespace,
            idempotent=idempotent,
            call_id=call_id,
            making=making,
        )

    def models_besides(self, place: Place) -> int:
        """Return how many other model calls the run has made."""
        return len(self._models) - (place in self._models)

    def went_past(self, namespace: str = "") -> None:
        """Note that something follows the failures in a namespace and in those within it."""
        if self.last and not namespace.startswith("/"):
            self.last = {place for place in self.last if not _is_within(place.namespace, namespace)}

    def repeats(self, place: Place) -> None:
        """Note that a call is about to be made again, and so are the calls in it that failed last."""
        failed = {each for each in self.last if _is_within(each.namespace, place.inner)}
        self.again |= failed
        self.last -= failed
        for each, known in self._known.items():
            if known.status is EffectStatus.STARTED and _is_within(each.namespace, place.inner):
                known.mine = False

    def finish(self, place: Place, *, result: JSON = None, error: JSON = None) -> FinishEffect:
        """Note a call's result or error, and return the change to write."""
        known = self._known[place]
        known.status = EffectStatus.DONE if error is None else EffectStatus.FAILED
        known.result, known.error = result, error
        return FinishEffect(key=place.key, step=place.step, namespace=place.namespace, result=result, error=error)

    def failed(self, place: Place, error: JSON) -> Known:
        """Replace a call's result by an error, and return what is known of it."""
        known = self._known[place]
        known.result, known.error = None, error
        if known.status is EffectStatus.DONE:
            known.status = EffectStatus.FAILED
        return known

    def undo(self, changes: Sequence[EffectChange]) -> list[EffectChange]:
        """Forget starts that were never committed and have no result; return the changes that remain to be written."""
        undone = {place_of(each) for each in unstarted(changes)}
        for place in undone:
            former = self._known.pop(place).former
            if former is not None:
                self._known[place] = former
        return [each for each in changes if place_of(each) not in undone]

    def forget(self, changes: Sequence[EffectChange]) -> None:
        """Forget changes that will not be written: a call whose start was written then has no result."""
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
        """Count calls that this runner started as another's: those without a result were cut off and are in doubt."""
        for known in self._known.values():
            known.mine = False

    def doubt(self, place: Place) -> Known:
        """Note that it is unknown whether a call was carried out."""
        known = self._known[place]
        known.mine = False
        return known

    def settle(self, place: Place, *, result: JSON = None, error: JSON = None) -> SettleEffect:
        """Note the decision about a call in doubt, and return the change to write."""
        known = self._known[place]
        known.status, known.result, known.error = EffectStatus.SETTLED, result, error
        known.has_result = True
        return SettleEffect(key=place.key, step=place.step, namespace=place.namespace, result=result, error=error)


def _is_within(namespace: str, outer: str) -> bool:
    return not outer or namespace == outer or namespace.startswith(f"{outer}/")


def unstarted(changes: Sequence[EffectChange]) -> list[StartEffect]:
    """Return the starts among unwritten changes that have no result among them, and those of additions."""
    ended = {place_of(each) for each in changes if not isinstance(each, StartEffect)}
    starts = [each for each in changes if isinstance(each, StartEffect)]
    return [each for each in starts if each.namespace in _UNDONE or place_of(each) not in ended]


def place_of(change: EffectChange) -> Place:
    """Return which effect a change belongs to."""
    return Place(change.namespace, change.step, change.key)


def result_of(place: Place, known: Known) -> JSON:
    """Return the recorded result; raise `EffectResultDropped` if it is no longer stored."""
    if not known.has_result:
        raise EffectResultDropped(
            f"The effect {place} was carried out, but its result is no longer stored; it is not called again.",
            place=place.record(),
        )
    return known.result


def check_same(place: Place, known: Known, kind: EffectKind, request: JSON) -> None:
    """Raise `EffectMismatch` for a different request under a known key, and say where the two differ."""
    path: str | None = None
    digest = request_digest(kind, request)
    if known.kind is not kind:
        where = f"it was a {known.kind} call, and is a {kind} call now"
    elif not known.has_request:
        where = "its body is no longer stored, and the digests differ"
        if digest == known.digest:
            return
    else:
        path = difference(known.request, request)
        if path is None:
            return
        where = f"they differ at {path}"
    raise EffectMismatch(
        f"The effect {place} was called before with a different request: {where}. Use a different key for this call.",
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
