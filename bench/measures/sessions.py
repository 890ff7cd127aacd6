"""A graph's turn on a session: against the store's own turn, on more history, and in two parts, suspended between."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from shutil import rmtree
from statistics import mean, median
from typing import Annotated, Any, NamedTuple

from bench.counters import counting_syncs
from bench.harness import Measure, Scene, Stopwatch, cpu, wall
from bench.turn_cost import syncs_per_turn
from bench.workload import Messages, WarmSession, a_key, messages
from tenuto import Store, open_store
from tenuto.graph import END, CompiledGraph, GraphBuilder, SessionState, SignalDescriptor, State, append, suspend
from tenuto.model.session import SessionKey

_BATCH = 100
_TURNS_EACH = 10
_ROUNDS = 25
_ROUND_TRIPS = 200


class Chat(State):
    """A turn's state: the workload's messages and document, and a field that is not kept."""

    messages: Annotated[list[dict[str, Any]], append] = []
    topic: str = ""
    turns: int = 0
    reply: dict[str, Any] = {}


class Memory(SessionState):
    messages: list[dict[str, Any]]
    topic: str
    turns: int


async def answer(state: Chat) -> dict[str, Any]:
    return {"messages": [state.reply], "turns": state.turns + 1}


async def ask(_: Chat) -> dict[str, Any]:
    await suspend(SignalDescriptor(signal_id="reply"))


def chat(store: Store, *, asks: bool = False) -> CompiledGraph[Chat]:
    """Return a graph that keeps its sessions in this store; the last save wins.

    One node answers; with `asks`, another suspends before it.
    """
    builder = GraphBuilder(Chat).with_session_store(store, Memory, concurrency="last_write_wins")
    builder.add_node("answer", answer).add_edge("answer", END)
    if asks:
        builder.add_node("ask", ask).add_edge("ask", "answer")
    return builder.set_entry("ask" if asks else "answer").compile()


class ChatSession:
    """A session of the workload that a graph does turns on."""

    def __init__(self, graph: CompiledGraph[Any], key: SessionKey) -> None:
        self.key = key
        self._graph = graph

    @classmethod
    async def begin(cls, store: Store, graph: CompiledGraph[Any], *, entries: int = 0) -> "ChatSession":
        session = await WarmSession.begin(store, entries=entries)
        await store.lanes.disarm(session.lane)
        return cls(graph, session.key)

    async def turn(self, items: Messages) -> None:
        """Do one turn: the caller gives the first message, the node adds the second."""
        asked, replied = items
        await self._graph.invoke({"messages": [asked], "reply": replied}, session_id=self.key.session_id)


async def fsyncs(scene: Scene) -> float:
    """Return the mean number of syncs of a turn, checkpoints of the WAL included."""
    return await syncs_per_turn(scene, lambda store: ChatSession.begin(store, chat(store)))


async def against_store(scene: Scene) -> float:
    """Return the CPU time of a graph's turn against a commit of the same messages and document."""
    async with (
        open_store(scene.url("graph"), synchronous="OFF") as graph_store,
        open_store(scene.url("store"), synchronous="OFF") as bare_store,
    ):
        graph = chat(graph_store)

        async def ours() -> float:
            return await _warm_time(await ChatSession.begin(graph_store, graph), _BATCH)

        async def bare() -> float:
            return await _warm_time(await WarmSession.begin(bare_store), _BATCH)

        return await scene.ratio(ours, bare, rounds=_ROUNDS)


async def history(scene: Scene) -> float:
    """Return a turn at 10,000 messages against one at 10."""
    async with (
        open_store(scene.url("long"), synchronous="OFF") as long_store,
        open_store(scene.url("short"), synchronous="OFF") as short_store,
    ):
        long, short = chat(long_store), chat(short_store)
        full = (await ChatSession.begin(long_store, long, entries=10_000)).key

        async def at_ten_thousand() -> float:
            await long_store.fork(full, forked := a_key())
            return await _warm_time(ChatSession(long, forked), _BATCH)

        async def at_ten() -> float:
            # A session that has grown is not at ten any more: each does a few turns.
            fresh = [await ChatSession.begin(short_store, short, entries=10) for _ in range(_BATCH // _TURNS_EACH)]
            return sum([await _warm_time(session, _TURNS_EACH) for session in fresh]) / len(fresh)

        return await scene.ratio(at_ten_thousand, at_ten, rounds=_ROUNDS)


async def round_trip(scene: Scene) -> float:
    """Return the median number of syncs of a turn that is suspended and resumed."""
    syncs = []
    with counting_syncs() as counter:
        async with open_store(scene.url(), vfs=counter.name) as store:
            graph = chat(store, asks=True)
            session_id = (await ChatSession.begin(store, graph)).key.session_id
            for _ in scene.rounds(_ROUND_TRIPS):
                before = counter.syncs
                asked, replied = messages()
                paused = await graph.run({"messages": [asked]}, session_id=session_id)
                payload = {"reply": replied}
                answered = await graph.run(resume_invocation=paused.invocation_id, signal_payload=payload)
                assert (paused.suspended, answered.completed) == (True, True)
                syncs.append(counter.syncs - before)
    scene.note(f"on average {mean(syncs):g}, with those of the WAL's checkpoints")
    return median(syncs)


async def early_against_langgraph(scene: Scene) -> float:
    """Return the time of a turn around the 10th against LangGraph's, as a part of it."""
    return (await _conversations(scene, turns=15, rounds=20)).late


async def late_against_langgraph(scene: Scene) -> float:
    """Return the time of a turn before the 500th against LangGraph's, as a part of it."""
    _told[:] = [await _conversations(scene, turns=500, rounds=3)]
    return _told[0].late


async def bytes_against_langgraph(scene: Scene) -> float:
    """Return the bytes on disk after 500 turns, all closed, against LangGraph's, as a part of them."""
    told = _told or [await _conversations(scene, turns=500, rounds=1)]
    return told[0].size


class Conversation(NamedTuple):
    """What a conversation costs: the median of its last ten turns, in seconds, and its files when all is closed."""

    late: float
    size: float


_told: list[Conversation] = []
"""The long conversations, which are held once for both of their figures."""


async def _conversations(scene: Scene, *, turns: int, rounds: int) -> Conversation:
    """Hold conversations in alternation, durable to the disk, and return ours as a part of LangGraph's."""
    ours: list[Conversation] = []
    theirs: list[Conversation] = []
    for _ in scene.rounds(rounds):
        for converse, held in ((_our_conversation, ours), (_their_conversation, theirs)):
            folder = scene.folder / "conversation"
            folder.mkdir()
            spent = await converse(folder, turns)
            held.append(Conversation(median(spent[-10:]), sum(file.stat().st_size for file in folder.iterdir())))
            rmtree(folder)
            # What one leaves for the disk to do is not to slow down the other.
            os.sync()
    our, their = (Conversation(*map(median, zip(*held, strict=True))) for held in (ours, theirs))
    scene.note(f"{our.late * 1e3:.2f} ms against {their.late * 1e3:.2f} ms, {rounds} rounds")
    scene.note(f"{our.size:,.0f} bytes against {their.size:,.0f}")
    return Conversation(our.late / their.late, our.size / their.size)


async def _our_conversation(folder: Path, turns: int) -> list[float]:
    async with open_store(f"sqlite:///{folder}/store.db") as store:
        return await _seconds(ChatSession(chat(store), a_key()).turn, turns)


async def _their_conversation(folder: Path, turns: int) -> list[float]:
    """Hold the same conversation with LangGraph, its messages kept as its guides do it, all settings its defaults."""
    from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END as THEIR_END
    from langgraph.graph import START, StateGraph
    from langgraph.graph.message import add_messages
    from typing_extensions import TypedDict

    class Theirs(TypedDict, total=False):
        messages: Annotated[list[AnyMessage], add_messages]
        turns: int
        reply: str

    async def their_answer(state: Theirs) -> dict[str, Any]:
        return {"messages": [AIMessage(state["reply"])], "turns": state.get("turns", 0) + 1}

    builder: Any = StateGraph(Theirs)
    builder.add_node("answer", their_answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", THEIR_END)
    config = {"configurable": {"thread_id": a_key().session_id}}
    async with AsyncSqliteSaver.from_conn_string(f"{folder}/store.db") as saver:
        graph = builder.compile(checkpointer=saver)

        async def turn(items: Messages) -> None:
            asked, replied = (item["content"] for item in items)
            await graph.ainvoke({"messages": [HumanMessage(asked)], "reply": replied}, config)

        return await _seconds(turn, turns)


async def _seconds(turn: Callable[[Messages], Awaitable[None]], turns: int) -> list[float]:
    seconds = []
    for _ in range(turns):
        items = messages()
        with Stopwatch(wall) as watch:
            await turn(items)
        seconds.append(watch.seconds)
    return seconds


async def _warm_time(session: ChatSession | WarmSession, turns: int) -> float:
    """Return the CPU time of a turn, after one that loads the session."""
    await session.turn(messages())
    work = [messages() for _ in range(turns)]
    with Stopwatch(cpu) as watch:
        for items in work:
            await session.turn(items)
    return watch.seconds / turns


MEASURES = (
    Measure(name="graph turn on a session, SQLite: fsyncs", unit="per turn", run=fsyncs),
    Measure(name="graph turn on a session, SQLite: CPU against the warm turn", unit="x", run=against_store),
    Measure(name="graph turn at 10,000 messages against at 10", unit="x", run=history),
    Measure(name="graph turn 10 against LangGraph's, SQLite: wall", unit="x", run=early_against_langgraph),
    Measure(name="graph turn 500 against LangGraph's, SQLite: wall", unit="x", run=late_against_langgraph),
    Measure(name="500 graph turns against LangGraph's: bytes", unit="x", run=bytes_against_langgraph),
    Measure(name="suspended and resumed graph turn, SQLite: fsyncs", unit="per turn", run=round_trip),
)
