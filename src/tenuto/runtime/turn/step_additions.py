"""The entries that a program added in its open step, by which a program that runs again does not add them twice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.codec import JSON


@dataclass(slots=True)
class StepAdditions:
    """Positions in the session's logs, in the order of the additions; the run's row stores them while the step is open.

    When the step runs again, its n-th addition to a log is the n-th stored one. `_repeated` counts, by log, those that
    this execution of the program has come past. `_stored` is the record in the run's row.
    """

    _at: dict[str, list[int]] = field(default_factory=dict)
    _repeated: dict[str, int] = field(default_factory=dict)
    _stored: dict[str, JSON] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Mapping[str, JSON], *, is_stored: bool) -> "StepAdditions":
        """Return the additions of an earlier execution; `is_stored` says whether the run's own row has them."""
        found: Any = record
        at = {
            log: [place for first, last in zip(ends[::2], ends[1::2], strict=True) for place in range(first, last + 1)]
            for log, ends in found.items()
        }
        return cls(at, {}, dict(found) if is_stored else {})

    def left(self, log: str) -> Sequence[int]:
        """Return where the stored additions are that this execution has not come to yet."""
        return self._at.get(log, ())[self._repeated.get(log, 0) :]

    def repeat(self, log: str, place: int) -> None:
        """Count the stored additions up to the one at a place as repeated."""
        self._repeated[log] = self._at[log].index(place) + 1

    def add(self, log: str, place: int) -> None:
        """Note a new addition."""
        at = self._at.setdefault(log, [])
        at.append(place)
        self._repeated[log] = len(at)

    def discard(self, written: Callable[[str], int]) -> None:
        """Forget the additions that were not written; the program runs again, or not at all."""
        self._at = {log: [place for place in at if place < written(log)] for log, at in self._at.items()}
        self._repeated.clear()

    def clear(self) -> None:
        """Begin another step."""
        self._at.clear()
        self._repeated.clear()

    def unwritten(self, *, step_over: bool) -> dict[str, JSON] | None:
        """Return what the next commit has to store in the run's row; None if that is there already."""
        record: dict[str, JSON] = {} if step_over else {log: _pairs(at) for log, at in self._at.items() if at}
        return None if record == self._stored else record

    def landed(self, record: dict[str, JSON]) -> None:
        """Note what the run's row stores now."""
        self._stored = record


def _pairs(places: Sequence[int]) -> list[int]:
    """Return ascending positions as the first and the last of each stretch."""
    pairs: list[int] = []
    for place in places:
        if pairs and place == pairs[-1] + 1:
            pairs[-1] = place
        else:
            pairs += [place, place]
    return pairs
