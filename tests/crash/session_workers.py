"""What other processes do with sessions: `python -m tests.crash.session_workers JSON`.

Each line that comes in is one order, each line that goes out its result. As a `nursery` the process itself opens
nothing: it forks a child for every order, which opens the store, and may be killed by itself in the middle.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tenuto import Outcome, Store, open_store
from tenuto.model.run import RunStatus
from tenuto.store.backend import Backend, View
from tenuto.store.keeper import Keeper
from tests.crash.session_graphs import Plan, made
from tests.crash.workers import hear, say


def told(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return an outcome as what can be said in a line."""
    return {
        "outcome": outcome.outcome,
        "invocation": outcome.invocation_id,
        "state": outcome.state.model_dump() if outcome.state else None,
        "error": outcome.error.category if outcome.error else None,
        "message": outcome.error.message if outcome.error else None,
    }


async def run(store: Store, plan: Plan, initial: Any = None, **options: Any) -> Any:
    """Run the graph once."""
    return told(await made(plan, store).run(initial, **options))


async def talk(store: Store, plan: Plan, session: str, users: list[str], retry: bool = False) -> Any:
    """Send all these messages to one session at once; with `retry`, again whenever another was first."""
    graph = made(plan, store)

    async def one(user: str) -> list[str | None]:
        errors: list[str | None] = []
        while not errors or (retry and errors[-1] == "session_write_conflict"):
            outcome = await graph.run({"messages": [user]}, session_id=session)
            errors.append(outcome.error.category if outcome.error else None)
        return errors

    return await asyncio.gather(*(one(user) for user in users))


async def turn(store: Store, plan: Plan, invocation: str, session: str, kill: int = 0, when: str = "") -> Any:
    """Run a turn to its pause and on to its end, going on from whatever is there of it; dies at the call named."""
    counting = Counting(store.backend, kill, when)
    store.backend = counting
    graph = made(plan, store)
    begun = {"initial": {"messages": ["user"]}, "session_id": session}
    payload = {"approved": True}
    while True:
        runs = await store.runs.of_invocation(invocation)
        while runs and (later := await _resumed_as(store, runs[-1].origin_id, invocation)):
            invocation, runs = later, await store.runs.of_invocation(later)
        if not runs:
            outcome = await graph.run(invocation_id=invocation, **begun)  # type: ignore[arg-type]
        elif runs[-1].status == RunStatus.COMPLETED:
            return {"calls": counting.calls}
        elif RunStatus.SUSPENDED in {each.status for each in runs[-2:]}:
            outcome = await graph.run(resume_invocation=invocation, signal_payload=payload)
        else:
            outcome = await graph.run(resume_invocation=invocation)
        if outcome.error is not None:
            return told(outcome)


async def _resumed_as(store: Store, origin: str, invocation: str) -> str | None:
    """Return the invocation that went on from this one's checkpoint, if there is one."""
    runs = await store.runs.of_session((await store.runs.of_invocation(invocation))[-1].key)
    chain = [each.invocation_id for each in reversed(runs) if each.origin_id == origin]
    return chain[-1] if chain and chain[-1] != invocation else None


VERBS: dict[str, Callable[..., Awaitable[Any]]] = {verb.__name__: verb for verb in (run, talk, turn)}


class Counting:
    """A backend that counts its calls, and kills the process before or after one of them."""

    def __init__(self, inner: Backend, kill: int, when: str) -> None:
        self.calls = 0
        self._inner = inner
        self._kill = kill
        self._when = when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        number = self._begin()
        result = await self._inner.transact(*arguments, **options)
        self._end(number)
        return result

    @asynccontextmanager
    async def view(self) -> AsyncIterator[View]:
        number = self._begin()
        async with self._inner.view() as view:
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


async def serve(address: str, options: dict[str, Any], plan: Plan, keeper: dict[str, float]) -> None:
    """Open the store and carry out one order after the other."""
    async with open_store(address, **options) as store:
        if keeper:
            store.keeper = Keeper(store, **keeper)
        say("ready")
        while line := await hear():
            say(await _carried_out(store, plan, json.loads(line)))


async def _carried_out(store: Store, plan: Plan, order: dict[str, Any]) -> Any:
    changed = replace(plan, **order.get("plan", {}))
    return await VERBS[order["verb"]](store, changed, **order["arguments"])


async def _one(address: str, options: dict[str, Any], plan: Plan, order: dict[str, Any]) -> None:
    async with open_store(address, **options) as store:
        say(await _carried_out(store, plan, order))


def nurse(address: str, options: dict[str, Any], plan: Plan) -> None:
    """Fork a child per order, one at a time, and say how it ended after what it said itself."""
    say("ready")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                asyncio.run(_one(address, options, plan, json.loads(line)))
                code = 0
            except BaseException as error:
                say({"raised": repr(error)})
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        say({"ended": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    shared = (task["address"], task["options"], Plan(**task["plan"]))
    if task["nursery"]:
        import asyncpg  # noqa: F401 - once, and not in every child

        nurse(*shared)
    else:
        asyncio.run(serve(*shared, task["keeper"]))
