"""Who stands above whom in the tree of sessions, and what may be done in the name of one above."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import RunNotLive
from tenuto.model.session import Kind, Profile, SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.ancestry import stands_above
from tenuto.store.store import Store


@program
async def asking(turn: Turn) -> Any:
    return await turn.wait("question")


@program
async def parent(turn: Turn) -> Any:
    return (await turn.child("asking", "go")).output


@pytest.fixture
async def runtime(store: Store) -> AsyncIterator[SessionRuntime]:
    async with SessionRuntime(store, [asking, parent]) as runtime:
        yield runtime


async def test_one_stands_above_its_childrens_tree_in_its_tenant_and_above_nothing_else(store: Store) -> None:
    tree = {"top": None, "middle": "top", "low": "middle", "lowest": "low", "sibling": "top", "other": None}
    for tenant in ("", "t"):
        for name, over in tree.items():
            profile = Profile() if over is None else Profile(parent=over, root="top")
            await store.create(SessionKey(name, tenant=tenant), profile=profile)
    above = {(high, low) for high in tree for low in tree if await _stands(store, high, low)}
    assert above == {
        *(("top", low) for low in ("middle", "low", "lowest", "sibling")),
        *(("middle", low) for low in ("low", "lowest")),
        ("low", "lowest"),
    }
    top, low = SessionKey("top"), SessionKey("low")
    assert not await stands_above(store, replace(top, tenant="t"), low)
    assert not await stands_above(store, replace(top, kind=Kind.INVOCATION), low)
    assert not await stands_above(store, top, SessionKey("nobody"))


async def _stands(store: Store, high: str, low: str) -> bool:
    return await stands_above(store, SessionKey(high), SessionKey(low))


async def test_a_tree_that_runs_in_a_circle_has_nobody_above_it(store: Store) -> None:
    for name, over in (("a", "b"), ("b", "a")):
        await store.create(name, profile=Profile(parent=over, root="gone"))
    assert not await _stands(store, "other", "a")
    assert await _stands(store, "b", "a")


async def test_a_run_is_stopped_in_the_name_of_its_session_or_of_one_above(runtime: SessionRuntime) -> None:
    for name in ("p", "other"):
        await runtime.create("parent", session_id=name)
        await runtime.send(name, "go")
    await runtime.drain()
    (wait,) = await runtime.session("p").waits(children=False)
    child = str(wait.metadata["child"])
    (run,) = await runtime.session(child).runs()
    theirs = runtime.for_tenant("t")
    above = [(runtime, "p", False), (runtime, "other", True), (runtime, "nowhere", True), (theirs, "p", True)]
    for sessions, name, tree in above:
        with pytest.raises(RunNotLive, match="There is no run"):
            await sessions.session(name).stop(run_id=run.run_id, tree=tree)
    assert (await runtime.session("p").stop(run_id=run.run_id, tree=True)).answer == "ended"
    assert (await runtime.session(child).stop(run_id=run.run_id)).answer == "ended"
