"""The rows of a memory store, in dicts, with an undo journal."""

import threading
import time
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from tenuto.store.backends.memory.indexed import Index, Indexed
from tenuto.store.backends.signals import GuardMissed
from tenuto.store.backends.wakeups import Wakeups
from tenuto.store.rules.rows import (
    BranchRow,
    CheckpointRow,
    ContentRow,
    DeletionRow,
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
        self.run: Indexed[str, RunRow] = Indexed(
            invocation=Index(lambda run: (run.tenant, run.invocation_id), lambda run: run.chain),
            origin=Index(_origin_of_run, lambda run: run.number),
            session=Index(lambda run: run.session, lambda run: run.number),
            running=Index(lambda run: run.status == "running" or None, lambda run: (run.started_at, run.run_id)),
            ended=Index(_base_of_ended, lambda run: run.number),
        )
        self.branch: dict[tuple[int, int], BranchRow] = {}
        self.entry: Indexed[tuple[int, int, int], EntryRow] = Indexed(
            branch=Index(lambda entry: (entry.session, entry.branch), lambda entry: entry.position)
        )
        self.checkpoint: Indexed[tuple[int, int], CheckpointRow] = Indexed(
            session=Index(lambda point: point.session, lambda point: point.commit_no),
            run=Index(lambda point: point.run_id, lambda point: point.commit_no),
        )
        self.wait: Indexed[str, WaitRow] = Indexed(
            session=Index(lambda wait: wait.session, _age_of_wait),
            status=Index(lambda wait: (wait.session, wait.status), _age_of_wait),
            run=Index(lambda wait: wait.run_id, _age_of_wait),
            signal=Index(lambda wait: wait.signal_id, _age_of_wait),
            open=Index(lambda wait: wait.status == "open" or None, lambda wait: wait.wait_id),
        )
        self.input: Indexed[str, InputRow] = Indexed(
            open=Index(lambda each: each.session if each.status == "open" else None, _turn_of_input),
            run=Index(lambda each: each.run_id, _turn_of_input),
        )
        self.input_key: dict[tuple[int, int, str], str] = {}
        self.effect: Indexed[tuple[int, int, str, str, int, str], EffectRow] = Indexed(
            session=Index(lambda effect: effect[:2], _age_of_effect),
            origin=Index(lambda effect: effect[:3], _age_of_effect),
            started=Index(lambda effect: effect[:2] if effect.status == "started" else None, _age_of_effect),
            run=Index(lambda effect: effect.run_id, _age_of_effect),
        )
        self.usage: Indexed[tuple[int, int, str, int], UsageRow] = Indexed(
            session=Index(lambda usage: usage[:2], lambda usage: usage[2:4])
        )
        self.outgoing: Indexed[str, OutgoingRow] = Indexed(
            session=Index(lambda item: item.session, lambda item: (item.created_at, item.outbox_id)),
            pending=Index(lambda item: item.status == "pending" or None, lambda item: (item.due_at, item.outbox_id)),
        )
        self.deletion: dict[tuple[int, ...], DeletionRow] = {}
        self.event: Indexed[tuple[int, int], EventRow] = Indexed(
            session=Index(lambda event: event.session, lambda event: event.first_seq),
            run=Index(lambda event: (event.session, event.run_id), lambda event: event.first_seq),
        )
        self.content: dict[tuple[str, str], ContentRow] = {}
        self.holding: dict[tuple[int, str], tuple[int, str, str]] = {}
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
            raise GuardMissed(str(key))
        self.put(table, key, row)

    def drop(self, table: dict[Any, Any], keys: Iterable[Any]) -> int:
        """Remove rows; return how many there were."""
        found = [key for key in keys if key in table]
        for key in found:
            self._journal.append((table, key, table.pop(key)))
        return len(found)


def _origin_of_run(run: RunRow) -> tuple[int, int, str]:
    return run.session, run.life, run.invocation_id if run.origin_id is None else run.origin_id


def _base_of_ended(run: RunRow) -> tuple[int, int, int | None] | None:
    return None if run.status == "running" else (run.session, run.life, run.base_version)


def _age_of_wait(wait: WaitRow) -> tuple[int, str]:
    return wait.created_at, wait.wait_id


def _turn_of_input(each: InputRow) -> tuple[int, bool, str]:
    return each.seq, each.kind != "command", each.input_id


def _age_of_effect(effect: EffectRow) -> tuple[object, ...]:
    return effect.started_at, *effect[2:6]


def moment_of(now: int | None) -> int:
    """Return the time given, or this machine's."""
    return time.time_ns() // 1000 if now is None else now


def is_debt(item: OutgoingRow) -> bool:
    """Tell whether an outgoing item stays owed when its sender is deleted."""
    return item.status == "pending" and item.kind in ("child_result", "stop_child")


def later(one: int | None, other: int | None) -> int | None:
    """Return the later of two times, either of which may be missing."""
    return max((moment for moment in (one, other) if moment is not None), default=None)
