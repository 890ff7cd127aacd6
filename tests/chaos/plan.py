"""The plan of a run: how long, on which store, by which seed, which faults when, and how much has to have happened."""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

WORKERS, CLIENTS, READERS = 3, 3, 2

KILL, STOP, LEAVE = "kill", "stand still", "leave"
CANCEL, LOST, HANG_UP = "cancelled call", "lost reply", "hang-up"
LOCK = "locked file"
TERMINATE, CUT, FREEZE = "terminated backend", "cut connection", "frozen connection"

_EVERY = {
    KILL: (0.3, 1.2),
    STOP: (2.5, 4.5),
    LEAVE: (2.5, 4.5),
    LOCK: (1.5, 3.0),
    TERMINATE: (2.0, 4.0),
    CUT: (2.5, 4.5),
    FREEZE: (2.5, 4.5),
}
"""Between which pauses each kind of fault comes that is done to processes from outside."""

_BY_STORE = {"sqlite": (LOCK,), "postgres": (TERMINATE, CUT, FREEZE)}
_LASTS = {STOP: (1.8, 2.6), LOCK: (0.2, 0.9), FREEZE: (0.3, 0.9)}

_A_MINUTE = {"kills": 40, "accepted": 500, "each kind": 10}
_AT_LEAST = 2


class Fault(NamedTuple):
    """One fault: when, what, whom (a number to be taken as one likes), and for how long."""

    at: float
    kind: str
    whom: int
    lasts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done in a run."""

    seconds: float
    store: str
    seed: int
    bug: str | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of fault that have to happen."""
        return (KILL, STOP, LEAVE, CANCEL, LOST, HANG_UP, *_BY_STORE[self.store])

    def faults(self) -> Iterator[Fault]:
        """Yield the faults in the order of their times: a function of the seed and of nothing else."""
        dice = {kind: random.Random(f"{self.seed}/{kind}") for kind in _EVERY if kind in self.kinds}
        due = [(dice[kind].uniform(*_EVERY[kind]), kind) for kind in dice]
        heapq.heapify(due)
        while due[0][0] < self.seconds:
            at, kind = due[0]
            lasts = dice[kind].uniform(*_LASTS[kind]) if kind in _LASTS else 0.0
            yield Fault(at, kind, dice[kind].randrange(1 << 30), lasts)
            heapq.heapreplace(due, (at + dice[kind].uniform(*_EVERY[kind]), kind))

    def least(self, what: str) -> int:
        """Return how much of something has to have happened for the run to count."""
        return max(int(_A_MINUTE[what] * min(self.seconds, 60.0) / 60.0), _AT_LEAST)
