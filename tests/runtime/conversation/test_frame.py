"""Frames: what a program sees of a conversation, and what it keeps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto import Store
from tenuto.messages import AssistantMessage, ToolCall, ToolMessage, assistant, user
from tenuto.messages.history_repair import repair
from tenuto.messages.message_form import calls_of
from tenuto.runtime.conversation.frame import frame_mark, seen_since
from tenuto.runtime.conversation.history import History
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.turn.replica import is_frame
from tenuto.testing.agent import Script, ScriptedAgent
from tests.runtime.runtimes import opened
from tests.runtime.talking import said, streamed


def calling(*ids: str) -> AssistantMessage:
    made: list[ToolCall] = [{"id": each, "name": "look", "arguments": {}} for each in ids]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(call_id: str) -> ToolMessage:
    return {"role": "tool", "tool_call_id": call_id, "content": f"of {call_id}"}


OLD = [user("one"), calling("a", "b"), result("a"), result("b"), assistant("two"), user("three")]


def framed(messages: list[Any], later: list[Any], **options: Any) -> list[Any]:
    mark = frame_mark("compaction", messages, **options)
    return seen_since([*messages, mark, *later], len(messages))


def test_without_a_frame_everything_is_seen() -> None:
    assert seen_since(OLD, None) == OLD


def test_summary_then_buffer_then_messages_since_are_seen() -> None:
    seen = framed(OLD, [assistant("four")], summary="they talked", keep=2)
    assert seen == [
        {"role": "system", "content": "they talked", "metadata": {"summary": True}},
        assistant("two"),
        user("three"),
        assistant("four"),
    ]


def test_without_summary_and_buffer_only_what_follows_is_seen() -> None:
    assert framed(OLD, [assistant("four")], summary=None, keep=0) == [assistant("four")]
    assert framed(OLD, [], summary="", keep=0)[0]["content"] == ""


@pytest.mark.parametrize(("keep", "seen"), [(1, 1), (2, 2), (3, 5), (4, 5), (5, 5), (6, 6), (99, 6)])
def test_the_buffer_never_parts_a_result_from_its_call(keep: int, seen: int) -> None:
    assert framed(OLD, [], summary=None, keep=keep) == OLD[-seen:]


def test_the_mark_of_an_older_frame_is_not_seen_in_the_buffer() -> None:
    first = frame_mark("compaction", OLD, summary="first", keep=0)
    messages = [*OLD, first, assistant("four")]
    assert framed(messages, [], summary="second", keep=3)[1:] == [user("three"), assistant("four")]


_ROUGH = st.lists(
    st.one_of(
        st.sampled_from([user("u"), assistant("r")]),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda ids: calling(*ids)),
        st.sampled_from("abc").map(result),
    ),
    max_size=14,
)


@given(_ROUGH, _ROUGH, st.integers(0, 20))
def test_no_result_is_seen_without_its_call_wherever_the_frame_stands(
    before: list[Any], after: list[Any], keep: int
) -> None:
    mark: Any = {"role": "frame"}
    whole: list[Any] = [*repair([*before, mark, *after])]
    at = next(index for index, message in enumerate(whole) if message["role"] == "frame")
    seen = framed(whole[:at], whole[at + 1 :], summary="s", keep=keep)
    made = {call["id"] for message in seen for call in calls_of(message)}
    assert {message["tool_call_id"] for message in seen if message["role"] == "tool"} <= made
    assert len(seen) >= min(keep, at) + len(whole) - at
    assert not History().judged(seen).open


async def test_a_compaction_reaches_the_next_request_and_the_whole_log_stays_readable(store: Store) -> None:
    model = Script("first", "second", "third")
    agent = ScriptedAgent(model=model, name="talker")
    compacted = []

    @program(name="compacting")
    async def compacting(turn: Turn) -> None:
        if turn.input == user("compact"):
            turn.frame(summary="we greeted", keep=2)
            compacted.append(turn.context)
            turn.append(assistant("done"))
            return
        await agent.run(turn)

    runtime = await opened(store, [compacting])
    await runtime.create("compacting", session_id="s")
    for text in ("hello", "compact", "and now?"):
        await runtime.send("s", text)
    summary = {"role": "system", "content": "we greeted", "metadata": {"summary": True}}
    assert compacted == [[summary, assistant("first"), user("compact")]]
    assert model.requests[-1].messages == [
        summary,
        assistant("first"),
        user("compact"),
        assistant("done"),
        user("and now?"),
    ]
    for reader in (runtime, await opened(store, [compacting])):
        session = await reader.get("s")
        assert [m.get("content", m.get("frame")) for m in session.messages] == [
            "hello",
            "first",
            "compact",
            "compaction",
            "done",
            "and now?",
            "third",
        ]
    await (await opened(store, [compacting])).send("s", "cold")
    assert model.requests[-1].messages[:2] == [summary, assistant("first")]


async def test_a_frame_cannot_pass_an_open_call(store: Store) -> None:
    @program
    async def hasty(turn: Turn) -> None:
        turn.append(calling("a"))
        turn.frame(summary="too soon")

    runtime = await opened(store, [hasty])
    await runtime.create("hasty", session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.status, outcome.error["category"]) == ("failed", "history_invalid")
    assert said(await runtime.get("s")) == ["go"]


async def test_a_hand_off_with_a_message_is_one_commit_and_the_other_program_goes_on(store: Store) -> None:
    seen = []

    @program
    async def clerk(turn: Turn) -> None:
        turn.append(assistant("I pass you on"))
        turn.hand_off("expert", summary="a refund", keep=1, message=user("take over"))

    @program(name="expert")
    async def expert(turn: Turn) -> None:
        seen.append(turn.context)
        turn.append(assistant("expert here"))

    runtime = await opened(store, [clerk, expert])
    await runtime.create("clerk", session_id="s")
    before = (await runtime.session("s").info()).commit_number
    outcome = await runtime.send("s", "refund please")
    assert outcome.text == "I pass you on"
    handed = await runtime.session("s").info()
    assert handed.commit_number == before + 2  # the begin, and the end with all of it
    assert (handed.profile.agent, handed.profile.definition["name"]) == ("expert", "expert")
    mark = (await runtime.get("s")).messages[-1]
    assert (is_frame(mark), mark["frame"], mark["program"]) == (True, "handoff", "expert")
    await runtime.drain()
    summary = {"role": "system", "content": "a refund", "metadata": {"summary": True}}
    assert seen == [[summary, assistant("I pass you on"), user("take over")]]
    assert [m.get("content") for m in (await runtime.get("s")).messages][-2:] == ["take over", "expert here"]
    types = [type_ for type_, _ in await streamed(store, "s")]
    assert types.count("run_started") == types.count("run_ended") == 2


async def test_a_hand_offs_message_goes_before_what_was_queued_earlier(store: Store) -> None:
    heard = []

    @program(name="expert")
    async def expert(turn: Turn) -> None:
        heard.append(turn.text)
        turn.append(assistant(f"re: {turn.text}"))

    @program(name="desk")
    async def desk(turn: Turn) -> None:
        for text in ("older", "old"):
            await runtime.session("s").enqueue(text)
        turn.append(assistant("I pass you on"))
        turn.hand_off("expert", message=user("take over"))

    runtime = await opened(store, [desk, expert])
    await runtime.create("desk", session_id="s")
    assert (await runtime.send("s", "refund please")).completed
    assert [each.status for each in await store.inbox.list("s")] == ["open"] * 3
    queued = await runtime.session("s").start("newer", when_busy="queue")
    assert (await queued.wait()).text == "re: newer"
    assert heard == ["take over", "older", "old", "newer"]
    assert await store.inbox.list("s") == ()


async def test_a_hand_off_of_a_failed_turn_never_happened(store: Store) -> None:
    @program
    async def clerk(turn: Turn) -> None:
        turn.hand_off("expert", message=user("take over"))
        raise ValueError("no luck")

    @program
    async def expert(turn: Turn) -> None:
        raise AssertionError("nobody handed over")

    runtime = await opened(store, [clerk, expert])
    await runtime.create("clerk", session_id="s")
    for _ in range(2):
        outcome = await runtime.send("s", "go")
        assert outcome.error["message"] == "no luck"
    await runtime.drain()
    session = await runtime.get("s")
    assert session.definition is not None
    assert (session.definition.name, said(session)) == ("clerk", ["go", "go"])
