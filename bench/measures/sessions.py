"""A graph's turn on a session: against the store's own turn, on more history, suspended and resumed."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from bench.counters import counting_syncs
from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.workload import Messages, WarmSession, a_key, document, messages
from tenuto import Store, open_store
from tenuto.graph.builder import END, GraphBuilder
from tenuto.graph.compiled import CompiledGraph
from tenuto.graph.reducers import append
from tenuto.graph.state import State
from tenuto.session.state import SessionState

_TURNS = 500
_BATCH = 100
_TURNS_EACH = 10
_ROUNDS = 25


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


def chat(store: Store) -> CompiledGraph[Chat]:
    """Return a graph of one node that keeps its sessions in this store, with the default concurrency."""
    builder = GraphBuilder(Chat).with_session_store(store, Memory)
    return builder.add_node("answer", answer).add_edge("answer", END).set_entry("answer").compile()


class ChatSession:
    """A session of the workload that a graph does turns on."""

    def __init__(self, graph: CompiledGraph[Any], key: str) -> None:
        self._graph = graph
        self._key = key

    @classmethod
    async def begin(cls, store: Store, graph: CompiledGraph[Any], *, entries: int = 0) -> "ChatSession":
        session = await WarmSession.begin(store, entries=entries)
        await store.lanes.disarm(session.lane)
        return cls(graph, session.key.session_id)

    async def turn(self, items: Messages) -> None:
        """Do one turn: the caller gives the first message, the node adds the second."""
        asked, replied = items
        await self._graph.invoke({"messages": [asked], "reply": replied}, session_id=self._key)


async def fsyncs(scene: Scene) -> float:
    """Return the mean number of syncs of a turn, checkpoints of the WAL included."""
    with counting_syncs() as counter:
        async with open_store(scene.url(), vfs=counter.name) as store:
            session = await ChatSession.begin(store, chat(store))
            await session.turn(messages())
            before = counter.syncs
            for _ in scene.rounds(_TURNS):
                await session.turn(messages())
            return (counter.syncs - before) / _TURNS


async def against_store(scene: Scene) -> float:
    """Return the CPU time of a graph's turn against a commit of the same messages and document."""
    async with (
        open_store(scene.url("graph"), synchronous="OFF") as graph_store,
        open_store(scene.url("store"), synchronous="OFF") as bare_store,
    ):
        graph = chat(graph_store)

        async def ours() -> float:
            session = await ChatSession.begin(graph_store, graph)
            await session.turn(messages())
            return await _time(session.turn, _BATCH)

        async def bare() -> float:
            session = await WarmSession.begin(bare_store)
            await session.turn(messages())
            return await _time(session.turn, _BATCH)

        return await scene.ratio(ours, bare, rounds=_ROUNDS)


async def history(scene: Scene) -> float:
    """Return a turn at 10,000 messages against one at 10."""
    async with (
        open_store(scene.url("long"), synchronous="OFF") as long_store,
        open_store(scene.url("short"), synchronous="OFF") as short_store,
    ):
        graph = chat(short_store)
        long = await ChatSession.begin(long_store, chat(long_store), entries=10_000)

        async def at_ten() -> float:
            # A session that has grown is not at ten any more: each does a few turns, after one that warms it.
            fresh = [await ChatSession.begin(short_store, graph, entries=8) for _ in range(_BATCH // _TURNS_EACH)]
            for session in fresh:
                await session.turn(messages())
            return sum([await _time(session.turn, _TURNS_EACH) for session in fresh]) / len(fresh)

        async def at_ten_thousand() -> float:
            return await _time(long.turn, _BATCH)

        return await scene.ratio(at_ten_thousand, at_ten, rounds=_ROUNDS)


async def _time(turn: Callable[[Messages], Awaitable[Any]], count: int) -> float:
    work = [messages() for _ in range(count)]
    with Stopwatch(cpu) as watch:
        for items in work:
            await turn(items)
    return watch.seconds / count


MEASURES = (
    Measure(name="graph turn on a session, SQLite: fsyncs", unit="per turn", bar=1.05, run=fsyncs),
    Measure(name="graph turn on a session, SQLite: CPU against the warm turn", unit="x", bar=1.6, run=against_store),
    Measure(name="graph turn at 10,000 messages against at 10", unit="x", bar=1.2, run=history),
)
