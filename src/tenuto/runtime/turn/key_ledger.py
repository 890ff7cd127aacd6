"""The keys of the effects that an attempt at a turn has called: each is used once by whoever calls."""

from dataclasses import dataclass, field

from tenuto.errors import KeyRepeated
from tenuto.runtime.turn.effect_journal import Place

_MODEL = "model"


@dataclass(slots=True)
class KeyLedger:
    """The keys used so far. A caller is the program, one making of a call, or one attempt at a node.

    Model calls without a key are counted by namespace and step; where one is `_under_way`, no other may begin.
    """

    _used: dict[Place, object] = field(default_factory=dict)
    _models: dict[tuple[str, int], tuple[object, int]] = field(default_factory=dict)
    _under_way: set[tuple[str, int]] = field(default_factory=set)

    def use(self, place: Place, caller: object) -> None:
        """Count a key as used; `KeyRepeated` if this caller has used it."""
        if self._used.get(place) is caller:
            raise KeyRepeated(
                f"The effect {place} was called twice in this step. Use steps() for a loop, or give each call its own "
                "key.",
                place=place.record(),
            )
        self._used[place] = caller

    def begin_model(self, namespace: str, step: int, caller: object) -> str:
        """Return the key of a model call that has none; `KeyRepeated` if another such call is under way."""
        here = (namespace, step)
        if here in self._under_way:
            raise KeyRepeated(
                "A model is already being called here without a key, so the order of the two could change at a replay: "
                "give each of them its own `key=`.",
                place=Place(namespace, step, _MODEL).record(),
            )
        before, number = self._models.get(here, (caller, 0))
        number = number + 1 if before is caller else 1
        self._models[here] = caller, number
        self._under_way.add(here)
        return _MODEL if number == 1 else f"{_MODEL}:{number}"

    def end_model(self, namespace: str, step: int) -> None:
        """Note that a model call without a key is over."""
        self._under_way.discard((namespace, step))
