"""Upkeep: every verb says what it did, also when it fails half way."""

from datetime import timedelta
from typing import Any

import pytest

from tenuto.clock import to_datetime
from tenuto.errors import InvalidInput, StoreUnavailable, Unsupported, UpkeepFailed
from tenuto.model.commit import Reset
from tenuto.model.event import NewEvent
from tenuto.model.input import InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing, OutgoingStatus
from tenuto.model.report import ExpiryReport, GcReport, PruneReport, VacuumReport
from tenuto.model.run import RunStatus
from tenuto.model.session import Profile, SessionKey
from tenuto.store.store import Store
from tenuto.testing.factories import a_commit, a_save, a_session, an_id, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import failing
from tenuto.testing.scenes.upkeep_scene import a_left_run, a_timed_store


async def test_every_verb_reports_zeros_when_there_is_nothing_to_do(harness: Harness) -> None:
    """On an empty store, and on one with live sessions, whose rows stay equal."""
    store, _ = await a_timed_store(harness)
    for _ in range(2):
        before = await store.dump()
        assert await store.upkeep.expire() == ExpiryReport()
        assert await store.upkeep.gc() == GcReport()
        assert await store.upkeep.gc(grace=0) == GcReport()
        everything = {"receipts_older_than": 0, "events_older_than": 0, "events_keep": 9, "runs_older_than": 0}
        everything |= {"inputs_older_than": 0, "outgoing_older_than": 0}
        assert await store.upkeep.prune(**everything) == PruneReport()
        assert await store.upkeep.prune() == PruneReport()
        assert await store.dump() == before
        key, _ = await a_session(store, None, *"abc", state={"big": "x" * 2000})
        await a_left_run(store, key, "d", end=RunStatus.FAILED)
        await store.commit(a_save(key, "e", events=(NewEvent(type="saved"),)))


@pytest.mark.parametrize("age", [-1, float("nan"), float("inf"), "1", True], ids=repr)
async def test_an_age_that_is_not_a_number_of_seconds_is_refused(store: Store, age: Any) -> None:
    """The refusal comes before anything is removed."""
    key, _ = await a_session(store, None, "a")
    await store.commit(a_commit(key, save=True, logs={"messages": Reset()}))
    before = await store.dump()
    for name in ("receipts", "events", "runs", "inputs", "outgoing"):
        with pytest.raises((InvalidInput, UpkeepFailed)):
            await store.upkeep.prune(**{f"{name}_older_than": age})
    with pytest.raises((InvalidInput, UpkeepFailed)):
        await store.upkeep.gc(grace=age)
    assert await store.dump() == before


async def test_expire_deletes_what_is_due_and_names_what_a_runner_holds(harness: Harness) -> None:
    """At its time and not a microsecond before; a held one goes once its lane is free."""
    store, clock = await a_timed_store(harness)
    now = to_datetime(clock.now())
    due = {name: Profile(expires_at=now + timedelta(seconds=10)) for name in ("due", "held")}
    due |= {"later": Profile(expires_at=now + timedelta(seconds=10, microseconds=1)), "never": Profile()}
    keys = {name: (await a_session(store, None, name, profile=profile))[0] for name, profile in due.items()}
    clock.advance(9.999999)
    assert await store.upkeep.expire() == ExpiryReport()
    lane = await store.lanes.acquire(keys["held"], an_owner())
    clock.advance(0.000001)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["due"],), held=(keys["held"],))
    assert [await store.exists(key) for key in keys.values()] == [False, True, True, True]
    await store.lanes.disarm(lane)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["held"],))
    assert [await store.exists(key) for key in keys.values()] == [False, False, True, True]
    clock.advance(3600)
    assert await store.upkeep.expire() == ExpiryReport(deleted=(keys["later"],))
    assert await store.exists(keys["never"])


async def test_vacuum_gives_pages_back_or_is_refused(harness: Harness) -> None:
    """A backend with `VACUUM` frees as many pages as asked and says how many are left; any other refuses."""
    store = await harness.open()
    if Capability.VACUUM not in harness.capabilities:
        with pytest.raises(Unsupported) as refused:
            await store.upkeep.vacuum()
        assert refused.value.category == "store_verb_unsupported"
        return
    await store.upkeep.vacuum()
    key, _ = await a_session(store, None, *("x" * 5000 for _ in range(100)))
    assert await store.upkeep.vacuum() == VacuumReport()
    await store.delete(key)
    first = await store.upkeep.vacuum(pages=10)
    assert first.pages_freed == 10
    assert first.pages_left > 50
    second = await store.upkeep.vacuum()
    assert second == VacuumReport(pages_freed=first.pages_left, pages_left=0)
    assert await store.upkeep.vacuum() == VacuumReport()


async def _litter(store: Store, clock: FakeClock, keys: list[SessionKey]) -> None:
    """Leave something to collect in each session, and old rows of every kind to prune."""
    for key in keys:
        arrived = (NewInput(kind=InputKind.MESSAGE, body=1, key=an_id("key")),)
        outgoing = (NewOutgoing(kind="wake", target=key),)
        for outbox_id in (await store.commit(a_commit(key, inputs=arrived, outgoing=outgoing))).outgoing_ids:
            await store.outbox.mark(outbox_id, OutgoingStatus.DONE)
        value = an_id("big ") * 1000
        await a_left_run(store, key, "run", end=RunStatus.FAILED, events=(NewEvent(type="e"),) * 2)
        await store.commit(a_save(key, *"abc", document={"big": value}))
        await store.commit(a_commit(key, save=True, logs={"messages": Reset()}, document={"big": value + "!"}))
    clock.advance(100)


def _counts(dump: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    return {table: len(rows) for table, rows in dump.items()}


@needs(Capability.PROBES)
@pytest.mark.parametrize("verb", ["gc", "prune"])
async def test_a_sweep_that_fails_says_what_it_had_done(harness: Harness, verb: str) -> None:
    """At every statement in turn; what it reports is what is gone, and running it again does the rest."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    pruned = ("receipts", "events", "runs", "inputs", "outgoing") if verb == "prune" else ()
    options: dict[str, Any] = {f"{name}_older_than": 50 for name in pruned}

    async def sweep() -> GcReport | PruneReport:
        return await store.upkeep.prune(**options) if options else await store.upkeep.gc(grace=0)

    tables = {"receipts": "receipt", "runs": "run", "checkpoints": "checkpoint", "waits": "wait"}
    tables |= {"entries": "entry", "branches": "branch", "contents": "content", "inputs": "input"}
    tables["outgoing"] = "outgoing"
    keys = [(await a_session(store))[0] for _ in range(2)]
    partial = 0
    for number in range(1, 200):
        await _litter(store, clock, keys)
        before = _counts(await store.dump())
        failure: UpkeepFailed | None = None
        try:
            with failing(store, number):
                report = await sweep()
        except UpkeepFailed as error:
            failure, report = error, error.report
        after = _counts(await store.dump())
        for name, table in tables.items():
            if hasattr(report, name):
                assert getattr(report, name) == before[table] - after[table], (number, name)
        assert report.events == 2 * (before["event"] - after["event"]), number
        if failure is None:
            assert partial > 2
            return
        assert failure.category == "upkeep_failed"
        assert isinstance(failure.__cause__, StoreUnavailable)
        partial += report not in (GcReport(), PruneReport())
        await sweep()
        assert await sweep() in (GcReport(), PruneReport())
    pytest.fail("a sweep of two families has no 200 statements")


@needs(Capability.PROBES)
async def test_a_prune_that_fails_between_two_slices_counts_the_first(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a finished slice removed is in the report, never zero."""
    monkeypatch.setattr("tenuto.store.housekeeping.sweep.ROWS_PER_SLICE", 2)
    store, clock = await a_timed_store(harness)
    key, _ = await a_session(store)
    for n in range(6):
        await store.commit(a_save(key, f"{n}", events=(NewEvent(type="e"),)))
    clock.advance(10)
    with pytest.raises(UpkeepFailed) as failed, failing(store, 3):
        await store.upkeep.prune(receipts_older_than=5)
    assert failed.value.report == PruneReport(receipts=4)
    assert len((await store.dump())["receipt"]) == 3
    with pytest.raises(UpkeepFailed) as failed, failing(store, 3):
        await store.upkeep.prune(events_keep=1)  # the floor, one slice, then the failure
    assert failed.value.report == PruneReport(events=2)
    assert await store.upkeep.prune(receipts_older_than=5, events_keep=1) == PruneReport(receipts=3, events=3)


@needs(Capability.PROBES)
async def test_an_expiry_that_fails_names_what_it_had_deleted(harness: Harness) -> None:
    """Those are gone, the others are still there, and the next call takes them."""
    store, clock = await a_timed_store(harness)
    profile = Profile(expires_at=to_datetime(clock.now()) + timedelta(seconds=5))
    keys = [(await a_session(store, None, message("m"), profile=profile))[0] for _ in range(3)]
    clock.advance(5)
    partial: set[int] = set()
    for number in range(1, 100):
        report = None
        try:
            with failing(store, number):
                await store.upkeep.expire()
        except UpkeepFailed as failure:
            report = failure.report
        gone = {key for key in keys if not await store.exists(key)}
        if report is None:
            assert partial >= {0, 1, 2}
            assert gone == set(keys)
            return
        assert set(report.deleted) == gone, number
        partial.add(len(gone))
        for key in gone:
            await a_session(store, None, message("m"), key=key, profile=profile)
    pytest.fail("three deletes have no hundred statements")
