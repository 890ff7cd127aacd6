"""The rows of a memory store, in dicts, with an undo journal."""

import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from tenuto.store.backends.missed import Missed
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.rules.rows import (
    BranchRow,
    CheckpointRow,
    ContentRow,
    EffectRow,
    EntryRow,
    EventRow,
    InputRow,
    OutgoingRow,
    ProfileRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    UsageRow,
    WaitRow,
)


class Tables:
    """All rows, by table and primary key, with an undo journal for the transaction under way."""

    def __init__(self) -> None:
        self.session: dict[int, SessionRow] = {}
        self.by_key: dict[tuple[str, str, str], int] = {}
        self.profile: dict[int, ProfileRow] = {}
        self.receipt: dict[tuple[int, int, str], ReceiptRow] = {}
        self.run: dict[str, RunRow] = {}
        self.branch: dict[tuple[int, int], BranchRow] = {}
        self.entry: dict[tuple[int, int, int], EntryRow] = {}
        self.checkpoint: dict[tuple[int, int], CheckpointRow] = {}
        self.wait: dict[str, WaitRow] = {}
        self.input: dict[str, InputRow] = {}
        self.input_key: dict[tuple[int, int, str], str] = {}
        self.effect: dict[tuple[int, int, str, str, int, str], EffectRow] = {}
        self.usage: dict[tuple[int, int, str, int], UsageRow] = {}
        self.outgoing: dict[str, OutgoingRow] = {}
        self.event: dict[tuple[int, int], EventRow] = {}
        self.content: dict[str, ContentRow] = {}
        self.holding: dict[tuple[int, str], tuple[int, str]] = {}
        self.meta: dict[str, int] = {"life_floor": 1, "event_floor": 0, "next_sid": 1}
        self.wakeups = Wakeups()
        self.lock = threading.RLock()
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []

    def going_on(self) -> set[tuple[str, str]]:
        """Return the invocations, by tenant and id, whose last run is under way or suspended."""
        last: dict[tuple[str, str], RunRow] = {}
        for run in sorted(self.run.values(), key=lambda each: each.chain):
            last[run.tenant, run.invocation_id] = run
        return {place for place, run in last.items() if run.status in ("running", "suspended")}

    @contextmanager
    def transaction(self) -> Any:
        """Keep everything written inside, or nothing of it."""
        self._journal = []
        try:
            yield
        except BaseException:
            for table, key, old in reversed(self._journal):
                if old is None:
                    table.pop(key, None)
                else:
                    table[key] = old
            raise
        finally:
            self._journal = []

    def put(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Write one row."""
        self._journal.append((table, key, table.get(key)))
        table[key] = row

    def add(self, table: dict[Any, Any], key: Any, row: Any) -> None:
        """Write one row that must be new."""
        if key in table:
            raise Missed(str(key))
        self.put(table, key, row)

    def drop(self, table: dict[Any, Any], keys: Iterable[Any]) -> int:
        """Remove rows; return how many there were."""
        found = [key for key in keys if key in table]
        for key in found:
            self._journal.append((table, key, table.pop(key)))
        return len(found)


def moment_of(now: int | None) -> int:
    """Return the time given, or this machine's."""
    return time.time_ns() // 1000 if now is None else now


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times, either of which may be missing."""
    return max((moment for moment in (one, other) if moment is not None), default=None)
