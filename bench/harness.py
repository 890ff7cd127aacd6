"""What every measure needs: a scene to work in, clocks, interleaving, medians, and a bar that holds or does not."""

import gc
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

from rich.progress import Progress, TaskID

Clock = Callable[[], float]

wall: Clock = time.perf_counter
cpu: Clock = time.process_time
"""CPU seconds of all threads of this process."""

_DRAW_EVERY = 0.2
_BARS = Path(__file__).parent / "bars.toml"

Side = Callable[[], Awaitable[float]]
"""Does one batch of the same work and returns the seconds of one piece; what it prepares first is not timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One figure: its name, its unit, and how it is measured. `bars.toml` says what it may be."""

    name: str
    unit: str
    run: "Callable[[Scene], Awaitable[float]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A figure that was taken, as `results.json` keeps it."""

    name: str
    value: float
    unit: str
    bar: str | None
    holds: bool | None

    @classmethod
    def of(cls, measure: Measure, value: float, bar: float | None) -> "Result":
        """Compare a value with its bar; without one it is information."""
        # Rounded first, so that the value shown is the value compared.
        value = round(value, 3)
        shown = None if bar is None else f"<= {bar:g}"
        return cls(
            name=measure.name, value=value, unit=measure.unit, bar=shown, holds=None if bar is None else value <= bar
        )


def bars() -> dict[str, float]:
    """Return what each measure may be at most, by its name."""
    return {name: float(bar) for name, bar in tomllib.loads(_BARS.read_text())["bars"].items()}


@dataclass(frozen=True, slots=True)
class Scene:
    """Where one measure works: its own folder, and the progress it shows."""

    folder: Path
    progress: Progress
    task: TaskID

    def rounds(self, count: int) -> Iterator[int]:
        """Count rounds and show them, now and then; nothing is drawn while a round is timed."""
        self.progress.reset(self.task, total=count)
        shown = 0.0
        for number in range(count):
            yield number
            self.progress.advance(self.task)
            if wall() - shown > _DRAW_EVERY:
                self.progress.refresh()
                shown = wall()

    def note(self, text: str) -> None:
        """Say what lies behind the figure."""
        self.progress.print(f"  [dim]{text}[/]")

    def url(self, name: str = "store") -> str:
        """Return the address of a SQLite store in the folder."""
        return f"sqlite:///{self.folder / name}.db"

    async def ratio(self, measured: Side, against: Side, *, rounds: int) -> float:
        """Return the median of one side over the median of the other.

        They take turns, each beginning every other round; the first round of each is not counted.
        """
        await measured()
        await against()
        gc.collect()
        above: list[float] = []
        below: list[float] = []
        sides = [(measured, above), (against, below)]
        for _ in self.rounds(rounds):
            for side, spent in sides:
                spent.append(await side())
            sides.reverse()
        self.note(f"{median(above) * 1e6:,.0f} µs against {median(below) * 1e6:,.0f} µs, {rounds} rounds")
        return median(above) / median(below)


class Stopwatch:
    """Times a block by a clock: `with Stopwatch(cpu) as watch: ...`, then `watch.seconds`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = 0.0
        self.seconds = 0.0

    def __enter__(self) -> "Stopwatch":
        self._start = self._clock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        self.seconds = self._clock() - self._start
