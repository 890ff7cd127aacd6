"""Messages sent at once by one process: they are taken in the order of the calls."""

import asyncio
from typing import Any

import pytest

from tenuto import SessionRuntime, Store, Turn, program
from tenuto.errors import LaneBusy, NestedSession
from tenuto.runtime.change.hooks import on
from tenuto.runtime.session.session_view import SessionView
from tenuto.runtime.stream.notices import Notice, RunStarted
from tenuto.testing.harness import Harness
from tests.runtime.runtimes import opened


@program
async def echo(turn: Turn) -> None:
    turn.append(f"re: {turn.text}")


def said(session: Any) -> list[str]:
    return [message["content"] for message in session.messages]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("warm", [False, True])
async def test_messages_sent_at_once_are_taken_in_the_order_of_the_calls(store: Store, warm: bool, keyed: bool) -> None:
    runtime = await opened(store, [echo])
    words = ("one", "two", "three", "four", "five")
    for number in range(5):
        name = f"s{number}"
        await runtime.create("echo", session_id=name)
        before = 0
        if warm:
            await runtime.send(name, "first")
            before = 2
        sent = (runtime.send(name, word, key=word if keyed else None, when_busy="queue") for word in words)
        outcomes = await asyncio.gather(*sent)
        assert [outcome.text for outcome in outcomes] == [f"re: {word}" for word in words]
        stored = said(await runtime.get(name))[before:]
        assert stored == [text for word in words for text in (word, f"re: {word}")]


async def test_a_listener_that_sends_to_the_session_that_is_beginning_is_refused_and_not_waited_for(
    store: Store,
) -> None:
    refused: list[str] = []

    async def meddle(notice: Notice) -> None:
        if isinstance(notice, RunStarted) and not refused:
            with pytest.raises(LaneBusy):
                await runtime.send(notice.session_id, "me too")
            refused.append(notice.session_id)

    runtime = await opened(store, [echo], listeners=[meddle])
    await runtime.create("echo", session_id="a")
    async with asyncio.timeout(20):
        outcome = await runtime.send("a", "hello")
    assert (outcome.text, refused) == ("re: hello", ["a"])


async def test_the_turn_after_a_rollback_knows_its_reply_though_the_conversation_got_shorter(store: Store) -> None:
    held = asyncio.Event()

    @program
    async def talker(turn: Turn) -> None:
        if turn.text == "hold":
            turn.append({"role": "assistant", "content": "half of"})
            await turn.save()
            turn.append({"role": "assistant", "content": "what I wanted"})
            await turn.save()
            held.set()
            await asyncio.Event().wait()
        turn.append({"role": "assistant", "content": f"re: {turn.text}"})

    runtime = await opened(store, [talker])
    await runtime.create("talker", session_id="a")
    started = await runtime.session("a").start("hold")
    await held.wait()
    outcome = await runtime.send("a", "anew", when_busy="rollback")
    await started.wait()
    assert (outcome.text, said(await runtime.get("a"))) == ("re: anew", ["anew", "re: anew"])
    assert outcome.input_id is not None
    assert (await runtime.outcome(outcome.input_id)).text == "re: anew"


async def test_what_is_queued_while_a_cold_sender_looks_is_not_overtaken(harness: Harness, store: Store) -> None:
    """Whatever makes the look slow: a hook, a long history, a busy server."""
    other, queued = await opened(await harness.open(), [echo]), list[str]()
    await other.create("echo", session_id="a")

    async def slow(session: SessionView) -> SessionView:
        if not queued:
            queued.append(await other.session("a").enqueue("first"))
        return session

    runtime = await opened(store, [echo], hooks=[on("after_load", slow, priority=1)])
    outcome = await runtime.send("a", "second", key="k")
    assert outcome.text == "re: second"
    assert said(await other.get("a")) == ["first", "re: first", "second", "re: second"]
    first, second = await store.inbox.get(queued[0]), await store.inbox.find("a", "k")
    assert first is not None
    assert second is not None
    assert first.seq < second.seq


async def test_many_cold_senders_all_get_their_turn_in_the_order_of_their_numbers(harness: Harness) -> None:
    runtimes = [await opened(await harness.open(), [echo], cache_bytes=0) for _ in range(4)]
    await runtimes[0].create("echo", session_id="a")
    words = [f"{place}-{number}" for place in range(len(runtimes)) for number in range(3)]

    async def talk(place: int, runtime: SessionRuntime) -> None:
        for number in range(3):
            word = f"{place}-{number}"
            assert (await runtime.send("a", word, key=word, when_busy="queue")).text == f"re: {word}"

    async with asyncio.timeout(20):
        await asyncio.gather(*(talk(place, runtime) for place, runtime in enumerate(runtimes)))
    found = [await runtimes[0].store.inbox.find("a", word) for word in words]
    order = [str(each.input_key) for each in sorted((each for each in found if each), key=lambda each: each.seq)]
    assert said(await runtimes[0].get("a")) == [text for word in order for text in (word, f"re: {word}")]
    assert sorted(order) == words


async def test_a_turn_does_not_wait_for_a_message_that_waits_for_it(store: Store) -> None:
    async def inner(turn: Turn) -> str:
        if turn.text != "go":
            return turn.text
        own, other = runtime.session(turn.session_id), runtime.session("other")
        with pytest.raises(NestedSession, match="`start` or `enqueue`"):
            await own.send("to myself", when_busy="queue")
        with pytest.raises(NestedSession):
            await asyncio.create_task(own.send("from a task", when_busy="queue"))
        await own.start("later", when_busy="queue")
        return (await other.send("to another", when_busy="queue")).text

    runtime = await opened(store, [program(inner), echo])
    await runtime.create("inner", session_id="s")
    await runtime.create("echo", session_id="other")
    assert (await runtime.send("s", "go")).completed
    await runtime.drain()
    said = [message["content"] for message in (await runtime.get("s")).messages]
    assert said == ["go", "later"]
