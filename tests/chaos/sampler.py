"""The sampler: looks at the sessions' numbers again and again during a run; none of them ever goes back."""

import asyncio
from typing import Any

from tests.chaos.audit.violation import Violation
from tests.chaos.tables import Query, Row

NUMBERS = ("life", "version", "commit_no", "generation", "event_seq", "event_floor", "run_seq", "branch_seq")
_LOOK = f"SELECT tenant, kind, session_id, {', '.join(NUMBERS)} FROM session"
_EVERY = 0.1


class Sampler:
    """Remembers the highest numbers seen of each id."""

    def __init__(self) -> None:
        self.samples = 0
        self.violations: list[Violation] = []
        self._seen: dict[tuple[Any, ...], Row] = {}

    async def sample(self, ask: Query) -> None:
        """Look until cancelled."""
        while True:
            self.judge(await ask(_LOOK))
            await asyncio.sleep(_EVERY)

    def judge(self, rows: list[Row]) -> None:
        """Compare what is there now with what was there before."""
        self.samples += 1
        now = {(row["tenant"], row["kind"], row["session_id"]): row for row in rows}
        for key, before in self._seen.items():
            row = now.get(key)
            if row is None:
                self._found(key, "its row is gone", before)
                continue
            back = [name for name in NUMBERS if row[name] < before[name]]
            if back:
                went = ", ".join(f"{name} {before[name]} -> {row[name]}" for name in back)
                self._found(key, f"numbers went back: {went}", before)
        self._seen |= now

    def _found(self, key: tuple[Any, ...], what: str, before: Row) -> None:
        self.violations.append(Violation("numbers", key[2], what, f"seen before: {before}"))
