"""Drives every place with every class of nasty value, and judges each call.

A call is refused by a typed error that blames nobody else, and has changed no row; or it is accepted, and then
everything can be read by a second reader, who finds the value equal.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from random import Random
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput, StoreError, TenutoError, Unsupported
from tenuto.quote import quote
from tests.fuzz.nasty import CLASSES, holds, is_telling, pick
from tests.fuzz.places import KEPT, Place, missing, places
from tests.fuzz.reading import read_all
from tests.fuzz.world import Ground, World

CALLS_A_WORLD = 125
LONGEST_CALL = 20.0
_MOST_SHOWN = 400


class Fault(NamedTuple):
    """Something that must not be: its kind, where, with which value, and what was seen."""

    kind: str
    place: str
    value: str
    seen: str


class Fuzzer:
    """One run over a backend: the matrix first, as far as the count goes, then places and values at random."""

    def __init__(self, ground: Ground, *, count: int, seed: int) -> None:
        self._ground = ground
        self._count = count
        self._random = Random(seed)
        self._places = places()
        self.cells: dict[tuple[str, str], Counter[str]] = {}
        self.faults: list[Fault] = [
            Fault("no recipe", name, "", "say in recipes.py how it is called") for name in missing()
        ]
        self.calls = 0
        self._last = ""

    @property
    def is_whole(self) -> bool:
        """Whether the count is enough for every cell."""
        return self._count >= len(self._rows) * len(CLASSES)

    @property
    def _rows(self) -> list[Place]:
        return [place for place in self._places if not place.is_whole]

    def _plan(self) -> Iterator[tuple[Place, str]]:
        rows = self._rows
        cells = [(place, column) for place in rows for column in CLASSES]
        self._random.shuffle(cells)
        yield from cells[: self._count]
        for _ in range(self._count - len(cells)):
            yield self._random.choice(rows), self._random.choice(list(CLASSES))

    async def run(self) -> None:
        """Make all calls, world after world."""
        if self.faults:
            return
        plan = list(self._plan())
        for begin in range(0, len(plan), CALLS_A_WORLD):
            async with World(self._ground) as world:
                for place, column in plan[begin : begin + CALLS_A_WORLD]:
                    await self._judge(world, place, column, pick(column, self._random))
                wrong = await world.agrees_elsewhere()
                if wrong is not None:
                    self._fault("unequal", "a second process", None, wrong)

    async def check_recipes(self) -> None:
        """Make each call once as its recipe has it: one that is refused anyway would prove nothing."""
        async with World(self._ground) as world:
            for place in self._places:
                if not place.is_whole or place.name in ONLY_REFUSED:
                    continue
                try:
                    await _done((await place.make(world, None))())
                except Unsupported:
                    pass
                except Exception as error:
                    self._fault("bad recipe", place.name, None, f"{type(error).__name__}: {error} {_where(error)}")
                world.spent()

    async def _judge(self, world: World, place: Place, column: str, value: Any) -> None:
        await self._make_call(world, place, column, value)
        self._last = f"{place.name} = {quote(value)}"

    async def _make_call(self, world: World, place: Place, column: str, value: Any) -> None:
        self.calls += 1
        before = None
        try:
            call = await place.make(world, value)
            before = await world.rows()
            world.moved()
            await asyncio.wait_for(_done(call()), LONGEST_CALL)
        except TenutoError as error:
            self._note(place, column, "refused")
            if before is None:  # the value was refused by the class it was put into
                world.moved()
                if not isinstance(error, InvalidInput):
                    self._fault("bad recipe", place.name, value, f"{type(error).__name__}: {error}")
            elif isinstance(error, StoreError):
                self._fault("untyped", place.name, value, f"blames the store: {type(error).__name__}: {error}")
            elif len(str(error)) > 2000:
                self._fault("untyped", place.name, value, f"an error of {len(str(error))} characters")
            if before is not None and (after := await world.rows()) != before:
                changed = [table for table in after if after[table] != before.get(table)]
                seen = f"{type(error).__name__}, and yet {changed} changed since {self._last}"
                self._fault("written", place.name, value, seen)
            return
        except Exception as error:
            self._note(place, column, "UNTYPED")
            self._fault("untyped", place.name, value, f"{type(error).__name__}: {quote(str(error))} {_where(error)}")
            world.spent()
            return
        self._note(place, column, "equal")
        after = await world.rows()
        if after != before:
            moved = [row["session_id"] for row in after["session"] if row not in before["session"]]
            world.spent(moved)
            await self._compare(world, place, value, moved)

    async def _compare(self, world: World, place: Place, value: Any, moved: list[str]) -> None:
        try:
            found = await read_all(world.second, only=moved)
        except Exception as error:
            self._fault("unequal", place.name, value, f"cannot be read: {type(error).__name__}: {quote(str(error))}")
            return
        wanted = [value]
        if place.name in _SPREAD and isinstance(value, dict | list):
            wanted = list(value.values()) if isinstance(value, dict) else value
        if place.name in KEPT and not all(holds(found, part) for part in wanted if is_telling(part)):
            self._fault("unequal", place.name, value, "is not found by a second reader")

    def _note(self, place: Place, column: str, outcome: str) -> None:
        self.cells.setdefault((place.name, column), Counter())[outcome] += 1

    def _fault(self, kind: str, place: str, value: Any, seen: str) -> None:
        self.faults.append(Fault(kind, place, quote(value), seen))

    def report(self) -> str:
        """Return the matrix, the faults, and the line that counts them."""
        lines = _matrix(self.cells, self._rows)
        lines += [f"{fault.kind}: {fault.place} = {fault.value}: {fault.seen}" for fault in self.faults[:_MOST_SHOWN]]
        whole = f"{len(self.cells)} of {len(self._rows) * len(CLASSES)} cells reached"
        kinds = Counter(fault.kind for fault in self.faults)
        others = {kind: count for kind, count in kinds.items() if kind not in ("untyped", "written", "unequal")}
        lines.append(f"calls: {self.calls}, {whole}" + "".join(f", {kind}: {count}" for kind, count in others.items()))
        lines.append(f"untyped: {kinds['untyped']}, written: {kinds['written']}, unequal: {kinds['unequal']}")
        return "\n".join(lines)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and nothing of a whole matrix was left out."""
        return not self.faults and (not self.is_whole or len(self.cells) == len(self._rows) * len(CLASSES))


_SPREAD = frozenset(
    {
        *("store.create.state", "Commit.document", "NewCheckpoint.document", "SessionRecord.state"),
        *("WriteMetadata.values", "sessions.create.seed", "sessions.create.metadata", "Append.items", "Reset.items"),
    }
)
"""Places that take a mapping or a list apart: its values are looked for one by one."""

ONLY_REFUSED = frozenset({"NextRun", "Rearm"})
"""Parts whose recipe is refused for what the session is: they need a turn under way, which the runtime's verbs have."""


async def _done(call: Any) -> None:
    if isinstance(call, AsyncGenerator):
        async with aclosing(call) as items:
            _ = [item async for item in items]
        return
    result = await call
    wait = getattr(result, "wait", None)
    if wait is not None and hasattr(result, "run_id"):
        await wait()


def _where(error: BaseException) -> str:
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    ours = [f"{name.rpartition('tenuto/')[2]}:{line}" for name, line in frames if "/tenuto/" in name]
    return f"at {ours[-1]}" if ours else ""


def _matrix(cells: dict[tuple[str, str], Counter[str]], rows: list[Place]) -> list[str]:
    """Show each place with what became of each class: refused (r), equal (e), both (b), untyped (U)."""
    columns = list(CLASSES)
    width = max(len(place.name) for place in rows)
    lines = [f"{'':{width}}  " + " ".join(f"{index:>2}" for index in range(1, len(columns) + 1))]
    for name in (place.name for place in rows):
        marks = [_mark(cells.get((name, column))) for column in columns]
        lines.append(f"{name:{width}}  " + " ".join(f"{mark:>2}" for mark in marks))
    legend = ", ".join(f"{index} {column}" for index, column in enumerate(columns, 1))
    return [*lines, f"columns: {legend}", "r refused, e accepted and equal, b both, U untyped, . not reached"]


def _mark(outcomes: Counter[str] | None) -> str:
    if not outcomes:
        return "."
    if outcomes["UNTYPED"]:
        return "U"
    return "b" if outcomes["refused"] and outcomes["equal"] else "r" if outcomes["refused"] else "e"
