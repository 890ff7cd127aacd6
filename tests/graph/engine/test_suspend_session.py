"""A pause and its session: one commit, and what happens when the session moves on without it."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import Bucket, SessionMoved
from tenuto.graph import save_session
from tenuto.model.commit import Commit
from tenuto.words import OnMoved
from tests.graph.conftest import FaultyStore
from tests.graph.talking import Body, Ran, ended, fails, gate, held, line, nothing, resumed, says

CHECKPOINTS = pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])
MODES = pytest.mark.parametrize("concurrency", ["last_write_wins", "optimistic", "exclusive"])
MOVED = "failed: session_write_conflict"
INVALID = "failed: suspension_record_invalid"


class Commits:
    """Lists the commits of a store, each with what was there after it."""

    def __init__(self, store: Store) -> None:
        self.seen: list[Commit] = []
        self._commit = store.commit
        store.commit = self._noted  # type: ignore[method-assign]

    async def _noted(self, commit: Commit) -> Any:
        receipt = await self._commit(commit)
        self.seen.append(commit)
        return receipt


@CHECKPOINTS
@MODES
async def test_a_pause_and_its_session_save_are_one_commit(store: Store, checkpoints: bool, concurrency: str) -> None:
    await line(says("old"), store=store).invoke(session_id="s")
    commits = Commits(store)
    keep = store if checkpoints else None
    graph = line(says("asked"), gate(), says("end"), store=store, checkpoints=keep, concurrency=concurrency)
    paused = await graph.run(session_id="s")
    assert paused.suspended
    saving = [commit for commit in commits.seen if commit.save]
    pausing = [commit for commit in commits.seen if commit.open_waits]
    assert len(saving) == 1
    assert pausing == saving
    assert pausing == [commit for commit in commits.seen if commit.end is not None]
    assert len(commits.seen) == (3 if checkpoints else 1)
    commits.seen.clear()
    assert ended(await resumed(graph, paused)) == "completed"
    answering = [commit for commit in commits.seen if commit.settle_waits]
    assert [type(commit.run).__name__ for commit in answering] == ["BeginRun"]
    assert len(commits.seen) == (3 if checkpoints else 2)


async def test_a_pause_that_is_refused_leaves_the_session_as_it_was(faulty: FaultyStore) -> None:
    await line(says("old"), store=faulty).invoke(session_id="s")
    before = await faulty.stamp("s")

    async def breaks(_: Any) -> Mapping[str, Any]:
        faulty.faults.fail_call()
        return {"messages": ["asked"]}

    out = await line(breaks, gate(), store=faulty).run(session_id="s")
    assert ended(out) == "failed: suspension_persistence_failed"
    after = await faulty.stamp("s")
    assert before is not None
    assert after is not None
    assert (after.version, (await held(faulty))["messages"]) == (before.version, ["old"])


@MODES
async def test_of_resumes_at_once_one_runs_and_the_rest_are_refused(store: Store, concurrency: str) -> None:
    ran = Ran()
    graph = line(gate(), ran.node("end", says("end")), store=store, concurrency=concurrency)
    paused = await graph.run(session_id="s")
    outs = await asyncio.gather(*[resumed(graph, paused) for _ in range(4)])
    assert sorted(ended(out) for out in outs) == ["completed", INVALID, INVALID, INVALID]
    assert (ran.nodes, (await held(store))["messages"]) == (["end"], ["end"])


async def test_a_resumed_run_that_fails_saves_nothing_and_is_over(store: Store) -> None:
    graph = line(says("asked"), gate(), fails, store=store)
    paused = await graph.run(session_id="s")
    before = await store.load("s")
    assert ended(await resumed(graph, paused)) == "failed: node_exception"
    after = await store.load("s")
    assert before is not None
    assert after is not None
    assert (after.state, after.version) == (before.state, before.version)
    assert ended(await resumed(graph, paused)) == INVALID


def others(store: Store, **fields: Any) -> Any:
    return line(says("theirs", notes=["n theirs"], mood="theirs", **fields), store=store)


async def moved_on(
    store: Store, *before: Body, checkpoints: bool, auto_save: bool = True, end: Body | None = None
) -> tuple[Any, Any, Ran]:
    """Return a graph, a pause of it whose session others changed since, and what ran after it."""
    await line(says("old", mood="old"), store=store).invoke(session_id="s")
    ran = Ran()
    bodies = (*before, gate(), ran.node("end", end or says("end")))
    graph = line(*bodies, store=store, checkpoints=store if checkpoints else None, auto_save=auto_save)
    paused = await graph.run(session_id="s")
    assert paused.suspended
    await others(store).invoke(session_id="s")
    return graph, paused, ran


@CHECKPOINTS
async def test_a_session_that_moved_on_is_found_before_anything_runs(store: Store, checkpoints: bool) -> None:
    graph, paused, ran = await moved_on(store, says("own"), checkpoints=checkpoints)
    before = await held(store)
    for _ in range(2):
        out = await resumed(graph, paused)
        assert ended(out) == MOVED
        assert isinstance(out.error, SessionMoved)
        assert (out.error.bucket, out.error.expected, out.error.found) == (Bucket.USER_CORRECTABLE, 2, 3)
    assert (ran.nodes, await held(store)) == ([], before)
    assert await graph.waiting() == (paused.wait,)
    await graph.cancel(paused.invocation_id)
    assert (
        ended(await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="rebase")) == INVALID
    )


@CHECKPOINTS
async def test_rebase_takes_the_session_as_it_is_now_and_then_the_payload(store: Store, checkpoints: bool) -> None:
    graph, paused, ran = await moved_on(store, says("own", scratch="kept"), checkpoints=checkpoints)
    out = await graph.run(
        resume_invocation=paused.invocation_id, signal_payload={"count": 9}, on_moved="rebase", session_id="s"
    )
    assert (ended(out), ran.nodes) == ("completed", ["end"])
    assert out.state is not None
    assert out.state.scratch == "kept"
    assert await held(store) == {
        "messages": ["old", "own", "theirs", "end"],
        "notes": ["n theirs"],
        "mood": "theirs",
        "count": 9,
    }


@CHECKPOINTS
async def test_rebase_appends_again_what_the_run_itself_had_added_since_its_base(
    store: Store, checkpoints: bool
) -> None:
    graph, paused, _ = await moved_on(store, says("own 1"), says("own 2"), checkpoints=checkpoints, auto_save=False)
    out = await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="rebase")
    assert out.state is not None
    assert out.state.messages == ["old", "theirs", "own 1", "own 2", "end"]
    assert (await held(store))["messages"] == ["old", "theirs"]
    saving = line(nothing, nothing, gate(), says("end"), store=store, checkpoints=store if checkpoints else None)
    again = await saving.run(session_id="s")
    assert ended(await resumed(saving, again)) == "completed"
    assert (await held(store))["messages"] == ["old", "theirs", "end"]


async def test_rebase_saves_the_runs_own_appends_where_the_deployed_graph_saves(store: Store) -> None:
    _, paused, _ = await moved_on(store, says("own"), checkpoints=False, auto_save=False)
    graph = line(nothing, nothing, says("end"), store=store)
    assert ended(await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="rebase")) == (
        "completed"
    )
    assert (await held(store))["messages"] == ["old", "theirs", "own", "end"]


@CHECKPOINTS
@pytest.mark.parametrize("auto_save", [True, False], ids=["saved", "unsaved"])
async def test_overwrite_leaves_the_session_as_the_run_has_it(store: Store, checkpoints: bool, auto_save: bool) -> None:
    _, paused, _ = await moved_on(store, says("own", count=1), checkpoints=checkpoints, auto_save=auto_save)
    graph = line(nothing, nothing, says("end"), store=store, checkpoints=store if checkpoints else None)
    out = await graph.run(resume_invocation=paused.invocation_id, signal_payload={"count": 9}, on_moved="overwrite")
    assert ended(out) == "completed"
    found = await held(store)
    assert found == {"messages": ["old", "own", "end"], "notes": [], "mood": "old", "count": 9}
    assert (await line(nothing, store=store).invoke(session_id="s")).messages == found["messages"]


@CHECKPOINTS
async def test_overwrite_also_replaces_a_log_the_run_writes_for_the_first_time(store: Store, checkpoints: bool) -> None:
    graph, paused, _ = await moved_on(store, says("own"), checkpoints=checkpoints, end=says(notes=["n mine"]))
    await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="overwrite")
    assert (await held(store))["notes"] == ["n mine"]


async def test_a_run_resumed_with_overwrite_that_suspends_again_is_at_home(store: Store) -> None:
    _, paused, _ = await moved_on(store, says("own"), checkpoints=False)
    graph = line(nothing, nothing, gate("two"), store=store)
    again = await graph.run(resume_invocation=paused.invocation_id, signal_payload={}, on_moved="overwrite")
    assert again.suspended
    assert ended(await resumed(graph, again)) == "completed"
    assert (await held(store))["messages"] == ["old", "own"]


async def test_a_first_turn_that_pauses_unsaved_finds_a_session_that_came_into_being(store: Store) -> None:
    graph = line(says("own"), gate(), says("end"), store=store, auto_save=False)
    paused = await graph.run(session_id="s")
    assert await store.load("s") is None
    assert ended(await resumed(graph, await graph.run(session_id="t"))) == "completed"
    await others(store).invoke(session_id="s")
    out = await resumed(graph, paused)
    assert ended(out) == MOVED
    assert isinstance(out.error, SessionMoved)
    assert (out.error.expected, out.error.found) == (0, 1)


async def test_a_session_deleted_while_paused_takes_the_pause_along(store: Store) -> None:
    graph = line(gate(), nothing, store=store)
    paused = await graph.run(session_id="s")
    await store.delete("s")
    assert (await graph.waiting(), ended(await resumed(graph, paused))) == ((), INVALID)
    await others(store).invoke(session_id="s")
    assert ended(await resumed(graph, paused)) == INVALID


async def test_turns_go_on_while_an_invocation_is_paused(store: Store) -> None:
    graph = line(says("asked"), gate(), nothing, store=store, concurrency="exclusive", lane_wait=0.0)
    await graph.run(session_id="s")
    assert ended(await others(store).run(session_id="s")) == "completed"
    exclusive = line(says("more"), store=store, concurrency="exclusive", lane_wait=0.0)
    assert ended(await exclusive.run(session_id="s")) == "completed"


async def test_a_preview_before_a_pause_is_taken_back_by_it(store: Store) -> None:
    async def ask(state: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["asking"], "mood": "unsure"})
        return await gate()(state)

    graph = line(says("first"), ask, says("end"), store=store)
    paused = await graph.run(session_id="s")
    assert (await held(store))["messages"] == ["first"]
    assert (await held(store))["mood"] == "calm"
    await resumed(graph, paused)
    assert (await held(store))["messages"] == ["first", "end"]


async def test_a_run_saved_before_its_pause_is_not_moved_by_itself(store: Store) -> None:
    async def saves(_: Any) -> Mapping[str, Any]:
        await save_session({"messages": ["kept"]})
        return {"messages": ["kept", "more"]}

    graph = line(saves, gate(), says("end"), store=store, checkpoints=store, auto_save=False)
    paused = await graph.run(session_id="s")
    out = await resumed(graph, paused)
    assert out.state is not None
    assert (ended(out), out.state.messages) == ("completed", ["kept", "more", "end"])
    assert (await held(store))["messages"] == ["kept"]


@CHECKPOINTS
async def test_last_write_wins_at_a_pause_as_at_the_end(store: Store, checkpoints: bool) -> None:
    await line(says("old"), store=store).invoke(session_id="s")

    async def meanwhile(_: Any) -> Mapping[str, Any]:
        await others(store).invoke(session_id="s")
        return {"messages": ["own"]}

    options: dict[str, Any] = {"checkpoints": store if checkpoints else None, "concurrency": "last_write_wins"}
    graph = line(meanwhile, gate(), says("end"), store=store, **options)
    paused = await graph.run(session_id="s")
    assert paused.suspended
    assert await held(store) == {"messages": ["old", "own"], "notes": [], "mood": "calm", "count": 0}
    assert ended(await resumed(graph, paused)) == "completed"
    assert (await held(store))["messages"] == ["old", "own", "end"]


async def test_an_optimistic_pause_that_lost_is_refused_and_nothing_waits(store: Store) -> None:
    async def meanwhile(_: Any) -> Mapping[str, Any]:
        await others(store).invoke(session_id="s")
        return {"messages": ["own"]}

    graph = line(meanwhile, gate(), store=store, concurrency="optimistic")
    out = await graph.run(session_id="s")
    assert ended(out) == "failed: suspension_persistence_failed"
    assert await graph.waiting() == ()
    assert (await held(store))["messages"] == ["theirs"]


@pytest.mark.parametrize("on_moved", [None, "rebase", "overwrite"])
async def test_a_checkpoint_resume_meets_a_moved_session_in_the_same_way(
    store: Store, on_moved: OnMoved | None
) -> None:
    bodies: list[Body] = [fails]
    graph = line(says("own"), lambda state: bodies[0](state), store=store, checkpoints=store)
    await line(says("old"), store=store).invoke(session_id="s")
    failed = await graph.run(session_id="s")
    await others(store).invoke(session_id="s")
    bodies[0] = says("end")
    out = await graph.run(resume_invocation=failed.invocation_id, on_moved=on_moved)
    want = {
        None: (MOVED, ["old", "theirs"]),
        "rebase": ("completed", ["old", "theirs", "own", "end"]),
        "overwrite": ("completed", ["old", "own", "end"]),
    }
    assert (ended(out), (await held(store))["messages"]) == want[on_moved]
    if on_moved is None:
        again = await graph.run(resume_invocation=failed.invocation_id, on_moved="rebase")
        assert ended(again) == "completed"


async def test_a_graph_that_keeps_no_sessions_does_not_go_on_with_a_pause_of_one(store: Store) -> None:
    graph = line(says("asked"), gate(), nothing, store=store, checkpoints=store)
    paused = await graph.run(session_id="s")
    bare = line(says("asked"), gate(), nothing, checkpoints=store)
    assert ended(await resumed(bare, paused)) == INVALID
    assert ended(await resumed(graph, paused)) == "completed"


async def test_a_session_id_is_seen_after_a_resume_where_no_session_is_kept(store: Store) -> None:
    graph = line(gate(), nothing, checkpoints=store)
    paused = await graph.run(session_id="s")
    out = await resumed(graph, paused)
    assert (ended(out), out.session_id) == ("completed", "s")
