"""Metadata that is written while a turn runs: nobody waits, and no key that somebody wrote is lost."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, SessionNotFound
from tenuto.model.session import Profile
from tenuto.runtime.change.action import WriteMetadata
from tenuto.runtime.change.hooks import Hook, on
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tests.conftest import OurHarness
from tests.runtime.gates import GatedProgram
from tests.runtime.runtimes import Gate, opened
from tests.runtime.talking import Heard


class Counting:
    """Hooks that count turns and saves in the metadata, and note what they found there."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @property
    def hooks(self) -> list[Hook]:
        """The hook that counts."""
        return [on("before_save", self._counted)]

    async def _counted(self, session: SessionView) -> SessionView:
        self.found.append(dict(session.metadata))
        saves: Any = session.metadata.get("saves", 0)
        return session.with_metadata(saves=saves + 1)


async def held(runtime: SessionRuntime, gate: GatedProgram, text: str = "hold") -> "asyncio.Task[Any]":
    """Return a turn that runs and waits to be let go."""
    turn = asyncio.create_task(runtime.send("s", text))
    await gate.entered(text)
    return turn


async def test_metadata_is_written_while_a_turn_runs_and_the_turn_does_not_overwrite_it(
    runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
) -> None:
    await runtime.execute("s", WriteMetadata("kept", 0))
    turn = await held(runtime, gate)

    here = await runtime.execute("s", WriteMetadata("here", 1))
    there = await elsewhere.execute("s", WriteMetadata({"there": 2, "kept": 3}))

    assert not turn.done()
    assert (here.metadata["here"], there.metadata) == (1, {"kept": 3, "here": 1, "there": 2})
    gate.let_go("hold")
    assert (await turn).text == "re: hold"
    assert (await runtime.get("s")).metadata == {"kept": 3, "here": 1, "there": 2}
    assert (await runtime.send("s", "again")).text == "re: again"
    assert (await elsewhere.get("s")).metadata == {"kept": 3, "here": 1, "there": 2}


@pytest.mark.parametrize("commits", [True, False])
async def test_hooks_of_the_running_turn_keep_what_was_written_and_see_what_a_commit_told_them(
    store: Store, harness: OurHarness, commits: bool
) -> None:
    gate, counting = Gate(), Counting()

    @program
    async def gated(turn: Turn) -> None:
        await gate()
        if commits:
            turn.state["step"] = turn.text
            await turn.save()
        turn.append("done")

    runtime = await opened(store, [gated], hooks=counting.hooks)
    elsewhere = await opened(await harness.open(), [gated])
    await elsewhere.create("gated", session_id="s", metadata={"saves": 0})
    turn = asyncio.create_task(runtime.send("s", "first"))
    await gate.reached.wait()
    await elsewhere.execute("s", WriteMetadata("ticket", 7))
    gate.open.set()
    assert (await turn).completed
    await runtime.send("s", "second")
    await elsewhere.execute("s", WriteMetadata("later", 8))
    await runtime.send("s", "third")

    first = {"saves": 0, "ticket": 7} if commits else {"saves": 0}
    assert counting.found == [first, {"saves": 1, "ticket": 7}, {"saves": 2, "ticket": 7, "later": 8}]
    assert (await runtime.get("s")).metadata == {"saves": 3, "ticket": 7, "later": 8}


async def test_what_is_written_as_the_turn_ends_is_seen_by_the_next_one_on_the_warm_copy(
    store: Store, harness: OurHarness
) -> None:
    gate, elsewhere = GatedProgram(), await opened(await harness.open(), [GatedProgram()])
    found: list[dict[str, Any]] = []

    async def late(session: SessionView) -> SessionView:
        if not found:
            await elsewhere.execute("s", WriteMetadata("late", 1))
        found.append(dict(session.metadata))
        return session

    runtime = await opened(store, [gate], hooks=[on("before_save", late)])
    await elsewhere.create("gate", session_id="s")
    await runtime.send("s", "one")
    await runtime.send("s", "two")
    assert found == [{}, {"late": 1}]
    assert (await runtime.get("s")).metadata == {"late": 1}


async def test_a_hook_that_removes_a_key_removes_that_key_alone(
    runtime: SessionRuntime, store: Store, gate: GatedProgram
) -> None:
    async def forget(session: SessionView) -> SessionView:
        await runtime.execute("s", WriteMetadata("late", 1))
        left = {name: value for name, value in session.metadata.items() if name != "old"}
        return session.with_profile(metadata=left)

    await runtime.execute("s", WriteMetadata({"old": 1, "other": 2}))
    forgetting = await opened(store, [gate], hooks=[on("before_save", forget)])
    assert (await forgetting.send("s", "one")).completed
    assert (await runtime.get("s")).metadata == {"other": 2, "late": 1}


async def test_many_writers_beside_a_turn_lose_no_key(
    runtime: SessionRuntime, elsewhere: SessionRuntime, gate: GatedProgram
) -> None:
    turn = await held(runtime, gate)
    writers = [runtime, elsewhere] * 10
    await asyncio.gather(*(each.execute("s", WriteMetadata(f"k{n}", n)) for n, each in enumerate(writers)))
    gate.let_go("hold")
    assert (await turn).completed
    assert (await runtime.get("s")).metadata == {f"k{n}": n for n in range(20)}


async def test_metadata_beside_a_turn_is_told_and_streamed_like_any_action(
    store: Store, gate: GatedProgram, runtime: SessionRuntime
) -> None:
    heard = Heard()
    listening = await opened(store, [gate], listeners=[heard])
    turn = await held(runtime, gate)
    await listening.execute("s", WriteMetadata("a", 1))
    assert heard.names == ["SessionLoaded", "SessionActionExecuted", "SessionSaved"]
    gate.let_go("hold")
    await turn
    types = [event.type for event in (await store.events.read("s")).events if event.run_id is None]
    assert types[-3:] == ["session_loaded", "session_action_executed", "session_saved"]


async def test_a_hook_that_changes_more_than_metadata_waits_for_the_lane(
    runtime: SessionRuntime, store: Store, gate: GatedProgram
) -> None:
    async def counted(session: SessionView) -> SessionView:
        writes: Any = session.document.get("writes", 0)
        return session.with_fields(writes=writes + 1)

    counting = await opened(store, [gate], hooks=[on("after_action", counted)])
    turn = await held(runtime, gate)
    writing = asyncio.create_task(counting.execute("s", WriteMetadata("a", 1)))
    gate.let_go("hold")
    assert (await turn).completed
    view = await writing
    assert (dict(view.document), view.metadata) == ({"writes": 1}, {"a": 1})
    assert (await runtime.get("s")).document["writes"] == 1


async def test_too_much_metadata_in_all_is_refused_and_what_is_there_stays(runtime: SessionRuntime) -> None:
    await runtime.execute("s", WriteMetadata("a", "x" * 40_000))
    with pytest.raises(InvalidInput, match="metadata has"):
        await runtime.execute("s", WriteMetadata("b", "y" * 40_000))
    assert (await runtime.get("s")).metadata == {"a": "x" * 40_000}


async def test_metadata_of_a_missing_session_is_refused(runtime: SessionRuntime) -> None:
    with pytest.raises(SessionNotFound):
        await runtime.execute("none", WriteMetadata("a", 1))


async def test_the_view_that_an_action_returns_may_carry_a_profile_of_its_own(runtime: SessionRuntime) -> None:
    class Retitled:
        async def apply(self, session: SessionView) -> SessionView:
            return replace(session, profile=replace(session.profile, title="t", metadata={"b": True}))

    await runtime.execute("s", WriteMetadata({"a": 1, "b": 1}))
    await runtime.execute("s", Retitled())
    profile: Profile = (await runtime.session("s").info()).profile
    assert (profile.title, profile.metadata, type(profile.metadata["b"])) == ("t", {"b": True}, bool)
