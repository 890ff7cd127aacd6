"""Programs that other processes run in sessions, the outside world they act on, and what those processes can do."""

import asyncio
import json
import os
import random
import signal
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from tenuto import Store, open_store
from tenuto.errors import TenutoError
from tenuto.messages import ToolCall
from tenuto.model.run import RunStatus
from tenuto.runtime.calls.effect_call import call_effect, start_call
from tenuto.runtime.program.program import Program, program
from tenuto.runtime.program.tool import Tool
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.runtime import SessionRuntime
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.turn.effect_journal import Place
from tenuto.store.backend import Backend, View
from tenuto.store.keeper import Keeper
from tenuto.testing.agent import Request, Script, ScriptedAgent, calls
from tests.crash.fallback import fallback_programs, take
from tests.runtime.runtimes import opened
from tests.runtime.seams import advance, deliver_due, leave_no_trace_of_the_host

TOOLS = ("look", "pay", "note")
SHIP, SEAL = "ship", "seal"
APPROVED = {"desk": (SHIP,), "clerk": (SHIP, SEAL)}
"""The calls that need approval, by program: of the clerk's, each is made when its own answer comes."""

SAID = ("let", "me", "see", "all", "done")
"""What the reference turn says, chunk by chunk."""


class Moment(NamedTuple):
    """A moment of a call: the n-th of that name, and whether before, inside or after it."""

    name: str
    nth: int
    when: str


class Call(NamedTuple):
    """A call to the store or to the outside: the n-th of that name."""

    name: str
    nth: int


class Probe:
    """Counts the calls of a process to its store and to the outside, and kills it before, inside or after one."""

    def __init__(self, dies_at: Moment | None = None) -> None:
        self.trace: list[str] = []
        self.moments: list[Moment] = []
        self._dies_at = dies_at

    def begin(self, name: str) -> Call:
        """Count a call that is about to be made."""
        self.trace.append(name)
        call = Call(name, self.trace.count(name))
        self._reach(Moment(*call, "before"))
        return call

    def inside(self, call: Call) -> None:
        """Note that a call is half done: a transaction has decided and not written, a side effect has happened."""
        self._reach(Moment(*call, "inside"))

    def end(self, call: Call) -> None:
        """Note that a call has come back."""
        self._reach(Moment(*call, "after"))

    def _reach(self, moment: Moment) -> None:
        if moment == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if moment not in self.moments:  # a transaction may decide again
            self.moments.append(moment)


class Probed:
    """A backend that tells a probe of every call; looking for stops is left out, since time decides when that is."""

    def __init__(self, inner: Backend, probe: Probe) -> None:
        self.inner = inner
        self.probe = probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def transact(self, read: Any, decide: Any, lock: Any, **options: Any) -> Any:
        call = self.probe.begin(decide.func.__name__)

        def deciding(found: Any) -> Any:
            plan = decide(found)
            self.probe.inside(call)
            return plan

        result = await self.inner.transact(read, deciding, lock, **options)
        self.probe.end(call)
        return result

    async def write(self, name: str, *params: object) -> Any:
        call = self.probe.begin(name)
        rows = await self.inner.write(name, *params)
        self.probe.end(call)
        return rows

    async def glance(self, name: str, *params: object) -> Any:
        call = self.probe.begin(name)
        rows = await self.inner.glance(name, *params)
        self.probe.end(call)
        return rows

    async def read(self, name: str, *params: object) -> Any:
        async with self.view(at_one_instant=False) as view:
            return await view.read(name, *params)

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator[View]:
        async with self.inner.view(at_one_instant=at_one_instant) as view:
            yield _ProbedView(view, self.probe)


class _ProbedView:
    def __init__(self, inner: View, probe: Probe) -> None:
        self._inner = inner
        self._probe = probe

    async def read(self, name: str, *params: object) -> Any:
        if name == "stops_of_runs":
            return await self._inner.read(name, *params)
        call = self._probe.begin(name)
        rows = await self._inner.read(name, *params)
        self._probe.end(call)
        return rows


@dataclass(slots=True, kw_only=True)
class World:
    """The outside as one process sees it: a file in which everything done is counted, and a server to be asked."""

    folder: Path
    port: int = 0
    probe: Probe = field(default_factory=Probe)

    def act(self, session: str, name: str) -> None:
        """Do something that cannot be undone."""
        call = self.probe.begin(f"effect {name}")
        line = f"{session}\t{name}\n".encode()
        file = os.open(self.folder / "acts", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, line)
        finally:
            os.close(file)
        self.probe.inside(call)

    def acts(self, session: str) -> list[str]:
        """Return what was done for a session, by all processes, in order."""
        file = self.folder / "acts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.split("\t")[1] for line in lines if line.split("\t")[0] == session]

    async def ask(self, request: Any) -> Any:
        """Ask the server, and wait for what it says."""
        if not self.port:
            return "yes"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            return json.loads(await reader.readline())
        finally:
            writer.close()


def programs(world: World) -> list[Program[Any]]:
    """Return every program the tests know."""
    return [
        _desk(world, "desk"),
        _desk(world, "clerk"),
        _chat(world),
        _teller(world),
        _caller(world),
        waiter,
        *fallback_programs(world),
    ]


def _desk(world: World, name: str) -> Program[Any]:
    """The reference turn: a model call, a batch of tools some of which need approval, and another model call."""
    names = (*TOOLS, *APPROVED[name])
    wanted = [(each, each, {"about": each}) for each in names]
    script = Script(calls(*wanted, content="let me see"), "all done")

    class Desk(ScriptedAgent):
        async def _ask(self, turn: Turn) -> Any:
            world.act(turn.session_id, "model")
            return await ScriptedAgent._ask(self, turn)

    def answered(request: Request) -> Any:
        return {**script(request), "usage": {"input": 3, "output": 5}}

    def tool(called: str) -> Tool:
        async def run(turn: Turn, _: Any) -> Any:
            world.act(turn.session_id, called)
            return {"did": called}

        return Tool(name=called, run=run, idempotent=called == "look", needs_approval=called in APPROVED[name])

    return Desk(model=answered, tools=[tool(each) for each in names], name=name, stream=True)


def _chat(world: World) -> Program[Any]:
    @program
    async def chat(turn: Turn) -> None:
        """Ask the outside about the message, and reply."""
        await world.ask([turn.text, turn.attempt])
        turn.append(f"re: {turn.text}")

    return chat


STORY, LINES = 4, 20


def _teller(world: World) -> Program[Any]:
    @program
    async def teller(turn: Turn) -> None:
        """Tell a story in steps, each of them line by line; each line says which attempt tells it."""
        async for _ in turn.steps():
            told = sum(message["role"] == "assistant" for message in turn.messages)
            if told == STORY:
                return
            for line in range(LINES):
                turn.emit({"data": [told, line, turn.attempt]})
                await asyncio.sleep(0.002)
                await world.ask([told, line]) if line == LINES // 2 else None
            turn.append(f"part {told}")

    return teller


def _caller(world: World) -> Program[Any]:
    @program
    async def caller(turn: Turn) -> None:
        """Put a call on record, ask the outside, and only then make it, or, asked for that, another one of a model."""
        kind, context, place = turn.text, context_of(turn), Place("", turn.step, "pay")
        if kind == "tool" and not turn.open_calls:
            wanted: ToolCall = {"id": "pay", "name": "pay", "arguments": {}}
            turn.append({"role": "assistant", "content": "", "tool_calls": [wanted]})
            start_call(context, "pay", {}, idempotent=True)
            await turn.save()
        await world.ask([kind, turn.attempt])

        async def call() -> str:
            world.act(turn.session_id, f"{kind} {turn.attempt}")
            return "done"

        def record(result: Any, _: Any) -> None:
            if kind == "tool":
                turn.append({"role": "tool", "tool_call_id": "pay", "content": result})

        call_id = "pay" if kind == "tool" else None
        with suppress(TenutoError):  # a program that takes no for an answer, and goes on
            await call_effect(context, place, call, {}, kind=kind, idempotent=True, call_id=call_id, record=record)
        await turn.effect("more", call, kind="model")

    return caller


@program
async def waiter(turn: Turn) -> None:
    """Wait for a signal and repeat it."""
    answer = await turn.wait("word")
    turn.append(str(answer))


def told(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return an outcome as what can be said in a line."""
    error: Any = outcome.error or {}
    return {"status": outcome.status, "text": outcome.text, "error": error.get("category")}


class Unfinished(Exception):
    """The reference turn did not go as it does unbroken."""


def program_of(way: str) -> str:
    """Return the program whose turn is gone through this way."""
    return "clerk" if way.endswith("apart") else "desk"


async def reference(runtime: SessionRuntime, session: str, way: str) -> None:
    """Go through the reference turn, from its message to its end, as a caller does or as a worker does."""
    here, approved = way.startswith("sent"), APPROVED[program_of(way)]
    if here:
        await runtime.send(session, "go", key=f"go {session}")
    else:
        await runtime.session(session).enqueue("go", key=f"go {session}")
        await advance(runtime, session)
    waits = await runtime.session(session).waits()
    if [wait.kind for wait in waits] != ["approval"] * len(approved):
        raise Unfinished
    for wait in waits:
        await runtime.answer(wait.wait_id, True, run=here)
        if not here:
            await deliver_due(runtime)
            await advance(runtime, session)
    ends = [RunStatus.COMPLETED, *[RunStatus.SUSPENDED] * len(approved)]
    if [run.status for run in await runtime.session(session).runs()] != ends:
        raise Unfinished


async def swept(runtime: SessionRuntime, world: World, session: str, way: str, moment: Moment) -> None:
    """Go through the reference turn, and die at the moment named."""
    world.probe = Probe(moment)
    runtime.store.backend = Probed(runtime.store.backend, world.probe)
    await reference(runtime, session, way)


async def taken(runtime: SessionRuntime, world: World, name: str, session: str, moment: Moment) -> None:
    """Go through a turn of a program that asks models, and die at the moment named."""
    world.probe = Probe(moment)
    runtime.store.backend = Probed(runtime.store.backend, world.probe)
    await take(runtime, name, session)


async def recovered(runtime: SessionRuntime, world: World, session: str, moment: Moment) -> None:
    """Go on with what another process left of a turn, and die at the moment named."""
    world.probe = Probe(moment)
    runtime.store.backend = Probed(runtime.store.backend, world.probe)
    await advance(runtime, session)


async def drained(runtime: SessionRuntime, world: World, moment: Moment) -> None:
    """Do everything that is due, in any session, and die at the moment named."""
    world.probe = Probe(moment)
    runtime.store.backend = Probed(runtime.store.backend, world.probe)
    await runtime.drain()


async def regenerated(runtime: SessionRuntime, world: World, session: str, key: str, moment: Moment) -> None:
    """Make the last turn again, and die at the moment named."""
    world.probe = Probe(moment)
    runtime.store.backend = Probed(runtime.store.backend, world.probe)
    await runtime.session(session).regenerate(key=key)


async def send(runtime: SessionRuntime, _: World, session: str, text: str, **options: Any) -> Any:
    """Say something to a session; a typed refusal is told by its category."""
    try:
        return told(await runtime.send(session, text, **options))
    except Exception as error:
        return {"refused": getattr(error, "category", repr(error))}


async def work(runtime: SessionRuntime, _: World, poll: float = 0.1) -> None:
    """Be a worker until the end of the process."""
    await runtime.worker(poll=poll).work()


async def drain(runtime: SessionRuntime, _: World) -> None:
    """Do everything that is due."""
    await runtime.drain()


async def answer_all(runtime: SessionRuntime, _: World, sessions: Sequence[str]) -> int:
    """Answer what each session waits for, all at once, and return how many turns came to their end."""

    async def one(session: str) -> bool:
        (wait,) = await runtime.session(session).waits()
        answered = await runtime.answer(wait.wait_id, f"word for {session}")
        return answered.outcome is not None and answered.outcome.status == "completed"

    return sum(await asyncio.gather(*(one(session) for session in sessions)))


async def follow(runtime: SessionRuntime, _: World, session: str, run: str, seed: int = 0, times: int = 0) -> Any:
    """Read a run's stream to its end and return it; before that, hang up so many times and begin anywhere again."""
    dice, seen = random.Random(seed), dict[int, Any]()
    for left in reversed(range(times + 1)):
        after = dice.randint(0, max(seen, default=0)) if left else 0
        patience = dice.randint(1, 15)
        async for frame in runtime.session(session).events(after=after, run=run):
            if frame.name:
                shown = [str(frame.type), frame.name, frame.run_id, frame.data, frame.attempt, frame.step]
                assert seen.setdefault(frame.seq, shown) == shown
            patience -= 1
            if left and not patience:
                break
    return [[seq, *seen[seq]] for seq in sorted(seen)]


VERBS: dict[str, Callable[..., Awaitable[Any]]] = {
    verb.__name__: verb
    for verb in (swept, taken, recovered, drained, regenerated, send, work, drain, answer_all, follow)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """What a process is told when it begins. Without `proof`, nobody can tell that it is gone."""

    address: str
    options: dict[str, Any]
    folder: Path
    home: str
    port: int = 0
    keeper: dict[str, float] | None = None
    proof: bool = True
    only: tuple[str, ...] = ()


def serve(line: Connection, post: Post) -> None:
    """Be a process that carries out orders until the line is closed."""
    warnings.simplefilter("error")
    os.chdir(post.home)
    if not post.proof:
        leave_no_trace_of_the_host()
    asyncio.run(_serve(line, post))


async def _serve(line: Connection, post: Post) -> None:
    world = World(folder=post.folder, port=post.port)
    async with open_store(post.address, **post.options) as store:
        if post.keeper:
            store.keeper = Keeper(store, **post.keeper)
        runtime = await opened(store, [each for each in programs(world) if not post.only or each.name in post.only])
        line.send("ready")
        while True:
            try:
                verb, arguments = await asyncio.to_thread(line.recv)
            except EOFError:
                return
            line.send(await VERBS[verb](runtime, world, **arguments))


async def runtime_of(store: Store, world: World, **options: Any) -> SessionRuntime:
    """Return an open runtime of this process that knows the programs."""
    return await opened(store, programs(world), **options)
