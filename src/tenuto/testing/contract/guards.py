"""Guards: any miss refuses a commit whole, in the order of law 2, and says what was found."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tenuto.errors import (
    ClaimLost,
    CommitMoved,
    CommitRefused,
    EffectMismatch,
    EffectNotOpen,
    InvalidInput,
    InvocationExists,
    LaneBusy,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionDeleted,
    StatusRefused,
    StopWithdrawn,
    TenutoError,
    VersionConflict,
    WaitNotOpen,
)
from tenuto.ids import new_id
from tenuto.model.commit import (
    Append,
    BeginRun,
    Commit,
    EndRun,
    Held,
    NewCheckpoint,
    OpenWait,
    Reset,
    SettleWait,
    TakeRun,
)
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import Lane
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Kind, LogEnd, SessionKey, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_save, a_session, an_id, an_owner

START = StartEffect(key="call", kind=EffectKind.TOOL, request=1)


@dataclass
class Scene:
    """A session in the middle of a laned turn, and a commit of it that touches every part and would land."""

    key: SessionKey
    lane: Lane
    run: RunRef
    ended: str
    settled: str
    commit: Commit


async def _scene(store: Store) -> Scene:
    key, _ = await a_session(store, None, "a", state={"x": 0, "big": "b" * 2000})
    ended, run = an_id("ended"), RunRef(run_id=an_id("run"))
    lane = await store.lanes.acquire(key, an_owner())
    begin = BeginRun(run_id=ended, invocation_id=f"inv-{ended}")
    waits = (OpenWait(kind="signal"), OpenWait(kind="approval"))
    first = await store.commit(a_commit(key, generation=lane.generation, run=begin, open_waits=waits))
    done = a_commit(
        key,
        generation=lane.generation,
        run=RunRef(run_id=ended),
        settle_waits=(SettleWait(wait_id=first.wait_ids[0]),),
        end=EndRun(status=RunStatus.SUSPENDED),
        operation_id="landed",
    )
    await store.commit(done)
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    head = await store.commit(
        a_commit(
            key,
            generation=lane.generation,
            run=begin,
            logs={"messages": Append(items=("own",)), "frame/scratch": Append(items=("s",))},
            checkpoint=NewCheckpoint(step=1),
            effects=(START, replace(START, key="done"), FinishEffect(key="done")),
        )
    )
    queued = (await store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body="q", key="queued"))).input
    (content,) = [row["hash"] for row in await rows(store, "content")]
    commit = a_commit(
        key,
        generation=lane.generation,
        run=run,
        statuses=frozenset({SessionStatus.ACTIVE}),
        expected_version=1,
        expected_commit=head.commit_number,
        save=True,
        document={"x": 1, "copy": Held(hash=content), "other": "o" * 3000},
        logs={"messages": Append(items=("b",)), "notes": Append(items=("n",))},
        schema_version="v1",
        status=SessionStatus.COMPLETED,
        profile={"title": "T"},
        steps=4,
        end=EndRun(status=RunStatus.COMPLETED),
        checkpoint=NewCheckpoint(step=2, document={"y": "y" * 3000}),
        open_waits=(OpenWait(kind="late"),),
        settle_waits=(SettleWait(wait_id=first.wait_ids[1], answer=1),),
        events=(NewEvent(type="e"),),
        inputs=(NewInput(kind=InputKind.COMMAND, body="c", key="new"),),
        consume=(Consume(input_id=queued.input_id, log="messages", item=0),),
        effects=(FinishEffect(key="call", result=1),),
        usage=(NewUsage(model="m", output=3),),
        outgoing=(NewOutgoing(kind="wake", target=key),),
        disarm=True,
    )
    return Scene(key=key, lane=lane, run=run, ended=ended, settled=first.wait_ids[0], commit=commit)


MISSES: dict[str, tuple[type[TenutoError], Callable[[Scene], dict[str, Any]]]] = {
    "life": (SessionDeleted, lambda _: {"life": 2}),
    "life before the first": (SessionDeleted, lambda _: {"life": 0}),
    "receipt intent": (OperationConflict, lambda _: {"operation_id": "landed"}),
    "generation behind": (LaneLost, lambda s: {"generation": s.lane.generation - 1}),
    "generation ahead": (LaneLost, lambda s: {"generation": s.lane.generation + 1}),
    "no generation": (LaneBusy, lambda _: {"generation": None, "disarm": False}),
    "unknown run": (RunNotLive, lambda _: {"run": RunRef(run_id="unknown")}),
    "ended run": (RunNotLive, lambda s: {"run": RunRef(run_id=s.ended)}),
    "attempt ahead": (RunNotLive, lambda s: {"run": replace(s.run, attempt=2)}),
    "attempt behind": (RunNotLive, lambda s: {"run": replace(s.run, attempt=0)}),
    "take at another attempt": (RunNotLive, lambda s: {"run": TakeRun(run_id=s.run.run_id, attempt=2)}),
    "take an ended run": (RunNotLive, lambda s: {"run": TakeRun(run_id=s.ended, attempt=1)}),
    "run begun before": (CommitRefused, lambda s: {"run": BeginRun(run_id=s.ended, invocation_id="fresh")}),
    "invocation used before": (
        InvocationExists,
        lambda s: {"run": BeginRun(run_id=new_id(), invocation_id=f"inv-{s.ended}")},
    ),
    "status": (StatusRefused, lambda _: {"statuses": frozenset({SessionStatus.SUSPENDED, SessionStatus.FAILED})}),
    "no status": (StatusRefused, lambda _: {"statuses": frozenset()}),
    "version behind": (VersionConflict, lambda _: {"expected_version": 0}),
    "version ahead": (VersionConflict, lambda _: {"expected_version": 2}),
    "commit number behind": (CommitMoved, lambda s: {"expected_commit": (s.commit.expected_commit or 0) - 1}),
    "commit number ahead": (CommitMoved, lambda s: {"expected_commit": (s.commit.expected_commit or 0) + 1}),
    "unknown wait": (WaitNotOpen, lambda _: {"settle_waits": (SettleWait(wait_id="unknown"),)}),
    "settled wait": (WaitNotOpen, lambda s: {"settle_waits": (SettleWait(wait_id=s.settled),)}),
    "wait settled twice": (WaitNotOpen, lambda s: {"settle_waits": s.commit.settle_waits * 2}),
    "unknown input": (ClaimLost, lambda _: {"consume": (Consume(input_id="unknown"),)}),
    "input consumed twice": (ClaimLost, lambda s: {"consume": s.commit.consume * 2}),
    "known input": (ClaimLost, lambda _: {"inputs": (NewInput(kind=InputKind.MESSAGE, body="q", key="queued"),)}),
    "other input": (OperationConflict, lambda _: {"inputs": (NewInput(kind=InputKind.MESSAGE, body=1, key="queued"),)}),
    "withdrawn stop": (StopWithdrawn, lambda _: {"sees_stop": True}),
    "done effect": (EffectNotOpen, lambda _: {"effects": (FinishEffect(key="done"),)}),
    "other request": (EffectMismatch, lambda _: {"effects": (replace(START, request=2),)}),
    "content hash": (VersionConflict, lambda _: {"document": {"copy": Held(hash="0" * 64)}}),
    "checkpoint's content hash": (
        VersionConflict,
        lambda _: {"checkpoint": NewCheckpoint(step=2, document={"y": Held(hash="0" * 64)})},
    ),
}


async def test_a_commit_with_any_failing_guard_changes_nothing(store: Store) -> None:
    """Document, logs, branches, checkpoints, runs, waits, events, receipts and lane; then it lands."""
    scene = await _scene(store)
    for guard, (error, miss) in MISSES.items():
        async with unchanged(store):
            with pytest.raises(error) as refused:
                await store.commit(replace(scene.commit, **miss(scene)))
        assert type(refused.value) is error, guard
        assert refused.value.details(), guard
    receipt = await store.commit(scene.commit)
    assert (receipt.replayed, receipt.version) == (False, 2)


async def test_a_refused_guard_says_what_was_found(store: Store) -> None:
    """Each refusal has its category and its data."""
    scene = await _scene(store)
    wanted: dict[str, tuple[str, dict[str, Any]]] = {
        "life": ("session_deleted", {"expected_life": 2, "found_life": 1}),
        "receipt intent": ("operation_conflict", {"operation_id": "landed"}),
        "generation ahead": ("session_execution_lease_lost", {"expected": 2, "found": 1}),
        "no generation": ("session_execution_busy", {"owner": "worker-1", "generation": 1}),
        "ended run": ("store_commit_failed", {"run_id": scene.ended, "found": "suspended"}),
        "invocation used before": ("invocation_exists", {"invocation_id": f"inv-{scene.ended}"}),
        "status": ("session_status_invalid", {"found": "active"}),
        "version ahead": ("session_write_conflict", {"expected": 2, "found": 1}),
        "settled wait": ("store_commit_failed", {"wait_id": scene.settled, "found": "answered"}),
        "content hash": ("session_write_conflict", {"hashes": ["0" * 64]}),
    }
    for guard, (category, data) in wanted.items():
        with pytest.raises(TenutoError) as refused:
            await store.commit(replace(scene.commit, **MISSES[guard][1](scene)))
        assert refused.value.category == category, guard
        assert data.items() <= refused.value.details().items(), guard


async def test_guards_are_checked_in_the_order_of_the_law(store: Store) -> None:
    """With everything wrong the first guard speaks; mend it, and the next does."""
    scene = await _scene(store)
    order = [
        "life",
        "receipt intent",
        "generation ahead",
        "ended run",
        "withdrawn stop",
        "status",
        "version ahead",
        "unknown input",
        "settled wait",
        "done effect",
    ]
    wrong = scene.commit
    for guard in order:
        wrong = replace(wrong, **MISSES[guard][1](scene))
    spoken = []
    for guard in order:
        with pytest.raises(MISSES[guard][0]) as refused:
            await store.commit(wrong)
        spoken.append(type(refused.value))
        mended = MISSES[guard][1](scene).keys()
        wrong = replace(wrong, **{name: getattr(scene.commit, name) for name in mended})
    assert spoken == [MISSES[guard][0] for guard in order]
    assert not (await store.commit(wrong)).replayed


async def test_a_commit_under_a_disarmed_lane_is_refused(store: Store) -> None:
    """The generation is the last holder's, but the lane is not held; only a re-arm may continue."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    await store.commit(a_save(key, "a", generation=lane.generation))
    await store.commit(a_save(key, "b", generation=lane.generation))
    await store.lanes.disarm(lane)
    async with unchanged(store):
        with pytest.raises(LaneLost):
            await store.commit(a_save(key, "c", generation=lane.generation))
    assert (await store.lanes.acquire(key, an_owner())).generation == lane.generation + 1


async def test_a_laned_commit_of_a_run_that_is_not_the_sessions_current_one_is_refused(store: Store) -> None:
    """A run that began without the lane cannot write under it."""
    key, _ = await a_session(store)
    await store.commit(a_commit(key, run=BeginRun(run_id="bare", invocation_id="inv-bare")))
    lane = await store.lanes.acquire(key, an_owner())
    async with unchanged(store):
        with pytest.raises(RunNotLive) as refused:
            await store.commit(a_commit(key, run=RunRef(run_id="bare"), generation=lane.generation, steps=1))
    assert refused.value.run_id == "bare"


async def test_a_profile_or_status_change_needs_a_live_session(store: Store) -> None:
    """There is nothing to change about an id that was never saved."""
    key = a_key()
    changes: tuple[dict[str, Any], ...] = (
        {"profile": {"title": "T"}},
        {"status": SessionStatus.FAILED},
        {"statuses": frozenset({SessionStatus.ACTIVE}), "save": True},
    )
    for change in changes:
        async with unchanged(store):
            with pytest.raises(StatusRefused) as refused:
                await store.commit(a_commit(key, **change))
        assert refused.value.found == "absent"


async def test_a_mode_can_be_set_once(store: Store) -> None:
    """The same mode again is fine, another one is refused."""
    key, _ = await a_session(store)
    await store.commit(a_commit(key, profile={"mode": "chat"}))
    await store.commit(a_commit(key, profile={"mode": "chat", "title": "T"}))
    async with unchanged(store):
        with pytest.raises(CommitRefused):
            await store.commit(a_commit(key, profile={"mode": "batch"}))
        for fixed in ("parent", "root", "forked_from", "unknown"):
            with pytest.raises(InvalidInput):
                await store.commit(a_commit(key, profile={fixed: "x"}))


@pytest.mark.parametrize(
    "other",
    [SessionKey("other"), SessionKey("mine", tenant="t2"), SessionKey("mine", kind=Kind.INVOCATION)],
    ids=["another id", "another tenant", "another kind"],
)
async def test_a_commit_that_names_something_of_another_session_is_refused(store: Store, other: SessionKey) -> None:
    """A run, wait, checkpoint's ends or branch of B in a commit for A; nothing changes on either side."""
    mine = SessionKey("mine")
    receipts = {}
    for key in (mine, other):
        await a_session(store, None, "a", "b", key=key)
        begin = BeginRun(run_id=f"run {key}", invocation_id=f"inv {key.tenant} {key.kind} {key.session_id}")
        receipts[key] = await store.commit(
            a_commit(
                key,
                run=begin,
                logs={"messages": Append(items=("own",))},
                checkpoint=NewCheckpoint(step=1),
                open_waits=(OpenWait(kind="signal"),),
            )
        )
    theirs = receipts[other]
    end, run_id = theirs.ends["messages"], f"run {other}"
    fresh = BeginRun(run_id="fresh", invocation_id="fresh")
    foreign: dict[str, tuple[type[TenutoError], dict[str, Any]]] = {
        "run": (RunNotLive, {"run": RunRef(run_id=run_id), "steps": 9}),
        "taken run": (RunNotLive, {"run": TakeRun(run_id=run_id, attempt=1)}),
        "begun run": (CommitRefused, {"run": BeginRun(run_id=run_id, invocation_id="new")}),
        "wait": (WaitNotOpen, {"settle_waits": (SettleWait(wait_id=theirs.wait_ids[0]),)}),
        "branch kept": (CommitRefused, {"save": True, "logs": {"messages": Reset(keep=end)}}),
        "branch as base": (CommitRefused, {"save": True, "logs": {"messages": Append(items=("x",), base=end)}}),
        "checkpoint's ends": (CommitRefused, {"run": replace(fresh, ends=theirs.ends)}),
        "base ends": (CommitRefused, {"run": replace(fresh, base_ends=theirs.ends)}),
    }
    async with unchanged(store):
        for name, (error, parts) in foreign.items():
            with pytest.raises(error) as refused:
                await store.commit(a_commit(mine, **parts))
            assert refused.value.category == "store_commit_failed", name


async def test_a_log_place_that_does_not_exist_is_refused(store: Store) -> None:
    """Unknown branch, position beyond a branch's end, another log's branch, ends that do not exist."""
    key, created = await a_session(store, None, "a", "b", state={"notes": ["n"]}, logs={"notes"})
    end = created.ends["messages"]
    begin = BeginRun(run_id="fresh", invocation_id="fresh")
    bad = {
        "unknown branch": end._replace(branch=99),
        "unknown session row": end._replace(session=end.session + 99),
        "beyond the end": end._replace(position=3),
        "another log": created.ends["notes"],
    }
    async with unchanged(store):
        for name, place in bad.items():
            for parts in (
                {"save": True, "logs": {"messages": Reset(keep=place)}},
                {"save": True, "logs": {"messages": Append(items=("x",), base=place)}},
                {"run": begin, "logs": {"messages": Reset(keep=place)}},
                {"run": begin, "logs": {"messages": Append(base=place)}, "checkpoint": NewCheckpoint(step=1)},
                {"run": replace(begin, ends={"messages": place})},
                {"run": replace(begin, base_ends={"messages": place}), "checkpoint": NewCheckpoint(step=1)},
            ):
                with pytest.raises(CommitRefused) as refused:
                    await store.commit(a_commit(key, **parts))
                assert refused.value.details()["end"] == place, name


async def test_an_unknown_branch_is_refused_at_position_0_too(store: Store) -> None:
    """Nothing is kept of it, but naming what is not there is a mistake."""
    key, created = await a_session(store, None, "a")
    async with unchanged(store):
        place = LogEnd(created.ends["messages"].session, 99, 0)
        with pytest.raises(CommitRefused):
            await store.commit(a_commit(key, save=True, logs={"messages": Reset(keep=place)}))


@pytest.mark.parametrize("write", [Append(items=("x",)), Reset(items=("x",))], ids=["append", "reset"])
async def test_a_log_operation_on_a_field_that_is_not_a_log_is_refused(store: Store, write: Append | Reset) -> None:
    """This holds on the head and on a run; a field changes its kind only by a migration, which removes it first."""
    key, _ = await a_session(store, None, "a", state={"topic": "t", "big": "b" * 2000})
    begin = BeginRun(run_id="fresh", invocation_id="fresh")
    async with unchanged(store):
        for field in ("topic", "big"):
            with pytest.raises(CommitRefused):
                await store.commit(a_commit(key, save=True, logs={field: write}))
        with pytest.raises(CommitRefused):
            await store.commit(a_commit(key, save=True, document={"messages": "text"}))
        with pytest.raises(InvalidInput):
            await store.commit(a_commit(key, save=True, document={"n": 1}, logs={"n": write}))
    await store.commit(a_commit(key, save=True, removed=frozenset({"topic"}), logs={"topic": write}))
    record = await store.load(key)
    assert record is not None
    assert record.state["topic"] == ["x"]
    assert record.logs == {"messages", "topic"}
    async with unchanged(store):
        with pytest.raises(CommitRefused):
            await store.commit(a_commit(key, run=begin, logs={"big": write}, checkpoint=NewCheckpoint(step=1)))


async def test_parts_that_need_each_other_are_refused_alone(store: Store) -> None:
    """A commit that cannot mean anything never reaches a transaction."""
    key, _ = await a_session(store)
    meaningless: tuple[dict[str, Any], ...] = (
        {"document": {"x": 1}},
        {"removed": frozenset({"x"})},
        {"schema_version": "v2"},
        {"logs": {"messages": Append(items=("x",))}},
        {"end": EndRun(status=RunStatus.COMPLETED)},
        {"steps": 1},
        {"open_waits": (OpenWait(kind="signal"),)},
        {"save": True, "logs": {"frame/scratch": Append(items=("x",))}},
        {"disarm": True},
    )
    async with unchanged(store):
        for parts in meaningless:
            with pytest.raises(InvalidInput):
                await store.commit(a_commit(key, **parts))


async def test_a_commit_that_knows_where_the_stream_stands_is_refused_once_anybody_queued_or_told_anything(
    store: Store,
) -> None:
    """So a runner need not look into the inbox before each commit; its own commits do not count."""
    key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    fence = {"generation": lane.generation, "life": lane.life}
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=an_id("inv"))
    begun = await store.commit(a_commit(key, run=begin, events=(NewEvent(type="begun"),), **fence))
    stamp = await store.stamp(key)
    assert stamp is not None
    assert stamp.event_seq == begun.event_seq

    async def goes_on(expected: int) -> int:
        receipt = await store.commit(
            a_commit(key, run=run, expected_events=expected, events=(NewEvent(type="step"),), **fence)
        )
        return receipt.event_seq

    stands = await goes_on(await goes_on(begun.event_seq))
    others: list[Callable[[], Any]] = [
        lambda: store.inbox.enqueue(key, NewInput(kind=InputKind.MESSAGE, body="hi")),
        lambda: store.runs.request_stop(run.run_id),
        lambda: store.commit(a_commit(key, events=(NewEvent(type="told"),))),
    ]
    for other in others:
        await other()
        before = await store.dump()
        with pytest.raises(VersionConflict) as refused:
            await goes_on(stands)
        assert (refused.value.expected, refused.value.found) == (stands, stands + 1)
        assert refused.value.details()["counted"] == "events"
        assert await store.dump() == before
        stands = await goes_on(stands + 1)
