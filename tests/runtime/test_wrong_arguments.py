"""Wrong arguments of the runtime and of actions are refused by name, and change nothing."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tenuto import Session, actions, program
from tenuto.errors import InvalidInput, ProgramNotRegistered
from tenuto.store.store import Store
from tests.runtime.runtimes import opened


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@program
async def echo(turn: Any) -> None:
    turn.append({"role": "assistant", "content": "ok"})


WRONG: list[Any] = [5, 1.5, object(), Unshowable(), b"x", "\ud800", "x" * 2_000_000, {1: 2}, [[]]]


@pytest.mark.parametrize("bad", WRONG, ids=lambda value: type(value).__name__)
async def test_what_cannot_be_meant_is_refused_by_name(store: Store, bad: Any) -> None:
    runtime = await opened(store, [echo])
    session = await runtime.create("echo")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "program": partial(runtime.create, bad),
        "tags": partial(runtime.create, "echo", tags=bad),
        "logs": partial(runtime.create, "echo", logs=bad),
        "key": partial(runtime.create, "echo", key=bad),
        "session_id": partial(runtime.create, "echo", session_id=bad),
        "fork key": partial(session.fork, key=bad),
        "fork id": partial(session.fork, session_id=bad),
        "effect": partial(session.settle_effect, bad),
        "send when_busy": partial(session.send, "hi", when_busy=bad),
        "start when_busy": partial(session.start, "hi", when_busy=bad),
        "boundary": partial(session.enqueue, "hi", boundary=bad),
        "stop kind": partial(session.stop, kind=bad),
        "action": partial(session.execute, bad),
        "status": partial(runtime.list, status=bad),
        "concurrency": partial(runtime.drain, bad),
        "cleared": lambda: session.execute(actions.ClearSession(logs=bad)),
    }
    if not isinstance(bad, dict):
        calls["metadata"] = partial(runtime.create, "echo", metadata=bad)
        calls["seed"] = partial(runtime.create, "echo", bad)
    calls["written"] = lambda: session.execute(actions.WriteMetadata(bad))
    if not isinstance(bad, str):
        calls["tasks"] = lambda: _tasks(session, bad)
    if bad == 5:
        calls.pop("concurrency")
    before = await store.dump()
    for name, call in calls.items():
        with pytest.raises((InvalidInput, ProgramNotRegistered)) as refused:
            await call()
        assert len(str(refused.value)) < 500, name
    after = await store.dump()
    lane = ("generation", "nonce", "holder", "lane_expires_at", "armed")
    for rows in (before, after):  # an action looks at its session under the lane
        for row in rows["session"]:
            for column in lane:
                row.pop(column)
    assert after == before


async def _tasks(session: Session, tasks: Any) -> Any:
    return await session.execute(actions.UpdateTask(tasks))


async def test_metadata_may_have_any_name(store: Store) -> None:
    runtime = await opened(store, [echo])
    created = await runtime.create("echo")
    session = await created.execute(actions.WriteMetadata({"self": 1, "values": 2}))
    assert session.metadata == {"self": 1, "values": 2}


@pytest.mark.parametrize("empty", ["", 0, False, [], {}], ids=repr)
async def test_only_without_an_id_is_one_minted(store: Store, empty: Any) -> None:
    runtime = await opened(store, [echo])
    with pytest.raises(InvalidInput):
        await runtime.create("echo", session_id=empty)
    assert (await runtime.create("echo", session_id=None)).session_id
    assert len(await runtime.list()) == 1
