"""Listeners that follow a turn while it runs."""

import asyncio
from typing import Any

import pytest

from tenuto import Store, Turn, program
from tenuto.errors import RunFailed
from tenuto.runtime.session.session_view import trace_id_of
from tenuto.runtime.stream.moments import Moment, TurnBegan, TurnOver
from tenuto.runtime.stream.notices import Notice
from tests.runtime.runtimes import in_memory, opened

pytestmark = in_memory


class Follows:
    """An inline listener; what it is told is in `seen`."""

    inline = True

    def __init__(self, fails: bool = False) -> None:
        self.seen: list[Any] = []
        self._fails = fails

    def __call__(self, happened: Any) -> None:
        self.seen.append(happened)
        if self._fails and isinstance(happened, Moment):
            raise RuntimeError("a mistake of the listener's")

    @property
    def turns(self) -> list[Any]:
        """The begins and ends of turns."""
        return [each for each in self.seen if isinstance(each, TurnBegan | TurnOver)]


@program
async def greets(turn: Turn) -> str:
    return "hello"


@program
async def fails(turn: Turn) -> None:
    raise KeyError("k")


async def test_an_inline_listener_gets_begin_and_end_besides_the_notices(store: Store) -> None:
    told: list[Notice] = []
    follows = Follows()
    runtime = await opened(store, [greets], listeners=[follows, told.append])
    await runtime.create(greets, session_id="s")
    outcome = await runtime.send("s", "hi")
    began, over = follows.turns
    assert isinstance(began, TurnBegan)
    assert (over.status, over.category, over.exception) == ("completed", None, None)
    assert began.ids == over.ids
    assert (began.ids.session_id, began.ids.run_id, began.ids.program) == ("s", outcome.run_id, "greets@1")
    assert began.trace_id == trace_id_of((await runtime.session("s").info()).profile)
    assert (began.resumes, began.waited) == (None, None)
    assert [each for each in follows.seen if isinstance(each, Notice)] == told


async def test_a_failed_turn_says_what_it_raised(store: Store) -> None:
    follows = Follows()
    runtime = await opened(store, [fails], listeners=[follows])
    await runtime.create(fails, session_id="s")
    with pytest.raises(RunFailed):
        (await runtime.send("s", "hi")).result()
    over = follows.turns[-1]
    assert (over.status, over.category) == ("failed", "KeyError")
    assert isinstance(over.exception, KeyError)


async def test_a_listener_that_fails_disturbs_nobody_and_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    follows = Follows()
    runtime = await opened(store, [greets], listeners=[Follows(fails=True), follows])
    await runtime.create(greets, session_id="s")
    assert (await runtime.send("s", "hi")).completed
    assert len(follows.turns) == 2
    assert "Listener Follows failed on TurnBegan" in caplog.text
    assert "Listener Follows failed on TurnOver" in caplog.text


async def test_ends_come_in_reverse_order(store: Store) -> None:
    order: list[tuple[str, str]] = []

    class Named(Follows):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def __call__(self, happened: Any) -> None:
            if isinstance(happened, Moment):
                order.append((self.name, type(happened).__name__))

    runtime = await opened(store, [greets], listeners=[Named("a"), Named("b")])
    await runtime.create(greets, session_id="s")
    await runtime.send("s", "hi")
    assert order == [("a", "TurnBegan"), ("b", "TurnBegan"), ("b", "TurnOver"), ("a", "TurnOver")]


async def test_a_cancelled_turn_is_over_too(store: Store) -> None:
    begun = asyncio.Event()

    @program
    async def hangs(turn: Turn) -> None:
        begun.set()
        await asyncio.Event().wait()

    follows = Follows()
    runtime = await opened(store, [hangs], listeners=[follows])
    await runtime.create(hangs, session_id="s")
    sending = asyncio.create_task(runtime.send("s", "hi"))
    await begun.wait()
    sending.cancel()
    await asyncio.wait([sending])
    assert follows.turns[-1].status == "cancelled"


async def test_a_resumed_turn_names_the_run_it_continues(store: Store) -> None:
    @program
    async def waits(turn: Turn) -> None:
        await turn.wait("go")

    follows = Follows()
    runtime = await opened(store, [waits], listeners=[follows])
    await runtime.create(waits, session_id="s")
    outcome = await runtime.send("s", "hi")
    await runtime.answer(outcome.waits[0].wait_id, 1)
    _, suspended, began, _ = follows.turns
    assert suspended.status == "suspended"
    assert began.resumes == outcome.run_id
    assert began.ids.invocation_id == suspended.ids.invocation_id


async def test_a_queued_message_says_how_long_it_waited(store: Store) -> None:
    follows = Follows()
    runtime = await opened(store, [greets], listeners=[follows])
    await runtime.create(greets, session_id="s")
    await runtime.session("s").enqueue("one")
    await runtime.session("s").enqueue("two")
    await runtime.drain()
    waited = [each.waited for each in follows.turns if isinstance(each, TurnBegan)]
    assert len(waited) == 2
    assert all(each is not None and 0 <= each < 60 for each in waited)
