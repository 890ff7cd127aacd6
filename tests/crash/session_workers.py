"""What other processes do with sessions: one order comes in, its result goes out."""

import asyncio
import os
import signal
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from tenuto import Store, open_store
from tenuto.errors import AnswerRefused
from tenuto.graph import GraphOutcome
from tenuto.model.run import Run, RunStatus
from tenuto.runtime.runtime import SessionRuntime
from tenuto.store.backend import Backend, View
from tenuto.store.keeper import Keeper
from tests.crash.session_graphs import Plan, made
from tests.runtime.runtimes import opened


def told(outcome: GraphOutcome[Any]) -> dict[str, Any]:
    """Return an outcome as what can be said in a line."""
    return {
        "outcome": outcome.status,
        "invocation": outcome.invocation_id,
        "state": outcome.state.model_dump() if outcome.state else None,
        "wait": outcome.wait.wait_id if outcome.wait else None,
        "error": outcome.error.category if outcome.error else None,
        "message": outcome.error.message if outcome.error else None,
    }


async def run(store: Store, plan: Plan, initial: Any = None, **options: Any) -> Any:
    """Run the graph once."""
    return told(await made(plan, store).run(initial, **options))


async def resume(store: Store, plan: Plan, wait: str, payload: Any) -> Any:
    """Resume what waits; a refusal is told by its category."""
    try:
        return told(await made(plan, store).resume(wait, payload))
    except AnswerRefused as refused:
        return {"error": refused.category}


async def talk(
    store: Store, plan: Plan, session: str, users: list[str], retry: bool = False, apart: float = 0.0
) -> Any:
    """Send these messages to one session, at once or a little `apart`; with `retry`, again if another was first."""
    graph = made(plan, store)

    async def one(number: int, user: str) -> list[str | None]:
        await asyncio.sleep(number * apart)
        errors: list[str | None] = []
        while not errors or (retry and errors[-1] == "session_write_conflict"):
            outcome = await graph.run({"messages": [user]}, session_id=session)
            errors.append(outcome.error.category if outcome.error else None)
        return errors

    return await asyncio.gather(*(one(number, user) for number, user in enumerate(users)))


async def turn(store: Store, plan: Plan, invocation: str, session: str, kill: int = 0, when: str = "") -> Any:
    """Run a turn to its pause and on to its end, going on from whatever is there of it; dies at the call named."""
    counting = Counting(store.backend, kill, when)
    store.backend = counting
    try:
        return await _turn(store, plan, invocation, session) or {"calls": counting.calls}
    finally:
        store.backend = counting.inner


def _yes(plan: Plan) -> dict[str, bool]:
    """Return what a plan's graph is to be answered."""
    return {"granted" if plan.graph == "nested" else "approved": True}


async def _turn(store: Store, plan: Plan, invocation: str, session: str) -> Any:
    graph = made(plan, store)
    while True:
        runs = await store.runs.of_invocation(invocation)
        while runs and (later := await _resumed_as(store, runs[-1])):
            invocation, runs = later, await store.runs.of_invocation(later)
        if not runs:
            outcome = await graph.run({"messages": ["user"]}, invocation_id=invocation, session_id=session)
        elif runs[-1].status == RunStatus.COMPLETED:
            return None
        elif RunStatus.SUSPENDED in {each.status for each in runs[-2:]}:
            outcome = await graph.run(resume_invocation=invocation, signal_payload=_yes(plan))
        elif plan.checkpoints:
            outcome = await graph.run(resume_invocation=invocation)
        else:
            invocation += " again"  # nothing is left of it to go on from
            continue
        if outcome.error is not None:
            return told(outcome)


async def _resumed_as(store: Store, run: Run) -> str | None:
    """Return the invocation that went on last from a checkpoint of this one, if there is one."""
    runs = await store.runs.of_session(run.key)
    last = next(each.invocation_id for each in runs if each.origin_id == run.origin_id)
    return last if last != run.invocation_id else None


async def _runtime(store: Store, plan: Plan) -> SessionRuntime:
    """Return an open runtime whose one program is the graph."""
    graph = made(plan, store)
    program = graph.as_program(name="graph", entry=lambda message: message["content"], checkpoints=plan.checkpoints)
    return await opened(store, [program])


async def send(store: Store, plan: Plan, session: str, text: str = "user") -> Any:
    """Send a message to a session, which is made if it is not there, as a turn of the runtime."""
    runtime = await _runtime(store, plan)
    if not await store.exists(session):
        await runtime.create("graph", session_id=session)
    outcome = await runtime.send(session, text, key=f"message {text}", when_busy="queue")
    return {"status": str(outcome.status), "waits": [wait.wait_id for wait in outcome.waits], "error": outcome.error}


async def answer(store: Store, plan: Plan, wait: str, value: Any) -> Any:
    """Answer a wait, and go on here."""
    answered = await (await _runtime(store, plan)).answer(wait, value)
    return str(answered.outcome.status) if answered.outcome else None


async def drain(store: Store, plan: Plan) -> Any:
    """Do whatever is due in any session."""
    await (await _runtime(store, plan)).drain()
    return "drained"


async def converse(store: Store, plan: Plan, session: str, kill: int = 0, when: str = "") -> Any:
    """Have a turn of the runtime from its message to its end, whatever is there of it; dies at the call named."""
    counting = Counting(store.backend, kill, when)
    store.backend = counting
    try:
        sent = await send(store, plan, session)
        while sent["status"] == "suspended" and sent["waits"]:
            for wait in sent["waits"]:
                await answer(store, plan, wait, _yes(plan))
            sent = await send(store, plan, session)
        await drain(store, plan)
        return {"calls": counting.calls}
    finally:
        store.backend = counting.inner


VERBS: dict[str, Callable[..., Awaitable[Any]]] = {
    verb.__name__: verb for verb in (run, resume, talk, turn, send, answer, drain, converse)
}


class Counting:
    """A backend that counts its calls, and kills the process before or after one of them."""

    def __init__(self, inner: Backend, kill: int, when: str) -> None:
        self.calls = 0
        self.inner = inner
        self._kill = kill
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        number = self._begin()
        result = await self.inner.transact(*arguments, **options)
        self._end(number)
        return result

    async def read(self, name: str, *params: object) -> Any:
        async with self.view(at_one_instant=False) as view:
            return await view.read(name, *params)

    @asynccontextmanager
    async def view(self, *, at_one_instant: bool = True) -> AsyncIterator[View]:
        number = self._begin()
        async with self.inner.view(at_one_instant=at_one_instant) as view:
            yield view
        self._end(number)

    def _begin(self) -> int:
        self.calls += 1
        if (self.calls, "before") == (self._kill, self._when):
            os.kill(os.getpid(), signal.SIGKILL)
        return self.calls

    def _end(self, number: int) -> None:
        if (number, "after") == (self._kill, self._when):
            os.kill(os.getpid(), signal.SIGKILL)


def work(line: Connection, home: str, address: str, options: dict[str, Any], plan: Plan, keeper: Any) -> None:
    """Be a process that carries out orders until the line is closed."""
    warnings.simplefilter("error")
    os.chdir(home)
    asyncio.run(_serve(line, address, options, plan, keeper))


async def _serve(line: Connection, address: str, options: dict[str, Any], plan: Plan, keeper: Any) -> None:
    async with open_store(address, **options) as store:
        if keeper:
            store.keeper = Keeper(store, **keeper)
        line.send("ready")
        while True:
            try:
                verb, changes, arguments = await asyncio.to_thread(line.recv)
            except EOFError:
                return
            line.send(await VERBS[verb](store, replace(plan, **changes), **arguments))
