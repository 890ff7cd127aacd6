"""Every stage that fails says so once: to listeners, to the log, and in the stream where the session can be written."""

import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput, LaneBusy, StoredDataCorrupt, StoreUnavailable, TenutoError
from tenuto.graph import END, GraphBuilder, State, append
from tenuto.runtime.change.action import ForkSession, RewindSession, SuspendSession, WriteMetadata
from tenuto.runtime.change.hooks import on
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import ActionFailed, HookFailed, LoadFailed, SaveFailed
from tenuto.words import Stage
from tests.conftest import OurHarness
from tests.runtime.gates import GatedProgram
from tests.runtime.runtimes import opened
from tests.runtime.talking import Heard, Refused, echo, refuse, rows, streamed

FAILING = (LoadFailed, ActionFailed, SaveFailed, HookFailed)
Verb = Callable[[SessionRuntime], Awaitable[Any]]


def failures(heard: Heard) -> list[tuple[str, Any]]:
    """Return the kind and the stage of the failures that were told; they are forgotten with this."""
    return [(type(each).__name__, each.data()["stage"]) for each in heard.take() if isinstance(each, FAILING)]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, Any, Any]]:
    """Return the level, the session and the stage of the failures in the log; they are forgotten with this."""
    found = [each for each in caplog.records if hasattr(each, "stage")]
    caplog.clear()
    return [(each.levelno, each.__dict__["session_id"], each.__dict__["stage"]) for each in found]


async def in_stream(store: Store) -> list[tuple[str, Any]]:
    """Return the failures in the stream of the session."""
    return [(kind, data["stage"]) for kind, data in await streamed(store, "s") if kind.endswith("_failed")]


class Wrong:
    async def apply(self, session: SessionView) -> SessionView:
        raise Refused("not this one")


CALLS: dict[str, Verb] = {
    "execute": lambda runtime: runtime.execute("s", SuspendSession()),
    "write metadata": lambda runtime: runtime.execute("s", WriteMetadata("a", 1)),
}
STAGES: dict[Stage, tuple[str, str]] = {
    "after_load": ("LoadFailed", "session_load_failed"),
    "after_action": ("ActionFailed", "session_action_failed"),
    "before_save": ("SaveFailed", "session_save_failed"),
    "after_save": ("HookFailed", "hook_failed"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("stage", STAGES)
async def test_a_hook_that_fails_is_told_logged_and_in_the_stream(
    store: Store, caplog: pytest.LogCaptureFixture, stage: Stage, call: str
) -> None:
    caplog.set_level(logging.INFO, "tenuto.runtime")
    heard = Heard()
    runtime = await opened(store, [echo], hooks=[on(stage, refuse)], listeners=[heard])
    await (await opened(store, [echo])).create("echo", session_id="s")
    heard.take()
    if stage == "after_save":
        await CALLS[call](runtime)
    else:
        with pytest.raises(Refused):
            await CALLS[call](runtime)
    name, event = STAGES[stage]
    assert failures(heard) == [(name, stage)]
    assert logged(caplog) == [(logging.WARNING, "s", stage)]
    assert await in_stream(store) == [(event, stage)]


@pytest.mark.parametrize("stage", STAGES)
async def test_a_hook_that_fails_in_a_turn_is_told_and_in_the_stream_once(store: Store, stage: Stage) -> None:
    heard = Heard()
    runtime = await opened(store, [echo], hooks=[on(stage, refuse)], listeners=[heard])
    await (await opened(store, [echo])).create("echo", session_id="s")
    heard.take()
    if stage == "after_load":
        with pytest.raises(Refused):
            await runtime.send("s", "hello")
    else:
        await runtime.send("s", "hello")
    name, event = STAGES[stage]
    assert failures(heard) == [(name, stage)]
    assert await in_stream(store) == [(event, stage)]
    assert (await (await opened(store, [echo])).send("s", "again")).completed


async def test_an_action_that_fails_is_told_logged_and_in_the_stream(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
    await runtime.create("echo", session_id="s")
    heard.take()
    with pytest.raises(Refused):
        await runtime.execute("s", Wrong())
    assert failures(heard) == [("ActionFailed", "action")]
    assert logged(caplog) == [(logging.WARNING, "s", "action")]
    ((kind, data),) = [each for each in await streamed(store, "s") if each[0].endswith("_failed")]
    wanted = {"stage": "action", "error": "not this one", "category": "Refused", "action": "Wrong"}
    assert (kind, data) == ("session_action_failed", wanted)


CORRECTABLE: dict[str, tuple[Verb, tuple[str, str]]] = {
    "rewind": (lambda runtime: runtime.session("s").rewind("nope"), ("ActionFailed", "action")),
    "RewindSession": (lambda runtime: runtime.execute("s", RewindSession("nope")), ("ActionFailed", "action")),
    "ForkSession": (lambda runtime: runtime.execute("s", ForkSession(at="nope")), ("ActionFailed", "action")),
    "resume": (lambda runtime: runtime.session("s").resume(), ("ActionFailed", "action")),
    "no session": (lambda runtime: runtime.execute("none", SuspendSession()), ("LoadFailed", "load")),
    "metadata of none": (lambda runtime: runtime.execute("none", WriteMetadata("a", 1)), ("LoadFailed", "load")),
    "send to none": (lambda runtime: runtime.send("none", "hello"), ("LoadFailed", "load")),
    "resume of none": (lambda runtime: runtime.session("none").resume(), ("LoadFailed", "load")),
}


@pytest.mark.parametrize("call", CORRECTABLE)
async def test_what_a_caller_can_correct_is_told_and_logged_and_writes_nothing(
    store: Store, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    caplog.set_level(logging.INFO, "tenuto.runtime")
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
    await runtime.create("echo", session_id="s")
    before = await rows(store)
    heard.take()
    caplog.clear()
    verb, wanted = CORRECTABLE[call]
    with pytest.raises(TenutoError):
        await verb(runtime)
    assert failures(heard) == [wanted]
    assert [(level, stage) for level, _, stage in logged(caplog)] == [(logging.INFO, wanted[1])]
    assert await rows(store) == before


class Numbers(State):
    numbers: Annotated[list[int], append] = []


async def _count(state: Numbers) -> dict[str, Any]:
    return {}


async def test_a_message_that_a_graph_refuses_is_told(store: Store) -> None:
    graph = GraphBuilder(Numbers).add_node("count", _count).add_edge("count", END).set_entry("count").compile()
    program = graph.as_program(name="sum", input="numbers", entry=lambda message: int(message["content"]))
    heard = Heard()
    runtime = await opened(store, [program], listeners=[heard])
    await runtime.create("sum", session_id="s")
    heard.take()
    with pytest.raises(InvalidInput):
        await runtime.send("s", "many")
    assert failures(heard) == [("ActionFailed", "action")]
    assert (await runtime.send("s", "5")).completed


BROKEN: dict[str, Verb] = {
    "execute": lambda runtime: runtime.execute("s", SuspendSession()),
    "metadata": lambda runtime: runtime.execute("s", WriteMetadata("a", 1)),
    "send": lambda runtime: runtime.send("s", "hello"),
    "get": lambda runtime: runtime.get("s"),
}


@pytest.mark.parametrize("call", BROKEN)
async def test_a_damaged_session_is_told_and_in_the_stream_unless_it_was_only_read(
    harness: OurHarness, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    store = await harness.open()
    await (await opened(store, [echo])).create("echo", {"mood": "calm"}, session_id="s")
    await harness.damage("UPDATE session SET document = '{\"mood\": ' WHERE session_id = 's'")
    heard = Heard()
    runtime = await opened(await harness.open(), [echo], listeners=[heard])
    with pytest.raises(StoredDataCorrupt):
        await BROKEN[call](runtime)
    assert failures(heard) == [("LoadFailed", "load")]
    assert logged(caplog) == [(logging.WARNING, "s", "load")]
    wanted = [] if call == "get" else [("session_load_failed", "load")]
    assert await in_stream(store) == wanted


@pytest.mark.parametrize("call", BROKEN)
async def test_a_store_that_is_cut_off_is_told_and_logged(
    harness: OurHarness, caplog: pytest.LogCaptureFixture, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await harness.open()
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
    await runtime.create("echo", session_id="s")
    heard.take()

    def cut(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("cut off here")

    for name in ("transact", "view", "read"):
        monkeypatch.setattr(store.backend, name, cut)
    with pytest.raises(StoreUnavailable):
        await BROKEN[call](runtime)
    monkeypatch.undo()
    assert failures(heard) == [("LoadFailed", "load")]
    assert logged(caplog) == [(logging.WARNING, "s", "load")]
    assert await in_stream(store) == []


async def test_a_turn_whose_first_commit_the_store_fails_is_told_as_a_save(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
    await runtime.create("echo", session_id="s")
    await runtime.send("s", "one")
    heard.take()

    async def failing(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("cut off here")

    monkeypatch.setattr(store, "commit", failing)
    with pytest.raises(StoreUnavailable):
        await runtime.send("s", "two")
    monkeypatch.undo()
    assert failures(heard) == [("SaveFailed", "save")]
    assert (await runtime.send("s", "three")).completed


async def test_a_busy_session_is_no_failure_of_a_stage(store: Store) -> None:
    heard, gate = Heard(), GatedProgram()
    runtime = await opened(store, [gate], listeners=[heard])
    await runtime.create("gate", session_id="s")
    held = await runtime.session("s").start("hold")
    await gate.entered("hold")
    with pytest.raises(LaneBusy):
        await runtime.send("s", "two")
    assert failures(heard) == []
    gate.let_go("hold")
    await held.wait()


async def test_a_queued_action_that_fails_is_told_and_in_the_stream_once(store: Store) -> None:
    heard = Heard()
    runtime = await opened(store, [echo], listeners=[heard])
    await runtime.create("echo", session_id="s")
    heard.take()
    await runtime.session("s").enqueue(RewindSession("nope"))
    await runtime.drain()
    assert failures(heard) == [("ActionFailed", "action")]
    found = [data for kind, data in await streamed(store, "s") if kind == "session_action_failed"]
    assert [each["error"]["category"] for each in found] == ["invalid_input"]
