"""Kill: SIGKILL inside a node right after its side effect, and between a pause and its answer.

What was done twice, and what does the conversation look like afterwards?
"""

import asyncio
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from demos import shop
from demos.database import database
from demos.history import Said, flaws, told
from demos.processes import call, call_and_kill, call_until_it_dies, die_now, say_and_wait_to_be_killed
from demos.show import Claim, Demonstration, Row, arguments, doing, present
from tenuto import Store, TenutoError
from tenuto.graph import END, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend
from tenuto.model.session import SessionKey

SESSION = "customer-42"
KILLED = "refund-of-order-7"


class Chat(State):
    messages: Annotated[list[Said], append] = []


class Memory(SessionState):
    messages: list[Said]


async def history(store: Store) -> list[Said]:
    record = await store.load(SessionKey(SESSION))
    return list(record.state["messages"]) if record else []


def tool_loop(store: Store, folder: str, *, deadly: bool) -> Any:
    async def think(state: Chat) -> dict[str, list[Said]]:
        shop.do(folder, "thought")
        match state.messages[-1]:
            case {"role": "tool"}:
                answer: Said = {"role": "assistant", "text": "Refunded."}
            case {"role": "user", "text": asked} if "refund" in asked:
                answer = {"role": "assistant", "text": "", "calls": ["call-1"]}
            case _:
                answer = {"role": "assistant", "text": "You are welcome."}
        return {"messages": [answer]}

    async def tools(state: Chat) -> dict[str, list[Said]]:
        (call_id,) = state.messages[-1]["calls"]
        await asyncio.sleep(0.05)
        shop.do(folder, "refund")
        if deadly:
            die_now()
        return {"messages": [{"role": "tool", "text": "done", "answers": call_id}]}

    return (
        GraphBuilder(Chat)
        .add_node("think", think)
        .add_node("tools", tools)
        .add_conditional_edge("think", lambda state: "tools" if state.messages[-1].get("calls") else END)
        .add_edge("tools", "think")
        .set_entry("think")
        .with_session_store(store, state=Memory, concurrency="exclusive")
        .with_checkpointer(store)
        .compile()
    )


async def talk_until_killed(folder: str) -> None:
    """Finish one turn, and die in the second right after the refund."""
    async with database(folder) as store:
        graph = tool_loop(store, folder, deadly=True)
        await graph.invoke({"messages": [{"role": "user", "text": "hello"}]}, session_id=SESSION)
        asked: Said = {"role": "user", "text": "refund order 7"}
        await graph.invoke({"messages": [asked]}, session_id=SESSION, invocation_id=KILLED)


async def resume(folder: str) -> dict[str, Any]:
    """Resume the turn that was killed."""
    async with database(folder) as store:
        await tool_loop(store, folder, deadly=False).invoke(resume_invocation=KILLED)
        return {"history": await history(store)}


async def send_next(folder: str) -> dict[str, Any]:
    """Send another message instead, as a customer who got no answer does; then resume the killed turn after all."""
    async with database(folder) as store:
        graph = tool_loop(store, folder, deadly=False)
        await graph.invoke({"messages": [{"role": "user", "text": "are you there?"}]}, session_id=SESSION)
        after = await history(store)
        refused = ""
        try:
            await graph.invoke(resume_invocation=KILLED, on_moved="rebase")
        except TenutoError as error:
            refused = error.category
        return {"history": after, "resumed": await history(store), "refused": refused}


class Refund(State):
    messages: Annotated[list[Said], append] = []
    approved: bool = False


def approval(store: Store, folder: str) -> Any:
    async def ask(_: Refund) -> dict[str, Any]:
        shop.do(folder, "mail")
        await suspend(SignalDescriptor("refund-approval", metadata={"approve": "refund of order 7"}))

    async def pay(state: Refund) -> dict[str, list[Said]]:
        if state.approved:
            shop.do(folder, "refund")
        return {"messages": [{"role": "assistant", "text": "Refunded." if state.approved else "Refused."}]}

    return (
        GraphBuilder(Refund)
        .add_node("ask", ask)
        .add_node("pay", pay)
        .add_edge("ask", "pay")
        .add_edge("pay", END)
        .set_entry("ask")
        .with_session_store(store, state=Memory, concurrency="exclusive")
        .compile()
    )


async def pause(folder: str) -> None:
    """Run until the approval is asked for, and wait to be killed."""
    async with database(folder) as store:
        asked: Said = {"role": "user", "text": "refund order 7"}
        outcome = await approval(store, folder).run({"messages": [asked]}, session_id=SESSION)
        await say_and_wait_to_be_killed({"paused": outcome.suspended, "resume": outcome.invocation_id})


async def answer(folder: str, resume: str) -> dict[str, Any]:
    """Approve, and approve once more."""
    async with database(folder) as store:
        graph = approval(store, folder)
        await graph.invoke(resume_invocation=resume, signal_payload={"approved": True})
        after = await history(store)
        refused = ""
        try:
            await graph.invoke(resume_invocation=resume, signal_payload={"approved": True})
        except TenutoError as error:
            refused = error.category
        return {"history": after, "again": refused}


def in_a_node(side: str, folder: Path) -> dict[str, Any]:
    """Kill a turn right after its refund; then resume it, and, on a copy of the files, send another message instead."""
    folder.mkdir()
    call_until_it_dies(f"{side}:talk_until_killed", folder=str(folder))
    copied = shutil.copytree(folder, folder.with_name(f"{folder.name}_copy"))
    resumed = call(f"{side}:resume", folder=str(folder))["history"]
    following = call(f"{side}:send_next", folder=str(copied))
    return {
        "refunds": shop.times(str(folder), "refund"),
        "thoughts": shop.times(str(folder), "thought"),
        "resumed": resumed,
        "flaws": flaws(resumed),
        "next": following["history"],
        "next_flaws": flaws(following["history"]),
        "resumed_after_next": following["resumed"],
        "resumed_after_next_flaws": flaws(following["resumed"]),
        "resumed_after_next_refused": following["refused"],
    }


def between(side: str, folder: Path, **options: Any) -> dict[str, Any]:
    """Kill a process that has paused, and answer from another one that works in another folder."""
    here, elsewhere = folder / "here", folder / "elsewhere"
    here.mkdir(parents=True)
    elsewhere.mkdir()
    paused = call_and_kill(f"{side}:pause", cwd=here, folder=str(folder), **options)
    answered = call(f"{side}:answer", cwd=elsewhere, folder=str(folder), resume=paused["resume"], **options)
    return {
        "paused": paused["paused"],
        "history": answered["history"],
        "mails": shop.times(str(folder), "mail"),
        "refunds": shop.times(str(folder), "refund"),
        "again": answered["again"],
    }


def kill(folder: Path) -> Demonstration:
    with doing("kill: Tenuto"):
        tenuto = {
            "in_node": in_a_node("demos.kill", folder / "node"),
            "between": between("demos.kill", folder / "pause"),
        }
    with doing("kill: LangGraph"):
        langgraph = {
            "in_node": in_a_node("demos.peer.kill", folder / "langgraph_node"),
            "between": between("demos.peer.kill", folder / "langgraph_pause"),
            "between_task": between("demos.peer.kill", folder / "langgraph_pause_task", in_task=True),
        }
    return Demonstration(
        name="kill",
        title="SIGKILL right after a node's side effect, and between a pause and its answer",
        rows=(
            *rows_in_a_node(tenuto["in_node"], langgraph["in_node"]),
            *rows_between(tenuto["between"], langgraph["between"], langgraph["between_task"]),
        ),
        claims=claims(tenuto["in_node"], tenuto["between"]),
        tenuto=tenuto,
        langgraph=langgraph,
    )


def rows_in_a_node(ours: dict[str, Any], theirs: dict[str, Any]) -> tuple[Row, ...]:
    def ran(side: dict[str, Any]) -> str:
        again = ": the node under way runs again" if side["refunds"] > 1 else ""
        return f"{side['refunds']} times{again}"

    def valid(history: list[Said], wrong: list[str]) -> str:
        return f"{'not valid: ' + '; '.join(wrong) if wrong else 'valid'}\n{told(history)}"

    def afterwards(side: dict[str, Any]) -> str:
        if side["resumed_after_next_refused"]:
            return f"refused: {side['resumed_after_next_refused']}"
        if side["resumed_after_next"] == side["next"]:
            return "nothing happens: the history is unchanged"
        return valid(side["resumed_after_next"], side["resumed_after_next_flaws"])

    return (
        Row(what="killed in a node, resumed: the side effect ran", tenuto=ran(ours), langgraph=ran(theirs)),
        Row(
            what="  the model was asked (3 without a kill)",
            tenuto=f"{ours['thoughts']} times",
            langgraph=f"{theirs['thoughts']} times",
        ),
        Row(
            what="  the history then",
            tenuto=valid(ours["resumed"], ours["flaws"]),
            langgraph=valid(theirs["resumed"], theirs["flaws"]),
        ),
        Row(
            what="killed in a node, and the customer writes again instead: the history",
            tenuto=valid(ours["next"], ours["next_flaws"]),
            langgraph=valid(theirs["next"], theirs["next_flaws"]),
        ),
        Row(what="  the killed turn resumed after that", tenuto=afterwards(ours), langgraph=afterwards(theirs)),
    )


def rows_between(ours: dict[str, Any], theirs: dict[str, Any], in_task: dict[str, Any]) -> tuple[Row, ...]:
    return (
        Row(
            what="killed while paused, answered in another process: the history",
            tenuto=told(ours["history"]),
            langgraph=told(theirs["history"]),
        ),
        Row(
            what="  mail sent before the pause / refund after it",
            tenuto=f"{ours['mails']} / {ours['refunds']} times",
            langgraph=(
                f"{theirs['mails']} / {theirs['refunds']} times\n"
                f"{in_task['mails']} / {in_task['refunds']} with the mail in a @task"
            ),
        ),
        Row(
            what="  the same answer once more",
            tenuto=f"refused: {ours['again']}" if ours["again"] else "accepted",
            langgraph=f"refused: {theirs['again']}" if theirs["again"] else "accepted",
        ),
    )


def claims(node: dict[str, Any], pause: dict[str, Any]) -> tuple[Claim, ...]:
    whole = "user: hello · assistant: You are welcome."
    refund = "user: refund order 7 · assistant: (calls call-1) · tool: done · assistant: Refunded."
    following = "user: are you there? · assistant: You are welcome."
    return (
        Claim(
            text="resumed, the killed turn ends as if unbroken: nodes that were done do not run again",
            holds=told(node["resumed"]) == f"{whole} · {refund}" and not node["flaws"] and node["thoughts"] == 3,
        ),
        Claim(
            text="the node under way at the kill runs again, no other: its effect is there twice",
            holds=node["refunds"] == 2,
        ),
        Claim(
            text="not resumed, the killed turn leaves nothing half said: the next message finds a valid history",
            holds=told(node["next"]) == f"{whole} · {following}" and not node["next_flaws"],
        ),
        Claim(
            text="the killed turn can be resumed even after that, behind what was said meanwhile",
            holds=told(node["resumed_after_next"]) == f"{whole} · {following} · {refund}",
        ),
        Claim(
            text="a pause outlives its process: another one, elsewhere, continues after the node that paused",
            holds=pause["paused"]
            and told(pause["history"]) == "user: refund order 7 · assistant: Refunded."
            and (pause["mails"], pause["refunds"]) == (1, 1),
        ),
        Claim(
            text="a pause is answered once: the second answer is refused",
            holds=pause["again"] == "suspension_record_invalid",
        ),
    )


def main() -> int:
    options = arguments(__doc__).parse_args()
    with TemporaryDirectory(prefix="tenuto-kill-") as folder:
        return present(kill(Path(folder)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
