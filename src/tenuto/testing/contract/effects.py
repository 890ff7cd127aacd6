"""Effects: a call to the outside is recorded once; what was started and never finished is known to be in doubt."""

from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import EffectMismatch, EffectNotOpen, InvalidInput, LaneLost, OperationConflict, RunNotLive
from tenuto.ids import new_id
from tenuto.model.commit import BeginRun, Commit, EndRun, TakeRun
from tenuto.model.effect import Effect, EffectChange, EffectKind, EffectStatus, FinishEffect, SettleEffect, StartEffect
from tenuto.model.lane import Lane
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused, rows, unchanged
from tenuto.testing.factories import a_commit, a_key, a_session, a_turn, an_id, an_owner
from tenuto.testing.fake_clock import FakeClock
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import fail_at_each_statement, statements


def _start(key: str = "pay", request: Any = "7 EUR", **parts: Any) -> StartEffect:
    return StartEffect(key=key, **({"kind": EffectKind.TOOL, "request": request} | parts))


class _Scene:
    """A session with a live run under a lane."""

    def __init__(self, store: Store, key: SessionKey, lane: Lane, run: RunRef) -> None:
        self.store, self.key, self.lane, self.run = store, key, lane, run
        self.origin = f"inv-{run.run_id}"

    def commit(self, *effects: EffectChange, end: RunStatus | None = None, **parts: Any) -> Commit:
        ending = EndRun(status=end) if end else None
        fixed: dict[str, Any] = {"generation": self.lane.generation, "run": self.run, "effects": effects, "end": ending}
        return a_commit(self.key, **(fixed | parts))

    async def write(self, *effects: EffectChange, **parts: Any) -> None:
        await self.store.commit(self.commit(*effects, **parts))

    async def get(self, key: str = "pay", **place: Any) -> Effect:
        found = await self.store.effects.get(self.key, place.pop("origin_id", self.origin), key, **place)
        assert found is not None
        return found

    async def doubts(self) -> list[str]:
        return [each.effect_key for each in await self.store.effects.list(self.key, in_doubt=True)]


async def _scene(store: Store, key: SessionKey | None = None) -> _Scene:
    if key is None:
        key, _ = await a_session(store)
    lane = await store.lanes.acquire(key, an_owner())
    run = RunRef(run_id=an_id("run"))
    begin = BeginRun(run_id=run.run_id, invocation_id=f"inv-{run.run_id}")
    await store.commit(a_commit(key, generation=lane.generation, run=begin))
    return _Scene(store, key, lane, run)


async def test_a_started_and_finished_effect_reads_back_equal_after_reopen(harness: Harness) -> None:
    """A result or an error, whichever came back, in whatever order effects are asked for."""
    store = await harness.open()
    scene = await _scene(store)
    place: dict[str, Any] = {"namespace": "outer/inner", "step": 3}
    await scene.write(_start("pay", {"amount": 7}, call_id="c-1", idempotent=True, **place), _start("ask", "?"))
    begun = await scene.get(**place)
    assert (begun.status, begun.request, begun.has_result, begun.ended_at) == ("started", {"amount": 7}, False, None)
    assert (begun.call_id, begun.idempotent, begun.kind) == ("c-1", True, EffectKind.TOOL)
    assert (begun.run_id, begun.attempt, begun.origin_id) == (scene.run.run_id, 1, scene.origin)
    error = {"category": "provider_unavailable", "message": "gone"}
    await scene.write(FinishEffect(key="ask", error=error), FinishEffect(key="pay", result=None, **place))
    scene.store = await harness.open()
    done, failed = await scene.get(**place), await scene.get("ask")
    assert (done.status, done.result, done.has_result, done.error) == (EffectStatus.DONE, None, True, None)
    assert done.ended_at is not None
    assert (failed.status, failed.error, failed.has_result) == (EffectStatus.FAILED, error, False)
    assert [each.effect_key for each in await scene.store.effects.list(scene.key)] == ["ask", "pay"]
    assert await scene.store.effects.get(scene.key, scene.origin, "pay") is None


async def test_a_call_started_and_finished_in_one_commit_is_one_row(store: Store) -> None:
    """So a model's result may ride with the next commit; the repeat of it adds nothing."""
    scene = await _scene(store)
    commit = scene.commit(_start("ask", kind=EffectKind.MODEL), FinishEffect(key="ask", result="fine"))
    await store.commit(commit)
    assert (await store.commit(commit)).replayed
    found = await scene.get("ask")
    assert (found.status, found.request, found.result) == (EffectStatus.DONE, "7 EUR", "fine")
    assert len(await rows(store, "effect")) == 1


async def test_the_same_effect_with_another_request_is_a_mismatch_that_names_both(store: Store) -> None:
    """Another body or kind, while it is started and when it is done, also after its body is gone."""
    scene = await _scene(store)
    await scene.write(_start())
    first = await scene.get()
    for finish in ((), (FinishEffect(key="pay", result=1),)):
        await scene.write(*finish)
        async with unchanged(store):
            for other in (_start(request="8 EUR"), _start(kind=EffectKind.MODEL)):
                with pytest.raises(EffectMismatch) as refusal:
                    await scene.write(other)
                assert refusal.value.found == first.digest
                assert refusal.value.given not in ("", first.digest)
                assert refusal.value.category == "effect_mismatch"
    await scene.write(end=RunStatus.COMPLETED)
    begin = BeginRun(run_id=an_id("run"), invocation_id=scene.origin, fresh=False)
    with pytest.raises(EffectMismatch):
        await store.commit(scene.commit(_start(request="8 EUR"), run=begin))


async def test_a_call_is_made_again_under_the_next_number(store: Store) -> None:
    """After a failure, and where the outcome is not known; with another number, or after another outcome, it is not."""
    scene = await _scene(store)
    await scene.write(_start("failed"), _start("open"), _start("done"))
    await scene.write(FinishEffect(key="failed", error={"category": "down"}), FinishEffect(key="done", result=1))
    assert (await scene.get("failed")).making == 1
    async with unchanged(store):
        for key, making in (("failed", 1), ("failed", 3), ("done", 2)):
            with pytest.raises(EffectNotOpen):
                await scene.write(_start(key, making=making))
        with pytest.raises(EffectMismatch):
            await scene.write(_start("failed", "8 EUR", making=2))
        for wrong in (0, -1, "2"):
            with pytest.raises(InvalidInput):
                await scene.write(_start("failed", making=wrong))
    await scene.write(_start("failed", making=2), _start("open", making=2))
    again = await scene.get("failed")
    assert (again.status, again.making, again.error, again.ended_at) == (EffectStatus.STARTED, 2, None, None)
    assert (await scene.get("open")).making == 2
    with pytest.raises(EffectNotOpen):
        await scene.write(_start("open", making=1))
    await scene.write(FinishEffect(key="failed", result="fine"), _start("next"), FinishEffect(key="next", error="e"))
    await scene.write(_start("next", making=2), FinishEffect(key="next", result="late"))
    assert [
        (each.status, each.making, each.result) for each in [await scene.get("failed"), await scene.get("next")]
    ] == [(EffectStatus.DONE, 2, "fine"), (EffectStatus.DONE, 2, "late")]


async def test_a_done_effect_is_not_started_again(store: Store) -> None:
    """Done, failed and settled alike; the refusal says which, and nothing changes."""
    scene = await _scene(store)
    await scene.write(_start("done"), _start("failed"), _start("settled"))
    await scene.write(FinishEffect(key="done"), FinishEffect(key="failed", error="e"), SettleEffect(key="settled"))
    async with unchanged(store):
        for state in ("done", "failed", "settled"):
            for change in (_start(state), FinishEffect(key=state), SettleEffect(key=state)):
                with pytest.raises(EffectNotOpen) as refusal:
                    await scene.write(change)
                assert refusal.value.found == state


async def test_an_outcome_needs_a_start_and_comes_once(store: Store) -> None:
    """Unknown, twice in one commit, or started twice in one."""
    scene = await _scene(store)
    await scene.write(_start("begun"))
    wrong: dict[str, tuple[EffectChange, ...]] = {
        "unknown": (FinishEffect(key="nothing"),),
        "settling the unknown": (SettleEffect(key="nothing"),),
        "finished twice": (FinishEffect(key="begun"), FinishEffect(key="begun")),
        "started twice": (_start("new"), _start("new")),
        "settled what was finished": (FinishEffect(key="begun"), SettleEffect(key="begun")),
        "another step": (FinishEffect(key="begun", step=1),),
        "another namespace": (FinishEffect(key="begun", namespace="x"),),
    }
    calls = {name: (lambda effects=effects: scene.write(*effects)) for name, effects in wrong.items()}
    async with unchanged(store):
        assert await not_refused(EffectNotOpen, calls) == {}


@needs(Capability.PROBES)
async def test_an_effect_outside_a_run_or_malformed_is_refused_before_any_statement(store: Store) -> None:
    """So is an empty key or an unknown kind."""
    key, _ = await a_session(store)
    begin = BeginRun(run_id=new_id(), invocation_id=new_id())
    commits = {
        "start without run": a_commit(key, effects=(_start(),)),
        "finish without run": a_commit(key, effects=(FinishEffect(key="k"),)),
        "settle without run or origin": a_commit(key, effects=(SettleEffect(key="k"),)),
        "empty key": a_commit(key, run=begin, effects=(_start(""),)),
        "unknown kind": a_commit(key, run=begin, effects=(_start(kind="prayer"),)),
        "negative step": a_commit(key, run=begin, effects=(_start(step=-1),)),
        "not JSON": a_commit(key, run=begin, effects=(_start(request=object()),)),
        "result and error": a_commit(key, run=begin, effects=(_start(), FinishEffect(key="pay", result=1, error=2))),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in commits.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []


async def test_effects_belong_to_what_a_commit_means(store: Store) -> None:
    scene = await _scene(store)
    start = scene.commit(_start())
    await store.commit(start)
    finish = scene.commit(FinishEffect(key="pay", result=1))
    await store.commit(finish)
    others = {
        "request": replace(start, effects=(_start(request="8 EUR"),)),
        "step": replace(start, effects=(_start(step=1),)),
        "call id": replace(start, effects=(_start(call_id="c"),)),
        "idempotent": replace(start, effects=(_start(idempotent=True),)),
        "none": replace(start, effects=()),
        "result": replace(finish, effects=(FinishEffect(key="pay", result=2),)),
        "error": replace(finish, effects=(FinishEffect(key="pay", error=1),)),
        "settled": replace(finish, effects=(SettleEffect(key="pay", result=1),)),
    }
    calls = {name: (lambda commit=commit: store.commit(commit)) for name, commit in others.items()}
    async with unchanged(store):
        assert await not_refused(OperationConflict, calls) == {}


async def test_a_loop_and_another_origin_do_not_collide(store: Store) -> None:
    """The key is origin, namespace, step and key."""
    scene = await _scene(store)
    await scene.write(_start(request=1), _start(request=2, step=1), _start(request=3, namespace="n"))
    await scene.write(end=RunStatus.FAILED, disarm=True)
    later = await _scene(store, scene.key)
    await later.write(_start(request=4))
    found = await store.effects.list(scene.key)
    assert sorted(each.request for each in found) == [1, 2, 3, 4]
    assert [each.request for each in await store.effects.list(scene.key, origin_id=later.origin)] == [4]
    assert len(await store.effects.list(scene.key, limit=2)) == 2


async def test_a_resumed_run_finds_the_effects_of_its_origin(store: Store) -> None:
    """Under another invocation of the chain and another run, the key is the same."""
    scene = await _scene(store)
    await scene.write(_start(), FinishEffect(key="pay", result="paid"))
    await scene.write(end=RunStatus.SUSPENDED)
    begin = BeginRun(run_id=an_id("run"), invocation_id=new_id(), origin_id=scene.origin)
    async with unchanged(store):
        with pytest.raises(EffectNotOpen, match="done"):
            await store.commit(scene.commit(_start(), run=begin))
    await store.commit(scene.commit(_start("more"), run=begin))
    more = await scene.get("more")
    assert (more.origin_id, more.run_id) == (scene.origin, begin.run_id)
    assert (await scene.get()).result == "paid"


async def test_an_effect_is_in_doubt_once_its_runner_is_not_the_live_one(harness: Harness) -> None:
    """Not while it runs; from the takeover's attempt on, and after its run has ended. A known outcome never."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    scene = await _scene(store)
    await scene.write(_start("open"), _start("done"), FinishEffect(key="done"))
    clock.advance(60)
    assert await scene.doubts() == []
    lane = await store.lanes.acquire(scene.key, an_owner("worker-2"))
    take = TakeRun(run_id=scene.run.run_id, attempt=1)
    await store.commit(a_commit(scene.key, generation=lane.generation, run=take))
    assert await scene.doubts() == ["open"]
    successor = _Scene(store, scene.key, lane, RunRef(run_id=scene.run.run_id, attempt=2))
    await successor.write(_start("mine"))
    assert await scene.doubts() == ["open"]
    await successor.write(end=RunStatus.INTERRUPTED)
    assert sorted(await scene.doubts()) == ["mine", "open"]
    assert await store.effects.list(a_key(), in_doubt=True) == ()


async def test_a_displaced_runner_records_no_result(harness: Harness) -> None:
    """The lane fences; and neither can the successor finish what he did not start."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    scene = await _scene(store)
    await scene.write(_start())
    clock.advance(60)
    lane = await store.lanes.acquire(scene.key, an_owner("worker-2"))
    take = TakeRun(run_id=scene.run.run_id, attempt=1)
    await store.commit(a_commit(scene.key, generation=lane.generation, run=take))
    successor = _Scene(store, scene.key, lane, RunRef(run_id=scene.run.run_id, attempt=2))
    async with unchanged(store):
        with pytest.raises(LaneLost):
            await scene.write(FinishEffect(key="pay", result=1))
        with pytest.raises(RunNotLive):
            await store.commit(scene.commit(FinishEffect(key="pay", result=1), generation=lane.generation))
        with pytest.raises(EffectNotOpen, match="attempt 1"):
            await successor.write(FinishEffect(key="pay", result=1))


async def test_an_effect_in_doubt_is_started_again_or_settled(harness: Harness) -> None:
    """A retry makes it the new runner's; a settlement has the outcome somebody decided on."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    scene = await _scene(store)
    await scene.write(_start("again"), _start("both"), _start("asked"))
    clock.advance(60)
    lane = await store.lanes.acquire(scene.key, an_owner("worker-2"))
    take = TakeRun(run_id=scene.run.run_id, attempt=1)
    await store.commit(a_commit(scene.key, generation=lane.generation, run=take, effects=(_start("again"),)))
    again = await scene.get("again")
    assert (again.status, again.attempt, again.started_at > (await scene.get("asked")).started_at) == (
        "started",
        2,
        True,
    )
    successor = _Scene(store, scene.key, lane, RunRef(run_id=scene.run.run_id, attempt=2))
    await successor.write(
        FinishEffect(key="again", result=2),
        _start("both"),
        FinishEffect(key="both", result=3),
        SettleEffect(key="asked", result="it was paid"),
    )
    found = {each.effect_key: (each.status, each.result, each.attempt) for each in await store.effects.list(scene.key)}
    assert found == {"again": ("done", 2, 2), "both": ("done", 3, 2), "asked": ("settled", "it was paid", 1)}
    assert await scene.doubts() == []


async def test_an_effect_is_settled_by_hand_after_its_run_has_ended(store: Store) -> None:
    """In doubt: it stays listed until then, and needs neither run nor lane, only its origin."""
    scene = await _scene(store)
    await scene.write(_start("a"), _start("b"))
    await scene.write(end=RunStatus.FAILED, disarm=True)
    settle = SettleEffect(key="a", origin_id=scene.origin, error={"category": "unknown_outcome"})
    async with unchanged(store):
        with pytest.raises(EffectNotOpen):
            await store.commit(a_commit(scene.key, effects=(replace(settle, origin_id="another"),)))
    await store.commit(a_commit(scene.key, effects=(settle,)))
    found = await scene.get("a")
    assert (found.status, found.error) == (EffectStatus.SETTLED, {"category": "unknown_outcome"})
    assert await scene.doubts() == ["b"]


@pytest.mark.parametrize("status", list(RunStatus)[1:])
async def test_bodies_go_with_the_completion_of_the_origin_and_with_nothing_else(
    store: Store, status: RunStatus
) -> None:
    """Digests stay; another origin's bodies, and what is in doubt, stay too.

    Of a call that was begun and done with the completion nothing is left: nobody can ask for it.
    """
    scene = await _scene(store)
    await scene.write(_start("other"), FinishEffect(key="other", result=1))
    await scene.write(end=RunStatus.FAILED, disarm=True)
    later = await _scene(store, scene.key)
    await later.write(_start("early"), FinishEffect(key="early", result=1), _start("late"), _start("doubt"))
    await later.write(
        _start("whole"), FinishEffect(key="late", result=2), FinishEffect(key="whole", result=3), end=status
    )
    gone = status is RunStatus.COMPLETED
    if gone:
        assert "whole" not in [each.effect_key for each in await store.effects.list(later.key)]
    for key in ("early", "late") if gone else ("early", "late", "whole"):
        found = await later.get(key)
        assert (found.has_request, found.has_result, found.digest != "") == (not gone, not gone, True)
        assert found.status is EffectStatus.DONE
    assert (await later.get("doubt")).has_request
    other = await scene.get("other")
    assert (other.has_request, other.result) == (True, 1)


async def test_a_resumed_origins_completion_drops_the_bodies_of_its_former_runs(store: Store) -> None:
    """It does so even if the resumed run itself journals nothing, or is one commit."""
    scene = await _scene(store)
    await scene.write(_start(), FinishEffect(key="pay", result=1))
    await scene.write(end=RunStatus.SUSPENDED)
    begin = BeginRun(run_id=an_id("run"), invocation_id=scene.origin, fresh=False)
    await store.commit(a_turn(scene.key, scene.lane, run=begin))
    assert not (await scene.get()).has_result


async def test_delete_removes_exactly_that_sessions_effects(store: Store) -> None:
    """They are counted, and a fork takes none along."""
    scene, other = await _scene(store), await _scene(store)
    await scene.write(_start("a"), _start("b"))
    await other.write(_start("c"))
    fork = a_key()
    await store.fork(scene.key, fork)
    assert await store.effects.list(fork) == ()
    assert (await store.delete(scene.key)).effects == 2
    assert await store.effects.list(scene.key) == ()
    assert [row["key"] for row in await rows(store, "effect")] == ["c"]


async def test_pruning_a_run_takes_its_effects_but_for_those_in_doubt(harness: Harness) -> None:
    """They are counted, and the runs that stay keep theirs."""
    clock = FakeClock()
    store = await harness.open(clock=clock)
    scene = await _scene(store)
    await scene.write(_start("done"), FinishEffect(key="done"), _start("doubt"))
    await scene.write(end=RunStatus.FAILED, disarm=True)
    later = await _scene(store, scene.key)
    await later.write(_start("mine"), FinishEffect(key="mine"))
    clock.advance(100)
    report = await store.upkeep.prune(runs_older_than=50)
    assert (report.runs, report.effects) == (1, 1)
    assert sorted(each.effect_key for each in await store.effects.list(scene.key)) == ["doubt", "mine"]
    assert await scene.doubts() == ["doubt"]


@needs(Capability.PROBES)
async def test_a_failure_at_any_statement_of_an_effect_leaves_no_trace(store: Store) -> None:
    scene = await _scene(store)
    await scene.write(_start("old"), _start("again"))
    commit = scene.commit(_start("new"), _start("again"), FinishEffect(key="old", result=1), end=RunStatus.COMPLETED)
    receipt, failed = await fail_at_each_statement(store, lambda: store.commit(commit))
    assert not receipt.replayed
    assert {"insert_effects", "restart_effects", "finish_effects", "drop_effects"} <= set(failed)
