"""The title and the preview of a session, which the runtime fills for lists."""

from collections.abc import Mapping
from typing import Any

import pytest

from tenuto import Definition, Store
from tenuto.runtime.change.action import ClearSession, RewindSession, WriteMetadata
from tenuto.runtime.change.hooks import on
from tenuto.runtime.conversation.history import preview_of, title_of
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.session_view import SessionView
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened
from tests.runtime.talking import broken, echo


async def shown(runtime: SessionRuntime, session_id: str = "s") -> tuple[Any, Any]:
    """Return the title and the preview of a session as a list has them."""
    (found,) = [each for each in await runtime.list() if each.session_id == session_id]
    head = await runtime.session(session_id).info()
    assert (head.profile.title, head.profile.preview) == (found.title, found.preview)
    return found.title, found.preview


async def test_a_list_shows_what_was_said_first_and_what_was_said_last(store: Store, harness: OurHarness) -> None:
    runtime, elsewhere = await opened(store, [echo]), await opened(await harness.open(), [echo])
    session = await runtime.create("echo", session_id="s")
    assert await shown(elsewhere) == (None, None)
    await session.send("where is my order?")
    assert await shown(elsewhere) == ("where is my order?", "re: where is my order?")
    await session.send("thank you")
    await session.send("really")
    assert await shown(elsewhere) == ("where is my order?", "re: really")
    assert (await session.get()).profile.preview == "re: really"


async def test_a_session_that_begins_with_messages_shows_them(store: Store) -> None:
    runtime = await opened(store, [echo])
    seed: Mapping[str, Any] = {
        "messages": [{"role": "user", "content": "is it sent?"}, {"role": "assistant", "content": "it is"}]
    }
    session = await runtime.create("echo", seed, "s")
    assert await shown(runtime) == ("is it sent?", "it is")
    await session.send("thanks")
    assert await shown(runtime) == ("is it sent?", "re: thanks")
    draft = SessionView.draft(Definition(name="echo"), "titled").appended("messages", *seed["messages"])
    await runtime.create(draft.with_profile(title="Imported"))
    assert await shown(runtime, "titled") == ("Imported", "it is")


async def test_a_queue_that_is_drained_leaves_the_last_text(store: Store) -> None:
    runtime = await opened(store, [echo])
    session = await runtime.create("echo", session_id="s")
    for text in ("one", "two", "three"):
        await session.enqueue(text)
    await runtime.drain()
    assert await shown(runtime) == ("one", "re: three")


async def test_a_title_of_the_user_is_never_overwritten(store: Store) -> None:
    async def titled(session: SessionView) -> SessionView:
        return session if session.profile.title else session.with_profile(title="by a hook")

    runtime = await opened(store, [echo])
    hooked = await opened(store, [echo], hooks=[on("before_save", titled)])
    await runtime.create("echo", session_id="given", title="mine")
    await runtime.create("echo", session_id="hooked")
    for session_id, title in (("given", "mine"), ("hooked", "by a hook")):
        for text in ("one", "two"):
            await hooked.send(session_id, text)
        assert await shown(runtime, session_id) == (title, "re: two")

    class Rename:
        async def apply(self, session: SessionView) -> SessionView:
            return session.with_profile(title="renamed")

    await runtime.execute("hooked", Rename())
    await runtime.send("hooked", "three")
    assert await shown(runtime, "hooked") == ("renamed", "re: three")


async def test_the_text_follows_the_conversation_where_an_action_cuts_it(store: Store) -> None:
    runtime = await opened(store, [echo])
    session = await runtime.create("echo", session_id="s")
    await session.send("one")
    second = await session.send("two")
    await session.execute(WriteMetadata("a", 1))
    await session.execute(RewindSession(str(second.run_id)))
    assert await shown(runtime) == ("one", "re: one")
    await session.execute(ClearSession())
    assert await shown(runtime) == ("one", None)
    await session.send("three")
    assert await shown(runtime) == ("one", "re: three")


async def test_a_failed_turn_shows_the_message_that_it_keeps(store: Store) -> None:
    runtime = await opened(store, [broken])
    await runtime.create("broken", session_id="s")
    assert (await runtime.send("s", "hello")).status == "failed"
    assert await shown(runtime) == ("hello", "hello")


async def test_a_warm_turn_writes_no_further_row_and_no_further_statement(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = await opened(store, [echo])
    session = await runtime.create("echo", session_id="s")
    await session.send("one")
    transactions: list[Any] = []
    transact = store.backend.transact

    async def noted(*args: Any, **options: Any) -> Any:
        transactions.append(args)
        return await transact(*args, **options)

    monkeypatch.setattr(store.backend, "transact", noted)
    before = (await store.dump())["profile"]
    await session.send("two")
    after = await store.dump()
    assert (after["profile"], len(transactions)) == (before, 2)
    assert [row["preview"] for row in after["session"]] == ["re: two"]


async def test_calls_and_results_are_not_shown(store: Store) -> None:
    @program
    async def quiet(turn: Turn) -> None:
        turn.append({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "look", "arguments": {}}]})
        turn.append({"role": "tool", "tool_call_id": "c", "content": "a long result"})

    runtime = await opened(store, [quiet])
    await runtime.create("quiet", session_id="s")
    await runtime.send("s", {"role": "user", "content": [{"type": "text", "text": "look\nhere"}]})
    assert await shown(runtime) == ("look here", "look here")


ODD = {
    "nothing": ([], None),
    "no text": ([{"role": "user", "content": ""}, {"role": "user", "content": " \n\t"}], None),
    "lines": ([{"role": "user", "content": "  one\n\n two\tthree "}], "one two three"),
    "nul": ([{"role": "user", "content": "a\0b"}], "a b"),
    "a lone surrogate": ([{"role": "user", "content": "a\ud800b"}], "a�b"),
    "halves": ([{"role": "user", "content": "\ud83d\ude00"}], "😀"),
    "limit": ([{"role": "user", "content": "x" * 200}], "x" * 200),
    "long": ([{"role": "user", "content": "ä" * 5000}], "ä" * 199 + "…"),
    "others": ([5, "text", {"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"a": 1}, None], "u"),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, 7]}], "a"),
}


@pytest.mark.parametrize("case", ODD)
def test_any_text_is_shown_on_one_line_and_of_bounded_size(case: str) -> None:
    messages, wanted = ODD[case]
    given: list[Mapping[str, Any]] = messages  # type: ignore[assignment]
    assert (preview_of(given), title_of(given)) == (wanted, wanted)
