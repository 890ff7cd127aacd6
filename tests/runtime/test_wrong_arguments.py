"""Wrong arguments of the runtime and of actions are refused by name, and change nothing."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tenuto import SessionRuntime, program
from tenuto.errors import InvalidInput, ProgramNotRegistered
from tenuto.runtime.change import actions
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
    key = (await runtime.create("echo")).key
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "program": partial(runtime.create, bad),
        "tags": partial(runtime.create, "echo", tags=bad),
        "logs": partial(runtime.create, "echo", logs=bad),
        "operation_id": partial(runtime.create, "echo", operation_id=bad),
        "fork key": partial(runtime.fork, key, key=bad),
        "go_on": partial(runtime.advance, key, should_continue=bad),
        "effect": partial(runtime.settle_effect, bad),
        "when_busy": partial(runtime.send, key, "hi", when_busy=bad),
        "boundary": partial(runtime.enqueue, key, "hi", boundary=bad),
        "stop kind": partial(runtime.stop, key, kind=bad),
        "action": partial(runtime.execute, key, bad),
        "concurrency": partial(runtime.drain, bad),
        "cleared": lambda: runtime.execute(key, actions.ClearSession(logs=bad)),
    }
    if not isinstance(bad, dict):
        calls["metadata"] = partial(runtime.create, "echo", metadata=bad)
        calls["seed"] = partial(runtime.create, "echo", bad)
    calls["written"] = lambda: runtime.execute(key, actions.WriteMetadata(bad))
    calls["tasks"] = lambda: _tasks(runtime, key, bad)
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


async def _tasks(runtime: SessionRuntime, key: Any, tasks: Any) -> Any:
    return await runtime.execute(key, actions.UpdateTask(tasks))


async def test_metadata_may_have_any_name(store: Store) -> None:
    runtime = await opened(store, [echo])
    key = (await runtime.create("echo")).key
    session = await runtime.execute(key, actions.WriteMetadata({"self": 1, "values": 2}))
    assert session.metadata == {"self": 1, "values": 2}
