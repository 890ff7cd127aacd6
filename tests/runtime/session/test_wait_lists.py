"""What is waited for: by all sessions of a tenant, by a root's children, and by turns that are over."""

from datetime import timedelta
from typing import Any

import pytest

from tenuto import JSON, AskChild, Turn, WaitFor, program
from tenuto.errors import InvalidInput
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.stream.notices import Notice, WaitOpened
from tenuto.testing.agent import calls
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, agent, counting, in_memory

TOOLS = [Tool(name="pay", needs_approval=True, run=counting([])), Tool(name="browser")]


@program
async def asks(turn: Turn) -> JSON:
    return await turn.wait("question", metadata={"about": turn.text})


@program
async def approves(turn: Turn) -> bool:
    return bool(await turn.wait("sure?", kind="approval", timeout=60))


@program
async def middle(turn: Turn) -> JSON:
    return (await turn.child("asks", "from below")).output


@program
async def root(turn: Turn) -> list[JSON]:
    one, two = await turn.wait_all(AskChild(middle, "go"), WaitFor("mine"))
    return [one.output, two]


async def test_what_waits_is_listed_over_all_sessions_of_a_tenant_and_for_operators_of_all(harness: OurHarness) -> None:
    database = Database(harness)
    runtime = await database.runtime(asks, approves)
    opened: dict[str, str] = {}
    for tenant, user, made in (("", "ada", asks), ("", "bob", approves), ("acme", "ada", approves), ("", "bob", asks)):
        view = runtime.for_tenant(tenant) if tenant else runtime
        session = await view.create(made, user_id=user)
        database.clock.advance(1)
        (wait,) = (await session.send("hi")).waits
        opened[wait.wait_id] = f"{tenant}/{user}/{wait.kind}"

    def named(page: Any) -> list[str]:
        return [opened[each.wait_id] for each in page]

    mine = ["/ada/signal", "/bob/approval", "/bob/signal"]
    assert named(await runtime.waits()) == mine
    assert named(await runtime.waits(kind="approval")) == ["/bob/approval"]
    assert named(await runtime.waits(user_id="bob")) == ["/bob/approval", "/bob/signal"]
    assert named(await runtime.waits(user_id="bob", kind="signal")) == ["/bob/signal"]
    assert named(await runtime.for_tenant("acme").waits()) == ["acme/ada/approval"]
    everything = ["/ada/signal", "/bob/approval", "acme/ada/approval", "/bob/signal"]
    assert named(await runtime.across_tenants().waits()) == everything
    assert named(await runtime.across_tenants().waits(kind="approval")) == ["/bob/approval", "acme/ada/approval"]
    first = await runtime.across_tenants().waits(limit=3)
    assert named(await runtime.across_tenants().waits(after=first.next)) == everything[3:]
    (_, second, _) = await runtime.waits()
    assert named(await runtime.waits(opened_before=second.created_at)) == ["/ada/signal"]
    assert second.deadline == second.created_at + timedelta(seconds=60)
    for wait in await runtime.waits():
        await runtime.answer(wait, value=True)
    assert await runtime.waits() == ()
    wrong: list[dict[str, Any]] = [
        {"kind": "aproval"},
        {"limit": -1},
        {"after": "x"},
        {"user_id": 5},
        {"opened_before": "today"},
    ]
    for bad in wrong:
        with pytest.raises(InvalidInput):
            await runtime.waits(**bad)


async def test_a_wait_says_whose_it_is_and_which_call_it_is_for(harness: OurHarness) -> None:
    made = agent(calls(("c1", "pay", {"amount": 3})), tools=[Tool(name="pay", needs_approval=True, run=counting([]))])
    runtime = await Database(harness).runtime(made, asks)
    acme = runtime.for_tenant("acme")
    await acme.create("agent", session_id="s")
    outcome = await acme.send("s", "go")
    (wait,) = await acme.waits()
    assert (wait,) == outcome.waits
    assert (wait.session_id, wait.tenant, wait.kind, wait.signal_id) == ("s", "acme", "approval", "c1")
    assert (wait.tool, wait.call_id, wait.arguments) == ("pay", "c1", {"amount": 3})
    (run,) = await runtime.store.runs.of_session(wait.key)
    assert (wait.run_id, wait.invocation_id) == (run.run_id, run.invocation_id)
    await acme.create(asks, session_id="q")
    (plain,) = (await acme.send("q", "tea")).waits
    assert (plain.tool, plain.call_id, plain.arguments, plain.metadata["about"]) == (None, None, {}, "tea")


async def test_a_root_lists_what_its_children_wait_for_and_can_answer_it(harness: OurHarness) -> None:
    runtime = await Database(harness).runtime(root, middle, asks)
    session = await runtime.create(root, session_id="root")
    other = await runtime.create(asks, session_id="other")
    await other.send("hi")
    await session.send("go")
    await runtime.drain()
    own, waits = await session.waits(children=False), await session.waits()
    assert [wait.kind for wait in own] == ["child", "signal"]
    assert waits[:2] == own
    below = {wait.kind: wait for wait in waits[2:]}
    assert (len(waits), below["child"].session_id) == (4, own[0].metadata["child"])
    question = below["signal"]
    assert question.session_id == below["child"].metadata["child"]
    assert [wait.wait_id for wait in await runtime.session(question.session_id).waits()] == [question.wait_id]
    await session.answer(own[1], "mine")
    await session.answer(question, "answered above")
    await runtime.drain()
    assert await session.waits() == []
    (last, *_) = await session.runs()
    assert last.run.outcome == {"output": ["answered above", "mine"]}


async def test_what_the_children_of_a_users_session_wait_for_is_listed_for_the_user(harness: OurHarness) -> None:
    runtime = await Database(harness).runtime(root, middle, asks)
    for tenant, user in (("", "ada"), ("", "bob"), ("acme", "ada")):
        await (await runtime.for_tenant(tenant).create(root, session_id=f"of {user}", user_id=user)).send("go")
    await runtime.drain()
    others = await runtime.create(asks, parent="of ada", user_id="eve")
    await others.send("hi")
    for user in ("ada", "bob"):
        waits = await runtime.waits(user_id=user)
        assert [wait.kind for wait in waits] == ["child", "signal", "child", "signal"]
        assert list(waits) == [
            wait for wait in await runtime.session(f"of {user}").waits() if wait.session_id != others.session_id
        ]
    first = await runtime.waits(user_id="ada", kind="signal", limit=1)
    (second,) = await runtime.waits(user_id="ada", kind="signal", after=first.next)
    assert (first[0].session_id, second.session_id == "of ada") == ("of ada", False)
    assert len(await runtime.across_tenants().waits(user_id="ada")) == 8
    assert [wait.session_id for wait in await runtime.waits(user_id="eve")] == [others.session_id]


async def test_the_roots_stream_says_when_something_below_it_waits_once(harness: OurHarness) -> None:
    told: list[WaitOpened] = []

    def listen(notice: Notice) -> None:
        if isinstance(notice, WaitOpened):
            told.append(notice)

    made = agent(calls(("c1", "pay", {}), ("c2", "browser", {})), "done", tools=TOOLS, name="asks")
    runtime = await Database(harness).runtime(root, middle, made, listeners=[listen])
    session = await runtime.create(root, session_id="root")
    await session.send("go")
    await runtime.drain()

    async def opened() -> list[Any]:
        return [item.data async for item in session.events(live=False) if item.name == "wait_opened"]

    waits = [wait for wait in await session.waits() if wait.session_id != "root" and wait.kind != "child"]
    below = [{"child": w.session_id, "wait_id": w.wait_id, "kind": w.kind, "signal_id": w.signal_id} for w in waits]
    assert [wait.kind for wait in waits] == ["approval", "tool_result"]
    assert await opened() == below
    assert [notice.data() for notice in told] == below
    await session.answer(waits[0], True)  # the turn is suspended again, on the other one
    await runtime.drain()
    assert (await opened(), len(told)) == (below, 2)
    await session.answer(waits[1], "page")
    await runtime.drain()
    (mine,) = await session.waits()
    await session.answer(mine, 1)
    await runtime.drain()
    assert (await session.runs())[0].status == "completed"
    assert await opened() == below


@in_memory
async def test_a_turn_that_was_suspended_keeps_the_kinds_of_what_it_waited_for(harness: OurHarness) -> None:
    paid: list[Any] = []
    tools = [Tool(name="browser"), Tool(name="pay", needs_approval=True, run=counting(paid)), Tool(name="other")]
    made = agent(calls(("c1", "browser", {}), ("c2", "pay", {}), ("c3", "other", {})), "done", tools=tools)
    runtime = await Database(harness).runtime(made)
    session = await runtime.create("agent", session_id="s")
    waits = {wait.signal_id: wait for wait in (await session.send("go")).waits}

    async def kinds() -> list[tuple[str, ...]]:
        return [tuple(sorted(view.wait_kinds)) for view in reversed(await session.runs())]

    both = ("approval", "tool_result", "tool_result")
    assert await kinds() == [both]
    await session.answer(waits["c2"], True)
    assert await kinds() == [both, ("tool_result", "tool_result")]
    await session.answer(waits["c1"], "page")
    assert await kinds() == [both, ("tool_result",)]
    await session.answer(waits["c3"], "page")
    assert await kinds() == [both, ("tool_result", "tool_result"), ()]
    again = agent(calls(("d1", "browser", {})), tools=tools, name="again")
    other = await Database(harness).runtime(again)
    await other.create("again", session_id="t")
    await other.send("t", "go")
    assert await other.session("t").abandon_waits() == 1
    assert [view.wait_kinds for view in await other.session("t").runs()] == [("tool_result",)]
