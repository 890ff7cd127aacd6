"""A turn with a model that is down, killed after every commit: one branch, one payment, and the tokens really spent."""

import asyncio
from typing import Any
from urllib.parse import urlparse

import pytest

from tenuto.model.run import RunStatus
from tenuto.model.session import SessionKey
from tenuto.runtime.runtime import SessionRuntime
from tenuto.testing.provider import Answer, Provider, provider
from tests.crash.fallback import GO, SAID, YES, script, take
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import Moment, Probe, Probed, World, programs
from tests.runtime.runtimes import contents, opened
from tests.sampling import ALL, EIGHTH, MATRIX, sample


def provider_of_both() -> Provider:
    asked: dict[tuple[str, str], int] = {}

    def answer(body: Any) -> Any:
        status, text = script(body, asked)
        return text if status == 200 else Answer(status=status, error="It is down.")

    return provider(answer)


async def finished(runtime: SessionRuntime, world: World, session: str) -> None:
    """Bring a turn to its end: whoever sent the message sends it again, and somebody answers what is asked."""
    async with asyncio.timeout(60):
        while True:
            await runtime.drain()
            await runtime.send(session, GO, key=f"go {session}", when_busy="queue")
            for wait in await runtime.session(session).waits():
                if wait.kind == "in_doubt":
                    done = "pay" in world.acts(session)
                    truth = {"outcome": "done", "result": "paid"} if done else {"outcome": "retry"}
                    await runtime.answer(wait, truth)
                else:
                    await runtime.answer(wait, YES)
            run = await runtime.store.runs.current(SessionKey(session))
            if run is not None and run.status is RunStatus.COMPLETED:
                return
            await asyncio.sleep(0.02)  # a lane nobody could give back has to lapse


async def check(runtime: SessionRuntime, world: World, server: Provider, name: str, session: str) -> None:
    messages = await runtime.session(session).messages()
    assert contents(messages, "assistant") == SAID[name], session
    assert world.acts(session) == ["pay"], session
    asked = [each["body"]["model"] for each in server.requests if each["body"]["user"] == session]
    usage = await runtime.session(session).usage()
    counted = {model: totals.calls for model, totals in usage.by_model.items()}
    assert counted == {model: asked.count(model) for model in set(asked)}, session
    assert usage.total.input == 10 * len(asked), session


@MATRIX
@pytest.mark.parametrize("every", [EIGHTH, pytest.param(ALL, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", ["fallback", "outage"])
async def test_killed_after_any_commit_a_turn_takes_one_branch_and_counts_what_the_provider_did(
    database: Database, name: str, every: int
) -> None:
    with provider_of_both() as server:
        port = urlparse(server.url).port or 0
        async with database.open() as store:
            world = World(folder=database.folder, port=port)
            runtime = await opened(store, programs(world))
            world.probe = probe = Probe()
            inner, store.backend = store.backend, Probed(store.backend, probe)
            await runtime.create(name, session_id=f"{name} unbroken")
            assert (await take(runtime, name, f"{name} unbroken")).completed
            store.backend, world.probe = inner, Probe()
            await check(runtime, world, server, name, f"{name} unbroken")
            commits = [each for each in probe.moments if each.name.startswith("decide_") and each.when == "after"]
            assert len(commits) >= 7
            for moment in sample(commits, every, f"{database.name} {name}"):
                session = f"{name} {moment.name} {moment.nth}"
                await runtime.create(name, session_id=session)
                async with mates(Colleague(database, port=port)) as (dying,):
                    died = await dying.do("taken", name=name, session=session, moment=Moment(*moment)) is None
                assert died, f"{session}: nothing was killed"
                await finished(runtime, world, session)
                await check(runtime, world, server, name, session)
