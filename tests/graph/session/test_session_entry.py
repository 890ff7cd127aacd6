"""What counts as given by the caller, and what a resume takes."""

import asyncio
from typing import Annotated

import pytest

from tenuto import Store
from tenuto.errors import InvalidInput
from tenuto.graph import END, GraphBuilder, SignalDescriptor, State, append, suspend
from tenuto.graph.warnings import SessionStateDoubled


class Talk(State):
    messages: Annotated[list[str], append] = []
    topic: str = ""


async def reply(state: Talk) -> dict[str, object]:
    return {"messages": ["reply"], "topic": "weather"}


def graph(store: Store | None) -> GraphBuilder[Talk]:
    made = GraphBuilder(Talk).add_node("reply", reply).add_edge("reply", END).set_entry("reply")
    return made.with_session_store(store) if store else made


async def test_a_whole_state_passed_back_to_its_session_doubles_and_is_warned_of(store: Store) -> None:
    talk = graph(store).compile()
    first = await talk.run({"messages": ["hello"]}, session_id="a")
    with pytest.warns(SessionStateDoubled, match="messages"):
        second = await talk.run(first.state, session_id="a")
    assert second.state is not None
    assert second.state.messages == ["hello", "reply", "hello", "reply", "reply"]


async def test_a_state_of_another_run_gives_another_session_all_it_has(store: Store) -> None:
    before = await graph(None).compile().invoke({"messages": ["hello"]})
    outcome = await graph(store).compile().run(before, session_id="b")
    assert outcome.entry_state == before
    assert before.topic == "weather"


async def test_a_suspension_inside_a_task_group_suspends_the_run(store: Store) -> None:
    async def gate(state: Talk) -> dict[str, object]:
        async with asyncio.TaskGroup() as group:
            group.create_task(suspend(SignalDescriptor("inside")))
            group.create_task(asyncio.sleep(60))
        return {}

    talk = graph(store).add_node("gate", gate).add_edge("gate", "reply").set_entry("gate").compile()
    outcome = await talk.run({"messages": ["hello"]}, session_id="c")
    assert outcome.suspended
    assert outcome.descriptor == SignalDescriptor("inside")
    resumed = await talk.run(resume_invocation=outcome.invocation_id, signal_payload={})
    assert resumed.completed


async def test_a_resume_takes_no_initial_state(store: Store) -> None:
    with pytest.raises(InvalidInput, match="signal_payload"):
        await graph(store).compile().run({"topic": "x"}, resume_invocation="some", signal_payload={})
