"""Acquiring a lane: one runner at a time, fenced by generation, never blocked by a dead holder."""

import asyncio
import json
import sys
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import LaneBusy, SessionNotFound
from tenuto.model.lane import HostProof, Lane, Rearm
from tenuto.model.session import SessionKey
from tenuto.store.host import this_process
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_owner, message
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Harness
from tenuto.testing.scenes.lane_scene import busy, under

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
    refused = await busy(store, key, owner=an_owner("ada", "boot-7"), nonce="turn-2")
    assert (refused.owner, refused.generation, refused.expires_at) == ("ada", 1, lane.expires_at)
    assert refused.category == "session_execution_busy"


@pytest.mark.parametrize(
    ("owner_id", "incarnation"), [("ada", "boot-8"), ("bob", "boot-7"), ("bob", "boot-9")], ids=str
)
async def test_a_live_lane_is_busy_for_every_other_nonce(store: Store, owner_id: str, incarnation: str) -> None:
    """Whoever asks, the holder's row stays equal, and the holder still renews and commits."""
    key, _ = await a_session(store, None, message("hi"))
    lane = await store.lanes.acquire(key, an_owner("ada", "boot-7"))
    await busy(store, key, owner=an_owner(owner_id, incarnation))
    assert (await store.lanes.renew([lane])).renewed == {key}
    receipt = await store.commit(a_save(key, message("still mine"), **under(lane)))
    assert receipt.version == 2


async def test_a_live_lane_is_busy_for_another_opened_store(harness: Harness) -> None:
    """Another connection to the same database is refused the same way."""
    one, other = await harness.open(), await harness.open()
    key = a_key()
    await one.lanes.acquire(key, an_owner("ada"))
    assert (await busy(other, key)).owner == "ada"


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
    await busy(store, key)
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
        await busy(store, key)
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
        assert (await busy(store, key)).owner == what
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
    """The nonce is stored as a digest, taken or re-armed, and the digest does not re-enter the lane."""
    key = a_key()
    lane = await store.lanes.acquire(key, an_owner("ada"), nonce="secret-1", ttl=3600)
    refusal = await busy(store, key)
    assert "secret" not in f"{refusal} {refusal.details()} {await store.dump()} {await store.lanes.inspect(key)}"
    assert "nonce" not in refusal.details()
    ((shown,),) = await rows(store, "session", "nonce")
    await busy(store, key, nonce=shown)
    receipt = await store.commit(a_commit(key, **under(lane, disarm=True)))
    rearm = {"rearm": Rearm(nonce="secret-2", ttl=3600), "expected_commit": receipt.commit_number}
    await store.commit(a_commit(key, **under(lane, **rearm)))
    assert "secret" not in str(await store.dump())
    await busy(store, key, nonce="secret-1")
    assert (await store.lanes.acquire(key, an_owner("ada"), nonce="secret-2")).generation == 1


def _host_ids() -> dict[str, str]:
    return {name: Path(path).read_text().strip() for name, path in _HOST_IDS.items() if Path(path).exists()}


async def test_a_host_is_known_by_digests_of_its_ids(store: Store) -> None:
    """Neither a row nor a refusal has the ids themselves; a stored holder with plain ids has an unknown host."""
    raw = _host_ids()
    assert raw
    key, former = a_key(), a_key()
    await store.lanes.acquire(key, an_owner("here", "h-1", this_process()))
    refusal = await busy(store, key)
    shown = f"{refusal} {refusal.details()} {await store.dump()} {this_process()}"
    assert not [name for name, value in raw.items() if value in shown or value.replace("-", "") in shown]
    dead, _ = await _proof_of_child(dead=True)
    as_given: dict[str, Any] = dict(raw)
    await store.lanes.acquire(former, an_owner("former", "f-1", replace(dead, **as_given)))
    await busy(store, former)


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
