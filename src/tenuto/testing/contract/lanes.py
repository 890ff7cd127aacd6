"""The lane: one runner at a time, fenced by generation, never blocked by an idle or dead holder."""

import asyncio
import json
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import LaneBusy, LaneLost, RunNotLive, SessionDeleted, SessionNotFound, VersionConflict
from tenuto.model.commit import BeginRun, EndRun, NewCheckpoint, OpenWait
from tenuto.model.event import NewEvent
from tenuto.model.lane import HostProof, Lane, Rearm
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.host import this_process
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged
from tenuto.testing.clock import FakeClock
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, a_turn, an_owner, message
from tenuto.testing.harness import Harness

_HOST_IDS = {"machine_id": "/etc/machine-id", "boot_id": "/proc/sys/kernel/random/boot_id"}

_DESCRIBE = """
import json
from dataclasses import asdict
from tenuto.store.host import this_process
print(json.dumps(asdict(this_process())), flush=True)
input()
"""

_ACQUIRE = """
import asyncio, json, sys
from tenuto import open_store
from tenuto.errors import LaneBusy
from tenuto.model.lane import Owner

async def main():
    address, options, session_id, name = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
    async with open_store(address, **options) as store:
        print("ready", flush=True)
        input()
        try:
            lane = await store.lanes.acquire(session_id, Owner(owner_id=name, incarnation="1"))
            print(f"generation {lane.generation}", flush=True)
        except LaneBusy as refusal:
            print(f"busy {refusal.owner}", flush=True)

asyncio.run(main())
"""


def _at(lane: Lane, **parts: Any) -> dict[str, Any]:
    """Return what every commit under this lane names."""
    return {"generation": lane.generation, "life": lane.life} | parts


async def _begin(store: Store, lane: Lane, run_id: str, **parts: Any) -> RunRef:
    """Begin a run under a lane."""
    begin = BeginRun(run_id=run_id, invocation_id=f"inv-{run_id}")
    await store.commit(a_commit(lane.key, **_at(lane, run=begin, **parts)))
    return RunRef(run_id=run_id)


async def _busy(store: Store, key: SessionKey, **acquire: Any) -> LaneBusy:
    """Try to acquire a held lane; return the refusal, having checked that nothing changed."""
    before = await store.dump()
    with pytest.raises(LaneBusy) as refused:
        await store.lanes.acquire(key, acquire.pop("owner", an_owner("rival", "rival-boot")), **acquire)
    assert await store.dump() == before
    return refused.value


async def test_first_acquire_of_an_unused_id_is_generation_1_and_displaces_nobody(store: Store) -> None:
    """The id needs no session, and gets none."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-7"), nonce="n-1", ttl=9)
    assert (lane.key, lane.generation, lane.nonce, lane.owner) == (key, 1, "n-1", an_owner("ada", "boot-7"))
    assert lane.displaced is None
    assert lane.expires_at - lane.claimed_at == timedelta(seconds=9)
    assert not await store.exists(key)


async def test_first_acquire_of_a_known_session_is_generation_1(store: Store) -> None:
    """A create takes no generation."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    assert (lane.generation, lane.displaced) == (1, None)


async def test_where_only_live_sessions_are_asked_for_an_id_without_one_gets_no_lane_and_no_row(store: Store) -> None:
    """An id that was never used, one that was deleted, and one that a lane alone made a row for."""
    deleted, bare = a_key(), a_key()
    await a_session(store, key=deleted)
    await store.delete(deleted)
    await store.lanes.disarm(await store.lanes.acquire(bare, an_owner()))
    async with unchanged(store):
        for key in (a_key(), deleted, bare):
            with pytest.raises(SessionNotFound):
                await store.lanes.acquire(key, an_owner(), alive=True)
    key, _ = await a_session(store)
    assert (await store.lanes.acquire(key, an_owner(), alive=True)).generation == 1


async def test_same_nonce_reenters_a_fresh_lane_with_generation_and_claim_time(harness: Harness) -> None:
    """A repeated acquire does not bump the generation a second time."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    first = await store.lanes.acquire(a_key("room"), an_owner(), nonce="turn-1", ttl=10)
    clock.advance(4)
    again = await store.lanes.acquire(a_key("room"), an_owner(), nonce="turn-1", ttl=10)
    assert (again.generation, again.claimed_at) == (first.generation, first.claimed_at)
    assert again.expires_at == first.expires_at + timedelta(seconds=4)
    view = await store.lanes.inspect("room")
    assert view is not None
    assert (view.generation, view.expires_at) == (1, again.expires_at)


async def test_same_nonce_reenters_a_taken_over_lane_with_generation_and_claim_time(harness: Harness) -> None:
    """The repeat of a takeover neither bumps again nor reports somebody displaced."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key = a_key()
    await store.lanes.acquire(key, an_owner("old"), ttl=5)
    clock.advance(6)
    taken = await store.lanes.acquire(key, an_owner("new"), nonce="turn-2", ttl=10)
    clock.advance(3)
    again = await store.lanes.acquire(key, an_owner("new"), nonce="turn-2", ttl=10)
    assert taken.displaced is not None
    assert again.displaced is None
    assert (again.generation, again.claimed_at) == (2, taken.claimed_at)


async def test_reentry_never_shortens_the_lane(harness: Harness) -> None:
    """A repeat with a shorter ttl keeps the later expiry."""
    store = await harness.open(clock=FakeClock())
    key = a_key()
    first = await store.lanes.acquire(key, an_owner(), nonce="n", ttl=60)
    again = await store.lanes.acquire(key, an_owner(), nonce="n", ttl=1)
    assert again.expires_at == first.expires_at


async def test_another_turn_of_the_same_owner_and_incarnation_is_busy(store: Store) -> None:
    """Only the nonce re-enters."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-7"), nonce="turn-1")
    refused = await _busy(store, key, owner=an_owner("ada", "boot-7"), nonce="turn-2")
    assert (refused.owner, refused.generation, refused.expires_at) == ("ada", 1, lane.expires_at)
    assert refused.category == "session_execution_busy"


@pytest.mark.parametrize(
    ("owner_id", "incarnation"), [("ada", "boot-8"), ("bob", "boot-7"), ("bob", "boot-9")], ids=str
)
async def test_a_live_lane_is_busy_for_every_other_nonce(store: Store, owner_id: str, incarnation: str) -> None:
    """Whoever asks, the holder's row stays equal, and the holder still renews and commits."""
    key, _ = await a_session(store, None, message("hi"))
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-7"))
    await _busy(store, key, owner=an_owner(owner_id, incarnation))
    assert (await store.lanes.renew([lane])).renewed == {key}
    receipt = await store.commit(a_save(key, message("still mine"), **_at(lane)))
    assert receipt.version == 2


async def test_a_live_lane_is_busy_for_another_opened_store(harness: Harness) -> None:
    """Another connection to the same database is refused the same way."""
    one, other = await harness.open(), await harness.open()
    key = a_key()
    await one.lanes.acquire(key, an_owner("ada"))
    assert (await _busy(other, key)).owner == "ada"


async def test_of_20_tasks_exactly_one_gets_the_lane(store: Store) -> None:
    """The tasks of one process exclude each other like strangers."""
    key, _ = await a_session(store)
    owner = an_owner("one-process", "one-boot")
    async with asyncio.timeout(20):
        results = await asyncio.gather(*(_try(store, key, owner.owner_id) for _ in range(20)))
    winners = [lane for lane in results if isinstance(lane, Lane)]
    assert [lane.generation for lane in winners] == [1]
    assert results.count("busy") == 19
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.generation, view.expires_at) == (1, winners[0].expires_at)


async def _try(store: Store, key: SessionKey, owner_id: str) -> Lane | str:
    try:
        return await store.lanes.acquire(key, an_owner(owner_id))
    except LaneBusy:
        return "busy"


async def test_a_lane_is_busy_until_its_expiry_and_free_at_it(harness: Harness) -> None:
    """One millisecond before it is refused, at the moment itself it is taken with the next generation."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key = a_key()
    first = await store.lanes.acquire(key, an_owner("slow"), ttl=15)
    clock.advance(14.999)
    await _busy(store, key)
    clock.advance(0.001)
    lane = await store.lanes.acquire(key, an_owner("next"))
    assert (lane.generation, lane.claimed_at) == (2, first.expires_at)


async def _proof_of_child(*, dead: bool) -> tuple[HostProof, asyncio.subprocess.Process]:
    """Start a process, learn what it says of itself, and if it is to be dead, kill and reap it."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", _DESCRIBE, stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    async with asyncio.timeout(20):
        proof = HostProof(**json.loads(await child.stdout.readline()))
        if dead:
            await _end(child)
    return proof, child


async def _end(child: asyncio.subprocess.Process) -> None:
    child.kill()
    await child.communicate()


async def test_a_holder_on_this_host_proven_dead_is_displaced_at_once(harness: Harness) -> None:
    """A live process keeps its lane, a killed and reaped one loses it; the clock never moves."""
    store = await harness.open(clock=FakeClock())
    proof, child = await _proof_of_child(dead=False)
    assert None not in asdict(proof).values(), "this host does not say enough of its processes"
    key = a_key()
    held = await store.lanes.acquire(key, an_owner("child", "c-1", proof), ttl=3600)
    try:
        await _busy(store, key)
    finally:
        await _end(child)
    lane = await store.lanes.acquire(key, an_owner("parent"))
    assert lane.generation == 2
    assert lane.displaced is not None
    assert (lane.displaced.owner, lane.displaced.generation) == (an_owner("child", "c-1", proof), 1)
    assert lane.displaced.expires_at == held.expires_at


def _changed(proof: HostProof, name: str, value: Any) -> HostProof:
    return replace(proof, **{name: value})


async def test_a_missing_or_different_proof_value_means_waiting_for_the_ttl(harness: Harness) -> None:
    """Each value by itself, and no proof at all; at the TTL every one of them is displaced."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    dead, _ = await _proof_of_child(dead=True)
    doubtful: dict[str, HostProof | None] = {"none": None}
    for name in asdict(dead):
        doubtful[f"no {name}"] = _changed(dead, name, None)
    for name in ("machine_id", "boot_id", "pid_namespace"):
        doubtful[f"other {name}"] = _changed(dead, name, "elsewhere")
    keys = {what: a_key() for what in doubtful}
    for what, host in doubtful.items():
        await store.lanes.acquire(keys[what], an_owner(what, "c-1", host), ttl=15)
    clock.advance(14.999)
    for what, key in keys.items():
        assert (await _busy(store, key)).owner == what
    clock.advance(0.001)
    for what, key in keys.items():
        lane = await store.lanes.acquire(key, an_owner("next"))
        assert lane.displaced is not None, what
        assert (lane.generation, lane.displaced.owner.owner_id) == (2, what)


async def test_a_recycled_pid_does_not_keep_a_dead_holders_lane(harness: Harness) -> None:
    """The pid lives, but the process that has it started at another time."""
    store = await harness.open(clock=FakeClock())
    proof, child = await _proof_of_child(dead=False)
    try:
        assert proof.started is not None
        former = replace(proof, started=proof.started - 1)
        key = a_key()
        await store.lanes.acquire(key, an_owner("former", "f-1", former), ttl=3600)
        lane = await store.lanes.acquire(key, an_owner("next"))
    finally:
        await _end(child)
    assert lane.displaced is not None
    assert lane.displaced.owner.owner_id == "former"


async def test_neither_a_refusal_nor_a_row_gives_away_what_re_enters_a_lane(store: Store) -> None:
    """The nonce stands there as a digest, taken or re-armed, and what is shown of it opens nothing."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner("ada"), nonce="secret-1", ttl=3600)
    refusal = await _busy(store, key)
    assert "secret" not in f"{refusal} {refusal.details()} {await store.dump()} {await store.lanes.inspect(key)}"
    assert "nonce" not in refusal.details()
    ((shown,),) = await rows(store, "session", "nonce")
    await _busy(store, key, nonce=shown)
    receipt = await store.commit(a_commit(key, **_at(lane, disarm=True)))
    rearm = {"rearm": Rearm(nonce="secret-2", ttl=3600), "expected_commit": receipt.commit_number}
    await store.commit(a_commit(key, **_at(lane, **rearm)))
    assert "secret" not in str(await store.dump())
    await _busy(store, key, nonce="secret-1")
    assert (await store.lanes.acquire(key, an_owner("ada"), nonce="secret-2")).generation == 1


def _host_ids() -> dict[str, str]:
    return {name: Path(path).read_text().strip() for name, path in _HOST_IDS.items() if Path(path).exists()}


async def test_a_host_is_known_by_digests_of_its_ids(store: Store) -> None:
    """Neither a row nor a refusal has the ids themselves; a holder from before, with the ids, is of an unknown host."""
    raw = _host_ids()
    assert raw
    key, former = a_key(), a_key()
    await store.lanes.acquire(key, an_owner("here", "h-1", this_process()))
    refusal = await _busy(store, key)
    shown = f"{refusal} {refusal.details()} {await store.dump()} {this_process()}"
    assert not [name for name, value in raw.items() if value in shown or value.replace("-", "") in shown]
    dead, _ = await _proof_of_child(dead=True)
    as_given: dict[str, Any] = dict(raw)
    await store.lanes.acquire(former, an_owner("former", "f-1", replace(dead, **as_given)))
    await _busy(store, former)


async def test_acquire_after_disarm_takes_the_next_generation_and_displaces_nobody(store: Store) -> None:
    """A disarmed lane is free at once."""
    key = a_key()
    first = await store.lanes.acquire(key, an_owner("ada"), ttl=3600)
    await store.lanes.disarm(first)
    second = await store.lanes.acquire(key, an_owner("bob"))
    assert (second.generation, second.displaced) == (2, None)


async def test_first_commit_of_the_last_holders_next_turn_rearms_with_its_generation(harness: Harness) -> None:
    """No acquire is needed; the lane is held again, under the new nonce, from this commit's time."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, message("one"))
    lane = await store.lanes.acquire(key, an_owner("ada"), nonce="turn-1", ttl=15)
    last = await store.commit(a_turn(key, lane, message("two"), disarm=True))
    clock.advance(100)
    rearm = Rearm(nonce="turn-2", ttl=20)
    receipt = await store.commit(
        a_save(key, message("three"), **_at(lane), expected_commit=last.commit_number, rearm=rearm)
    )
    assert (receipt.generation, receipt.version) == (1, 3)
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.state, view.generation, view.owner) == ("held", 1, an_owner("ada"))
    assert view.expires_at == receipt.committed_at + timedelta(seconds=20)
    assert receipt.committed_at == last.committed_at + timedelta(seconds=100)
    again = await store.lanes.acquire(key, an_owner("ada"), nonce="turn-2")
    assert (again.generation, again.displaced) == (1, None)
    await _busy(store, key, owner=an_owner("ada"), nonce="turn-1")


async def _rearm_missed(store: Store, lane: Lane, commit_number: int) -> None:
    before = await store.dump()
    commit = a_save(lane.key, message("stale"), **_at(lane), expected_commit=commit_number)
    with pytest.raises(LaneLost):
        await store.commit(replace(commit, rearm=Rearm(nonce="turn-2", ttl=20)))
    assert await store.dump() == before


async def test_rearm_of_a_lane_still_armed_writes_nothing(store: Store) -> None:
    """That holds for one's own lane too."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await _rearm_missed(store, lane, created.commit_number)


async def test_rearm_after_another_took_the_lane_writes_nothing(store: Store) -> None:
    """Held by the successor, and also once the successor has disarmed."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada"))
    await store.lanes.disarm(lane)
    other = await store.lanes.acquire(key, an_owner("bob"))
    await _rearm_missed(store, lane, created.commit_number)
    await store.lanes.disarm(other)
    await _rearm_missed(store, lane, created.commit_number)


async def test_rearm_after_another_commit_writes_nothing(store: Store) -> None:
    """A lane-less write in between makes the cached copy stale."""
    key, created = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await store.lanes.disarm(lane)
    await store.commit(a_save(key, message("by somebody without a lane")))
    await _rearm_missed(store, lane, created.commit_number)


async def test_takeover_reports_the_lapsed_holder(harness: Harness) -> None:
    """Owner, generation and expiry as they stood, renewals included."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key = a_key()
    await store.lanes.disarm(await store.lanes.acquire(key, an_owner("first")))
    lapsed = await store.lanes.acquire(key, an_owner("second", "boot-2"), ttl=5)
    clock.advance(3)
    renewal = await store.lanes.renew([lapsed], ttl=5)
    clock.advance(60)
    lane = await store.lanes.acquire(key, an_owner("third"))
    assert lane.generation == 3
    assert lane.displaced is not None
    assert lane.displaced.owner == an_owner("second", "boot-2")
    assert (lane.displaced.generation, lane.displaced.expires_at) == (2, renewal.expires_at)


async def test_one_renewal_names_the_lost_lanes_and_renews_the_others(harness: Harness) -> None:
    """Stale generation, wrong nonce, disarmed, unknown and deleted are lost; live and lapsed ones are renewed."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    names = ("live", "lapsed", "stale", "forged", "disarmed", "deleted")
    keys = {name: a_key() for name in names}
    lanes = {n: await store.lanes.acquire(key, an_owner(n), ttl=5 if n == "lapsed" else 60) for n, key in keys.items()}
    clock.advance(10)
    await store.lanes.disarm(lanes["stale"])
    await store.lanes.acquire(keys["stale"], an_owner("successor"), ttl=60)
    await store.lanes.disarm(lanes["disarmed"])
    await store.delete(keys["deleted"])
    unknown = replace(lanes["live"], key=a_key())
    held = [*lanes.values(), unknown]
    held[names.index("forged")] = replace(lanes["forged"], nonce="guessed")
    before = await store.dump()
    renewal = await store.lanes.renew(held, ttl=90)
    assert renewal.renewed == {keys["live"], keys["lapsed"]}
    assert renewal.lost == {keys["stale"], keys["forged"], keys["disarmed"], keys["deleted"], unknown.key}
    assert renewal.expires_at == lanes["live"].claimed_at + timedelta(seconds=100)
    after = await store.dump()
    moved = {row["session_id"] for row in after["session"] if row not in before["session"]}
    assert moved == {keys["live"].session_id, keys["lapsed"].session_id}
    for name in ("live", "lapsed"):
        view = await store.lanes.inspect(keys[name])
        assert view is not None
        assert (view.state, view.generation, view.expires_at) == ("held", 1, renewal.expires_at)


async def test_renewal_that_meets_nothing_of_ones_own_names_all_as_lost(store: Store) -> None:
    """A renewal that hits no row is a refusal."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner())
    before = await store.dump()
    renewal = await store.lanes.renew([replace(lane, generation=2)])
    assert renewal.renewed == set()
    assert renewal.lost == {key}
    assert await store.dump() == before


async def test_renewal_never_shortens_a_lane(harness: Harness) -> None:
    """A late renewal with a shorter ttl keeps the later expiry, and returns it."""
    store = await harness.open(clock=FakeClock())
    lane = await store.lanes.acquire(a_key(), an_owner(), ttl=60)
    renewal = await store.lanes.renew([lane], ttl=1)
    assert renewal.expires_at == lane.expires_at


async def test_runs_without_a_lane_are_renewed_and_the_lost_ones_named(harness: Harness) -> None:
    """Ended, unknown, taken and laned runs are not renewed; a live one is, even when overdue."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    for name in ("live", "ended"):
        begin = BeginRun(run_id=name, invocation_id=f"inv-{name}", ttl=5)
        end = EndRun(status=RunStatus.FAILED) if name == "ended" else None
        await store.commit(a_commit(a_key(), run=begin, end=end))
    lane = await store.lanes.acquire(a_key(), an_owner())
    await _begin(store, lane, "laned")
    clock.advance(30)
    refs = [RunRef(run_id=name) for name in ("live", "ended", "laned", "unknown")]
    renewal = await store.lanes.renew([], ttl=7, runs=refs)
    assert renewal.lost_runs == {"ended", "laned", "unknown"}
    run = await store.runs.get("live")
    assert run is not None
    assert run.expires_at == run.started_at + timedelta(seconds=37)
    wrong = await store.lanes.renew([], ttl=70, runs=[RunRef(run_id="live", attempt=2)])
    assert wrong.lost_runs == {"live"}
    assert await store.runs.get("live") == run


@pytest.mark.parametrize("changes", [{"generation": 2}, {"generation": 0}, {"nonce": "guessed"}], ids=str)
async def test_disarm_with_a_wrong_generation_or_nonce_is_refused(store: Store, changes: dict[str, Any]) -> None:
    """The holder's lane is untouched."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(replace(lane, **changes))
    assert await store.dump() == before


async def test_second_disarm_is_refused(store: Store) -> None:
    """It is refused while nobody holds the lane, and once a successor does, who keeps it."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    await store.lanes.disarm(lane)
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    successor = await store.lanes.acquire(lane.key, an_owner("successor"))
    before = await store.dump()
    with pytest.raises(LaneLost) as refused:
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    assert (refused.value.expected, refused.value.found) == (1, successor.generation)


async def test_disarm_of_an_unknown_lane_is_refused_and_creates_nothing(store: Store) -> None:
    """A lane of an id that never had one."""
    lane = await store.lanes.acquire(a_key(), an_owner())
    before = await store.dump()
    with pytest.raises(LaneLost):
        await store.lanes.disarm(replace(lane, key=a_key()))
    assert await store.dump() == before


async def test_of_concurrent_first_acquires_from_two_processes_one_gets_the_lane(harness: Harness) -> None:
    """Two real processes race where the database can be opened from them, two opened stores elsewhere."""
    store = await harness.open()
    key = a_key()
    async with asyncio.timeout(30):
        if harness.address is None:
            other = await harness.open()
            answers = [
                f"generation {found.generation}" if isinstance(found, Lane) else "busy"
                for found in await asyncio.gather(_try(store, key, "p-0"), _try(other, key, "p-1"))
            ]
        else:
            answers = await _race(harness.address, harness.options, key.session_id)
    assert sorted(answer.split()[0] for answer in answers) == ["busy", "generation"]
    assert "generation 1" in answers
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.state, view.generation) == ("held", 1)


async def _race(address: str, options: dict[str, Any], session_id: str) -> list[str]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", _ACQUIRE, address, json.dumps(options), session_id)
    children = [await asyncio.create_subprocess_exec(*command, f"p-{n}", stdin=pipe, stdout=pipe) for n in range(2)]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(child.communicate(b"\n") for child in children))
    assert [child.returncode for child in children] == [0, 0]
    return [out.decode().strip() for out, _ in outputs]


async def test_a_stale_renew_against_a_takeover_leaves_the_successors_row(harness: Harness) -> None:
    """At the same moment, ten times over: the renew came before, or is lost and the row is the successor's."""
    clock = FakeClock()
    stale, fresh = await harness.open(clock=clock), await harness.open(clock=clock)
    for _ in range(10):
        key = a_key()
        lane = await stale.lanes.acquire(key, an_owner("old"), ttl=5)
        clock.advance(5)
        async with asyncio.timeout(20):
            renewal, taken = await asyncio.gather(stale.lanes.renew([lane], ttl=60), _take(fresh, key))
        view = await fresh.lanes.inspect(key)
        assert view is not None
        if isinstance(taken, Lane):
            assert (view.owner, view.generation) == (an_owner("new"), 2)
            assert view.expires_at == taken.expires_at
            assert (await stale.lanes.renew([lane])).lost == {key}
        else:
            assert renewal.renewed == {key}
            assert (view.owner, view.generation) == (an_owner("old"), 1)


async def _take(store: Store, key: SessionKey) -> Lane | str:
    try:
        return await store.lanes.acquire(key, an_owner("new"), ttl=30)
    except LaneBusy:
        return "busy"


async def _displaced(harness: Harness) -> tuple[Store, Lane, RunRef, Lane]:
    """Return a store, the lane and run of a runner that was taken over, and the successor's lane."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store, None, message("one"))
    lane = await store.lanes.acquire(key, an_owner("old", "boot-1"), nonce="old-turn", ttl=5)
    run = await _begin(store, lane, f"run-of-{key.session_id}")
    clock.advance(5)
    successor = await store.lanes.acquire(key, an_owner("new", "boot-2"), nonce="new-turn", ttl=60)
    return store, lane, run, successor


_WRITES: dict[str, dict[str, Any]] = {
    "save": {"save": True, "document": {"colour": "stale"}},
    "checkpoint": {"checkpoint": NewCheckpoint(step=3, cursor="stale")},
    "wait": {"open_waits": (OpenWait(kind="approval", signal_id="stale"),)},
    "event": {"events": (NewEvent(type="stale", data=1),)},
    "end": {"end": EndRun(status=RunStatus.COMPLETED), "disarm": True},
    "profile": {"profile": {"title": "stale"}},
    "nothing": {},
}


@pytest.mark.parametrize("what", _WRITES)
async def test_a_displaced_runner_cannot_commit(harness: Harness, what: str) -> None:
    """No save, checkpoint, wait, event, end or profile of it gets in, with or without its run."""
    store, lane, run, successor = await _displaced(harness)
    before = await store.dump()
    with pytest.raises(LaneLost) as refused:
        await store.commit(a_commit(lane.key, **_at(lane, run=run, **_WRITES[what])))
    assert (refused.value.expected, refused.value.found) == (lane.generation, successor.generation)
    assert refused.value.category == "session_execution_lease_lost"
    if what in {"save", "event", "profile", "nothing"}:
        with pytest.raises(LaneLost):
            await store.commit(a_commit(lane.key, **_at(lane, **_WRITES[what])))
    assert await store.dump() == before


async def test_a_displaced_runner_cannot_append_events_renew_or_disarm(harness: Harness) -> None:
    """Each is refused and nothing changes, while the successor does each of them."""
    store, lane, run, successor = await _displaced(harness)
    before = await store.dump()
    for ref in (run, None):
        with pytest.raises(LaneLost):
            await store.events.append(lane, [NewEvent(type="stale")], run=ref)
    assert (await store.lanes.renew([lane], ttl=900)).lost == {lane.key}
    with pytest.raises(LaneLost):
        await store.lanes.disarm(lane)
    assert await store.dump() == before
    assert await store.events.append(successor, [NewEvent(type="fresh")]) == 1
    assert (await store.lanes.renew([successor])).renewed == {lane.key}
    await store.lanes.disarm(successor)


async def test_a_displaced_runner_cannot_write_by_leaving_its_generation_out(harness: Harness) -> None:
    """A run begun under a lane writes under that lane or not at all."""
    store, lane, run, _ = await _displaced(harness)
    before = await store.dump()
    for parts in ({"checkpoint": NewCheckpoint(step=3)}, {"events": (NewEvent(type="stale"),)}):
        with pytest.raises((LaneLost, RunNotLive)):
            await store.commit(a_commit(lane.key, run=run, **parts))
    assert await store.dump() == before


async def test_a_runner_on_a_remembered_session_learns_of_its_takeover(harness: Harness) -> None:
    """The takeover comes through another opened store, right between two commits of a turn."""
    clock = FakeClock()
    mine, theirs = await harness.open(clock=clock), await harness.open(clock=clock)
    key, _ = await a_session(mine)
    lane = await mine.lanes.acquire(key, an_owner("old"), ttl=5)
    run = await _begin(mine, lane, f"run-of-{key.session_id}")
    await mine.commit(a_save(key, message("mine"), **_at(lane, run=run)))
    clock.advance(5)
    await theirs.lanes.acquire(key, an_owner("new"))
    before = await mine.dump()
    with pytest.raises(LaneLost):
        await mine.commit(a_save(key, message("stale"), **_at(lane, run=run)))
    assert await mine.dump() == before


async def test_a_commit_under_a_lane_of_another_session_is_refused(store: Store) -> None:
    """Generations are per session; a number that fits by chance does not carry the run with it."""
    key, _ = await a_session(store)
    other, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    run = await _begin(store, lane, f"run-of-{key.session_id}")
    held = await store.lanes.acquire(other, an_owner("somebody"))
    assert held.generation == lane.generation
    before = await store.dump()
    with pytest.raises(RunNotLive):
        await store.commit(a_commit(other, **_at(lane, run=run, events=(NewEvent(type="astray"),))))
    with pytest.raises(LaneLost):
        await store.commit(a_commit(a_key(), **_at(lane, events=(NewEvent(type="astray"),))))
    with pytest.raises(RunNotLive):
        await store.events.append(replace(lane, key=other), [NewEvent(type="astray")], run=run)
    assert await store.dump() == before


async def test_a_run_that_is_not_the_lanes_current_one_cannot_write(store: Store) -> None:
    """Under the right generation, but a later run of the same lane has begun."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    former = await _begin(store, lane, f"former-of-{key.session_id}")
    current = await _begin(store, lane, f"current-of-{key.session_id}")
    before = await store.dump()
    for run in (former, replace(current, attempt=2), RunRef(run_id="unknown")):
        for parts in ({"open_waits": (OpenWait(kind="signal"),)}, {"checkpoint": NewCheckpoint(step=1)}, {"steps": 4}):
            with pytest.raises(RunNotLive):
                await store.commit(a_commit(key, **_at(lane, run=run, **parts)))
        with pytest.raises(RunNotLive):
            await store.events.append(lane, [NewEvent(type="stale")], run=run)
    assert await store.dump() == before
    await store.commit(a_commit(key, **_at(lane, run=current, steps=4)))


async def test_a_lapsed_lane_that_nobody_took_still_writes(harness: Harness) -> None:
    """Wait, event, batch and save all land, and the lane is renewable."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner(), ttl=5)
    run = await _begin(store, lane, f"run-of-{key.session_id}")
    clock.advance(3600)
    events = (NewEvent(type="late"),)
    waits = (OpenWait(kind="signal"),)
    await store.commit(a_save(key, message("late"), **_at(lane, run=run, events=events, open_waits=waits)))
    assert await store.events.append(lane, events, run=run) == 2
    assert len(await store.waits.of_session(key)) == 1
    assert (await store.lanes.renew([lane])).renewed == {key}
    await _busy(store, key)


async def test_inspect_shows_unknown_held_lapsed_and_free_lanes_and_changes_nothing(harness: Harness) -> None:
    """A disarmed lane names its last owner and generation."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    assert await store.lanes.inspect(key) is None
    assert await store.lanes.inspect(a_key()) is None
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-3"), ttl=15)
    seen = []
    for seconds in (14.999, 0.001):
        clock.advance(seconds)
        before = await store.dump()
        seen.append(await store.lanes.inspect(key))
        assert await store.dump() == before
    await store.lanes.disarm(lane)
    seen.append(await store.lanes.inspect(key))
    assert [view.state if view else None for view in seen] == ["held", "lapsed", "free"]
    assert {(view.key, view.generation, view.owner) for view in seen if view} == {(key, 1, an_owner("ada", "boot-3"))}
    assert [view.expires_at for view in seen[:2] if view] == [lane.expires_at] * 2


async def test_a_laneless_save_is_busy_exactly_while_a_lane_is_armed_and_live(harness: Harness) -> None:
    """Free, held, lapsed and disarmed in turn."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    await store.commit(a_save(key, message("before")))
    lane = await store.lanes.acquire(key, an_owner("ada"), ttl=15)
    clock.advance(14.999)
    before = await store.dump()
    record = await store.load(key)
    assert record is not None
    with pytest.raises(LaneBusy) as refused:
        await store.commit(a_save(key, message("during")))
    with pytest.raises(LaneBusy):
        await store.save(key, replace(record, state={"messages": []}))
    assert (refused.value.owner, refused.value.generation) == ("ada", 1)
    assert await store.dump() == before
    clock.advance(0.001)
    await store.commit(a_save(key, message("lapsed")))
    await store.lanes.renew([lane])
    with pytest.raises(LaneBusy):
        await store.commit(a_save(key, message("again")))
    await store.lanes.disarm(lane)
    await store.commit(a_save(key, message("disarmed")))
    loaded = await store.load(key)
    assert loaded is not None
    assert [item["content"] for item in loaded.state["messages"]] == ["before", "lapsed", "disarmed"]


async def test_a_laneless_commit_that_moves_no_head_lands_beside_a_held_lane(store: Store) -> None:
    """Only head moves are refused."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    receipt = await store.commit(a_commit(key, profile={"title": "renamed"}, events=(NewEvent(type="renamed"),)))
    assert (receipt.version, receipt.event_seq) == (1, 1)
    await store.commit(a_save(key, message("mine"), **_at(lane)))


async def test_a_receipt_goes_to_a_displaced_holder_too(harness: Harness) -> None:
    """What had landed before the takeover returns its receipt, anything else is lost."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("old"), ttl=5)
    landed = a_turn(key, lane, message("landed"))
    receipt = await store.commit(landed)
    clock.advance(5)
    await store.lanes.acquire(key, an_owner("new"))
    before = await store.dump()
    assert await store.commit(landed) == replace(receipt, replayed=True)
    with pytest.raises(LaneLost):
        await store.commit(a_turn(key, lane, message("not landed")))
    assert await store.dump() == before


async def test_the_turns_last_commit_disarms_and_keeps_owner_and_generation(store: Store) -> None:
    """Free to take at once, by anyone."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-3"), ttl=3600)
    await store.commit(a_turn(key, lane, message("done"), disarm=True))
    view = await store.lanes.inspect(key)
    assert view is not None
    assert (view.state, view.generation, view.owner) == ("free", 1, an_owner("ada", "boot-3"))
    with pytest.raises(LaneLost):
        await store.commit(a_save(key, message("after the end"), **_at(lane)))
    with pytest.raises(LaneLost):
        await store.events.append(lane, [NewEvent(type="after the end")])
    assert (await store.lanes.acquire(key, an_owner("bob"))).generation == 2


async def test_a_displaced_holders_last_commit_is_refused_whole(harness: Harness) -> None:
    """It neither lands without its release, nor releases the successor's lane."""
    store, lane, run, successor = await _displaced(harness)
    before = await store.dump()
    end = EndRun(status=RunStatus.COMPLETED)
    with pytest.raises(LaneLost):
        await store.commit(a_save(lane.key, message("too late"), **_at(lane, run=run, end=end, disarm=True)))
    assert await store.dump() == before
    assert (await store.lanes.renew([successor])).renewed == {lane.key}


async def test_repeating_a_landed_last_commit_does_not_touch_the_successors_lane(store: Store) -> None:
    """The receipt comes back and nothing else happens."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner("ada"))
    last = a_turn(key, lane, message("done"), disarm=True)
    receipt = await store.commit(last)
    await store.lanes.acquire(key, an_owner("bob"))
    before = await store.dump()
    assert await store.commit(last) == replace(receipt, replayed=True)
    assert await store.dump() == before


async def test_of_two_laneless_writers_on_one_version_one_conflicts(store: Store) -> None:
    """The loser learns what it expected and what it found."""
    key, _ = await a_session(store)
    commits = [a_save(key, message(name), expected_version=1) for name in ("left", "right")]
    async with asyncio.timeout(20):
        results = await asyncio.gather(*map(store.commit, commits), return_exceptions=True)
    conflicts = [result for result in results if isinstance(result, VersionConflict)]
    landed = [result for result in results if not isinstance(result, BaseException)]
    assert [(conflict.expected, conflict.found) for conflict in conflicts] == [(1, 2)]
    assert [receipt.version for receipt in landed] == [2]


async def test_two_laneless_writers_without_a_version_both_land(store: Store) -> None:
    """They land one after the other."""
    key, _ = await a_session(store)
    async with asyncio.timeout(20):
        receipts = await asyncio.gather(*(store.commit(a_save(key, message(name))) for name in ("left", "right")))
    assert sorted(receipt.version for receipt in receipts) == [2, 3]
    loaded = await store.load(key)
    assert loaded is not None
    assert sorted(item["content"] for item in loaded.state["messages"]) == ["left", "right"]


async def test_acquire_that_names_a_former_life_is_refused(store: Store) -> None:
    """A session deleted meanwhile is told apart from a free lane."""
    key, created = await a_session(store)
    await store.delete(key)
    before = await store.dump()
    with pytest.raises(SessionDeleted) as refused:
        await store.lanes.acquire(key, an_owner(), life=created.life)
    assert (refused.value.expected_life, refused.value.found_life) == (1, 2)
    assert await store.dump() == before


async def test_orphans_are_the_running_runs_whose_runner_is_gone(harness: Harness) -> None:
    """Lane lapsed, disarmed or taken, or renewal overdue; oldest first, live and ended runs left out."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    names = ("lapsed", "disarmed", "taken", "live")
    lanes = {}
    for name in names:
        clock.advance(0.1)
        lanes[name] = await store.lanes.acquire(a_key(), an_owner(name), ttl=60 if name == "live" else 5)
        await _begin(store, lanes[name], f"run-{name}")
    clock.advance(0.1)
    await store.commit(a_commit(a_key(), run=BeginRun(run_id="overdue", invocation_id="inv-overdue", ttl=5)))
    await store.commit(a_commit(a_key(), run=BeginRun(run_id="renewed", invocation_id="inv-renewed", ttl=60)))
    assert await store.lanes.orphans() == []
    await store.lanes.disarm(lanes["disarmed"])
    assert [run.run_id for run in await store.lanes.orphans()] == ["run-disarmed"]
    clock.advance(5)
    await store.lanes.acquire(lanes["taken"].key, an_owner("successor"))
    orphans = await store.lanes.orphans()
    assert [run.run_id for run in orphans] == ["run-lapsed", "run-disarmed", "run-taken", "overdue"]
    assert [run.run_id for run in await store.lanes.orphans(limit=2)] == ["run-lapsed", "run-disarmed"]
