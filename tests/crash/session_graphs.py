"""The graphs that other processes run on one session, and the outside world their nodes talk to."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from tenuto import Store
from tenuto.graph import (
    END,
    CompiledGraph,
    End,
    GraphBuilder,
    SessionState,
    SignalDescriptor,
    State,
    append,
    save_session,
    suspend,
)
from tenuto.words import Concurrency

Update = Mapping[str, Any]
Body = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a process is told about the graph it runs."""

    graph: str = "desk"
    concurrency: Concurrency = "last_write_wins"
    checkpoints: bool = False
    lane_wait: float = 30.0
    port: int = 0
    version: str = "v1"

    async def ask(self, request: Any) -> Any:
        """Ask the outside world, and wait for what it says."""
        if not self.port:
            return None
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()

    def ask_blocking(self, request: Any) -> Any:
        """Ask the outside world the way a careless node does: the event loop stands still meanwhile."""
        with socket.create_connection(("127.0.0.1", self.port)) as line, line.makefile("rwb") as pipe:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
            return json.loads(pipe.readline())


def made(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Return the graph of that name."""
    return {
        "desk": desk,
        "swept": swept,
        "nested": nested,
        "bulk": bulk,
        "chat": chat,
        "blocking": blocking,
        "parcel": parcel,
        "paused parcel": parcel,
        "broken parcel": parcel,
    }[plan.graph](plan, store)


class Desk(State):
    messages: Annotated[list[str], append] = []
    total: int = 0
    approved: bool | None = None
    reason: str = "none given"


class Memory(SessionState):
    messages: list[str]
    total: int


def desk(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Read, wait for an approval, pay, thank; every node but the gate asks the outside world first."""

    def asking(name: str, amount: int) -> Body:
        async def body(state: Desk) -> Update:
            answer = await plan.ask({"node": name, "state": state.model_dump()})
            if answer == "no":
                raise RuntimeError("refused outside")
            return {"messages": [f"{name}: {answer}"], "total": state.total + amount}

        return body

    async def gate(state: Desk) -> Update:
        await suspend(SignalDescriptor("approval", metadata={"total": state.total}))

    return _line(
        plan, store, Desk, Memory, read=asking("read", 1), gate=gate, pay=asking("pay", 10), thank=asking("thank", 100)
    )


def _adding(plan: Plan, name: str, amount: int) -> Body:
    async def body(state: Any) -> Update:
        await plan.ask(name)
        return {"messages": [name], "total": state.total + amount}

    return body


def swept(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Like a desk, but the session is saved in the middle of a node, once as it will be and once otherwise."""

    async def draft(state: Desk) -> Update:
        await save_session({"messages": ["a first thought"], "total": state.total + 7})
        await plan.ask("draft")
        await save_session({"messages": ["draft"], "total": state.total + 10})
        return {"messages": ["draft", "signed"], "total": state.total + 10}

    async def gate(state: Desk) -> Update:
        await suspend(SignalDescriptor("approval"))

    async def pay(state: Desk) -> Update:
        await plan.ask("pay")
        await save_session({"messages": ["paid"]})
        return {"messages": ["paid" if state.approved else "refused"], "total": state.total + 100}

    read, thank = _adding(plan, "read", 1), _adding(plan, "thank", 1000)
    return _line(plan, store, Desk, Memory, read=read, draft=draft, gate=gate, pay=pay, thank=thank)


MANY = 2500
"""More entries than one commit writes."""


def bulk(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Like a desk, but one node adds more than a commit takes, and a value big enough to be held by its hash."""

    async def gate(state: Desk) -> Update:
        await suspend(SignalDescriptor("approval"))

    async def pay(state: Desk) -> Update:
        await plan.ask("pay")
        lines = [f"line {number}" for number in range(MANY)]
        return {"messages": lines, "total": state.total + 110, "reason": "x" * 5000}

    read, thank = _adding(plan, "read", 1), _adding(plan, "thank", 1000)
    return _line(plan, store, Desk, Memory, read=read, gate=gate, pay=pay, thank=thank)


class Office(State):
    messages: Annotated[list[str], append] = []
    total: int = 0
    granted: bool = False


def nested(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Like a desk, but what waits for the answer is a graph inside a node."""

    async def gate(state: Office) -> Update:
        await suspend(SignalDescriptor("grant"))

    async def decide(state: Office) -> Update:
        await plan.ask("decide")
        return {"messages": ["granted" if state.granted else "denied"], "total": state.total + 100}

    inner = _chain(GraphBuilder(Office), look=_adding(plan, "look", 10), gate=gate, decide=decide)
    builder = _kept(plan, store, Desk, Memory)
    builder.add_node("read", _adding(plan, "read", 1)).add_node("thank", _adding(plan, "thank", 1000))
    outputs = {"messages": "messages", "total": "total"}
    builder.add_subgraph_node("office", inner, inputs={"total": "total"}, outputs=outputs)
    builder.add_edge("read", "office").add_edge("office", "thank").add_edge("thank", END)
    return builder.set_entry("read").compile()


class Chat(State):
    messages: Annotated[list[str], append] = []


def chat(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Answer the last message; all who asked the outside world before go on together."""

    async def reply(state: Chat) -> Update:
        last = state.messages[-1]
        await plan.ask(last)
        await asyncio.sleep(0.001)
        return {"messages": [f"reply to {last}"]}

    return _line(plan, store, Chat, None, reply=reply)


def blocking(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Answer the last message, and let nothing else run in this process until the outside world allows it."""

    async def reply(state: Chat) -> Update:
        last = state.messages[-1]
        plan.ask_blocking(last)
        return {"messages": [f"reply to {last}"]}

    return _line(plan, store, Chat, None, reply=reply)


class ParcelOne(State):
    schema_version: ClassVar[str] = "v1"
    events: Annotated[list[str], append] = []
    to: str = ""
    grams: int = 0
    signed: bool = False


class ParcelThree(State):
    schema_version: ClassVar[str] = "v3"
    events: Annotated[list[dict[str, str]], append] = []
    recipient: str = ""
    kilograms: float = 0.0
    signed: bool = False


def parcel(plan: Plan, store: Store) -> CompiledGraph[Any]:
    """Send a parcel, whose state is kept whole, as the code of one version or the other."""

    async def pack(state: Any) -> Update:
        if plan.graph == "broken parcel":
            raise RuntimeError("no boxes")
        return {"events": ["packed"]} if plan.version == "v1" else {"events": [{"what": "packed"}]}

    async def sign(state: Any) -> Update:
        if plan.graph == "paused parcel":
            await suspend(SignalDescriptor("signature"))
        return {}

    async def send(state: Any) -> Update:
        answer = await plan.ask(state.model_dump())
        word = f"sent ({answer})"
        return {"events": [word]} if plan.version == "v1" else {"events": [{"what": word}]}

    kind: type[State] = ParcelOne if plan.version == "v1" else ParcelThree
    return _line(plan, store, kind, None, pack=pack, sign=sign, send=send)


def _to_v2(old: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in old.items() if name != "to"}, "recipient": old["to"]}


def _to_v3(old: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in old.items() if name != "grams"}
    return {**kept, "kilograms": old["grams"] / 1000, "events": [{"what": event} for event in old["events"]]}


def _line(
    plan: Plan, store: Store, kind: type[State], session: type[SessionState] | None, **nodes: Body
) -> CompiledGraph[Any]:
    """Return a graph with sessions that runs these nodes one after the other."""
    return _chain(_kept(plan, store, kind, session), **nodes)


def _kept(plan: Plan, store: Store, kind: type[State], session: type[SessionState] | None) -> GraphBuilder[Any]:
    builder = GraphBuilder(kind).with_session_store(
        store, state=session, concurrency=plan.concurrency, lane_wait=plan.lane_wait
    )
    if plan.checkpoints:
        builder.with_checkpointer(store)
    if kind is ParcelThree:
        builder.with_session_migration("v1", "v2", _to_v2).with_session_migration("v2", "v3", _to_v3)
    return builder


def _chain(builder: GraphBuilder[Any], **nodes: Body) -> CompiledGraph[Any]:
    names = list(nodes)
    targets: list[str | End] = [*names[1:], END]
    for name, following in zip(names, targets, strict=True):
        builder.add_node(name, nodes[name]).add_edge(name, following)
    return builder.set_entry(names[0]).compile()
