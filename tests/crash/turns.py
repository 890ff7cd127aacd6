"""A whole turn in one commit, with every part marked by its operation id, and the check that all parts agree."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tenuto import Store
from tenuto.codec import loads
from tenuto.model.commit import Append, BeginRun, Commit, EndRun, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.lane import Lane, Owner
from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.host import this_process

BIG = "x" * 2000
"""Long enough to be held by its hash."""


def a_whole_turn(key: SessionKey, operation_id: str, *, life: int = 1, lane: Lane | None = None) -> Commit:
    """Return a commit that writes to every table: document, big value, entries, run, checkpoint, wait, events."""
    return Commit(
        key=key,
        operation_id=operation_id,
        life=lane.life if lane else life,
        generation=lane.generation if lane else None,
        run=BeginRun(run_id=f"run-{operation_id}", invocation_id=f"inv-{operation_id}"),
        save=True,
        document={"last": operation_id, "big": operation_id + BIG},
        logs={"messages": Append(items=(["user", operation_id], ["assistant", operation_id]))},
        checkpoint=NewCheckpoint(step=1, cursor={"at": operation_id}, document={"last": operation_id}),
        open_waits=(OpenWait(kind="signal", signal_id=operation_id),),
        events=(NewEvent(type="begun", data=operation_id), NewEvent(type="ended", data=operation_id)),
        end=EndRun(status=RunStatus.SUSPENDED, outcome=operation_id),
    )


def this_owner(name: str) -> Owner:
    """Return this process as an owner whose death others can prove."""
    return Owner(owner_id=name, incarnation="1", host=this_process())


def numbers_of(stem: str, operations: Iterable[str]) -> list[int]:
    """Return the sorted numbers of operations named `stem-number`."""
    return sorted(int(name.removeprefix(f"{stem}-")) for name in operations)


async def check_whole(store: Store, key: SessionKey) -> set[str]:
    """Assert that every turn of the session is wholly there or wholly absent; return the operations that are there."""
    tables = await store.dump()
    rows = [row for row in tables["session"] if row["session_id"] == key.session_id]
    if not rows:
        return set()
    (session,) = rows
    own = {
        table: [row for row in tables[table] if row["session"] == session["sid"]]
        for table in ("receipt", "run", "entry", "checkpoint", "wait", "event", "holding")
    }
    landed = {row["operation_id"] for row in own["receipt"]} - {"create"}
    once = Counter(landed)
    twice = Counter(dict.fromkeys(landed, 2))
    assert Counter(row["run_id"].removeprefix("run-") for row in own["run"]) == once
    assert Counter(loads(row["outcome"], "outcome") for row in own["run"]) == once
    assert Counter(row["signal_id"] for row in own["wait"]) == once
    assert Counter(loads(row["cursor"], "cursor")["at"] for row in own["checkpoint"]) == once
    assert Counter(loads(row["body"], "entry")[1] for row in own["entry"]) == twice
    assert Counter(data for row in own["event"] for _, data in loads(row["body"], "event")) == twice
    contents = {row["hash"]: row["body"] for row in tables["content"]}
    assert Counter(loads(contents[row["hash"]], "content").removesuffix(BIG) for row in own["holding"]) == once

    receipts = {row["operation_id"]: row for row in own["receipt"]}
    _check_numbers(session, receipts, own)
    if landed:
        last = max(landed, key=lambda name: receipts[name]["commit_no"])
        assert loads(session["document"], "document")["last"] == last
        record = await store.load(key)
        assert record is not None
        assert record.state["big"] == last + BIG
        assert len(record.state["messages"]) == 2 * len(landed)
    return landed


def _check_numbers(session: dict[str, Any], receipts: dict[str, Any], own: dict[str, list[dict[str, Any]]]) -> None:
    """The session's counters say how many turns there are, and each part stands at its receipt's commit."""
    turns = len(receipts) - ("create" in receipts)
    assert session["commit_no"] == session["version"] == len(receipts)
    assert session["event_seq"] == 2 * turns
    assert sorted(row["commit_no"] for row in receipts.values()) == list(range(1, len(receipts) + 1))
    at = {row["commit_no"]: name for name, row in receipts.items()}
    for row in own["entry"]:
        assert at[row["commit_no"]] == loads(row["body"], "entry")[1]
    for row in own["checkpoint"]:
        assert at[row["commit_no"]] == loads(row["cursor"], "cursor")["at"]
    for row in own["wait"]:
        assert at[row["commit_no"]] == row["signal_id"]
