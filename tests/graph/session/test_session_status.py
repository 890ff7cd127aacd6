"""Sessions that were suspended or closed take no runs of a graph, and how often a session was resumed is counted."""

from typing import Any

import pytest

from tenuto import SessionRuntime, Store
from tenuto.actions import CompleteSession, FailSession, ResumeSession, SuspendSession
from tenuto.errors import StatusRefused
from tenuto.words import Concurrency
from tests.graph.talking import Ran, ended, gate, held, line, resumed, says

CLOSE = {"suspended": SuspendSession(), "completed": CompleteSession(), "failed": FailSession("broken")}

closed = pytest.mark.parametrize("status", CLOSE)


async def act(store: Store, action: Any, session_id: str = "s") -> None:
    async with SessionRuntime(store) as runtime:
        await runtime.execute(session_id, action)


@closed
@pytest.mark.parametrize("concurrency", ["exclusive", "optimistic", "last_write_wins"])
async def test_a_session_that_is_not_active_takes_no_run(store: Store, status: str, concurrency: Concurrency) -> None:
    ran = Ran()
    graph = line(ran.node("n", says("hi")), store=store, concurrency=concurrency)
    await graph.invoke(session_id="s")
    await act(store, CLOSE[status])
    before = await held(store)
    fresh = line(ran.node("n", says("hi")), store=store, concurrency=concurrency)
    for each in (graph, fresh):  # with the session in memory, and without
        out = await each.run(session_id="s")
        assert isinstance(out.error, StatusRefused)
        assert out.error.found == status
        assert "ResumeSession()" in out.error.message
    assert (ran.nodes, await held(store)) == (["n"], before)
    await act(store, ResumeSession())
    assert (await graph.invoke(session_id="s")).messages == ["hi", "hi"]


@closed
async def test_a_pause_is_not_resumed_on_a_session_that_is_not_active(store: Store, status: str) -> None:
    graph = line(gate(), says("end"), store=store)
    paused = await graph.run(session_id="s")
    await act(store, CLOSE[status])
    assert paused.wait is not None
    out = await graph.resume(paused.wait, {"mood": "glad"})
    assert isinstance(out.error, StatusRefused)
    assert await graph.waiting() == (paused.wait,)
    await act(store, ResumeSession())
    assert (await graph.resume(paused.wait, {"mood": "glad"})).result().mood == "glad"


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])
async def test_a_resumed_pause_counts_as_a_resume(store: Store, checkpoints: bool) -> None:
    graph = line(gate(), gate("again"), store=store, checkpoints=store if checkpoints else None)
    out = await graph.run(session_id="s")
    for count in (1, 2):
        out = await resumed(graph, out)
        assert await resumes_of(store) == count
    assert ended(out) == "completed"
    await graph.run(session_id="s")
    assert await resumes_of(store) == 2


async def test_a_run_resumed_from_its_checkpoint_counts_as_a_resume_and_a_refused_one_does_not(store: Store) -> None:
    luck: list[str] = []

    async def fails_once(_: Any) -> dict[str, Any]:
        if not luck:
            luck.append("better")
            raise ValueError("no luck")
        return {}

    graph = line(says("one"), fails_once, store=store, checkpoints=store)
    failed = await graph.run(session_id="s", invocation_id="i")
    assert ended(failed) == "failed: node_exception"
    assert await resumes_of(store) == 0
    assert ended(await graph.run(resume_invocation="unknown")) == "failed: checkpoint_not_found"
    assert await resumes_of(store) == 0
    assert ended(await graph.run(resume_invocation="i")) == "completed"
    assert await resumes_of(store) == 1


async def resumes_of(store: Store) -> int:
    head = await store.head("s")
    return head.resume_count if head else 0
