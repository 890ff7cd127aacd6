"""The deeds of a client, each from the facts it was noted with, so that any process can do it again."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tenuto import SessionRuntime
from tenuto.runtime.change.action import (
    ChangeModel,
    ClearSession,
    CompleteSession,
    ForkSession,
    ResumeSession,
    SuspendSession,
    WriteMetadata,
)
from tests.chaos.ledger import Note


class Deeds:
    """Does what a note says; returns what is to be noted of the result."""

    def __init__(self, name: str, runtime: SessionRuntime) -> None:
        self._name = name
        self._runtime = runtime

    async def do(self, facts: Note) -> Note:
        """Do what the facts say."""
        deed: Callable[[Note], Awaitable[Note]] = getattr(self, f"_{facts['deed']}")
        return await deed(facts)

    async def _message(self, facts: Note) -> Note:
        session, text, key = facts["session"], facts["text"], facts["key"]
        if facts["verb"] == "enqueue":
            options = {name: facts[name] for name in ("boundary", "delay")}
            return {"input": await self._runtime.session(session).enqueue(text, key, **options)}
        if facts["verb"] == "start":
            started = await self._runtime.session(session).start(text, key, facts["when_busy"])
            return {"input": started.input_id}
        outcome = await self._runtime.send(session, text, key, facts["when_busy"])
        return {"input": outcome.input_id, "run": outcome.run_id, "status": outcome.status, "said": outcome.text}

    async def _answer(self, facts: Note) -> Note:
        answered = await self._runtime.answer(facts["wait"], facts["value"], run=facts["go_on"])
        return {"continues": answered.continues}

    async def _look(self, facts: Note) -> Note:
        session = self._runtime.session(facts["session"])
        looks: tuple[Callable[[], Awaitable[Any]], ...] = (
            session.get,
            session.runs,
            session.usage,
            session.effects_in_doubt,
            session.info,
            session.messages,
        )
        await looks[facts["what"]]()
        return {}

    async def _stop(self, facts: Note) -> Note:
        reply = await self._runtime.session(facts["session"]).stop(kind=facts["kind"], reason="chaos")
        return {"answer": str(reply.answer)}

    async def _resume(self, facts: Note) -> Note:
        outcome = await self._runtime.session(facts["session"]).resume()
        return {"run": outcome.run_id, "status": outcome.status}

    async def _cancel_waits(self, facts: Note) -> Note:
        return {"count": await self._runtime.session(facts["session"]).abandon_waits()}

    async def _cancel(self, facts: Note) -> Note:
        told = await self._runtime.session(facts["session"]).cancel(facts["input"])
        return {"cancelled": {each: str(what) for each, what in told.items()}}

    async def _fork(self, facts: Note) -> Note:
        text = facts.get("text")
        if text is None:
            await self._runtime.session(facts["session"]).fork(at=facts["point"], session_id=facts["target"])
        else:
            forking = ForkSession(at=facts["point"], session_id=facts["target"], message=text, key=facts["target"])
            await self._runtime.execute(facts["session"], forking)
        return {}

    async def _rewind(self, facts: Note) -> Note:
        session = await self._runtime.session(facts["session"]).rewind(facts["to"])
        return {"messages": len(session.messages)}

    async def _clear(self, facts: Note) -> Note:
        await self._runtime.execute(facts["session"], ClearSession())
        return {}

    async def _delete(self, facts: Note) -> Note:
        report = await self._runtime.session(facts["session"]).delete(cascade=facts["cascade"])
        return {"sessions": report.sessions}

    async def _create(self, facts: Note) -> Note:
        seconds = facts["expires"]
        until = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
        await self._runtime.create(facts["program"], session_id=facts["session"], expires_at=until)
        return {}

    async def _action(self, facts: Note) -> Note:
        actions = (WriteMetadata({"by": self._name}), ChangeModel(self._name))
        await self._runtime.execute(facts["session"], actions[facts["what"]])
        return {}

    async def _close(self, facts: Note) -> Note:
        await self._runtime.execute(facts["session"], (SuspendSession(), CompleteSession())[facts["what"]])
        return {}

    async def _reopen(self, facts: Note) -> Note:
        await self._runtime.execute(facts["session"], ResumeSession())
        return {}

    async def _command(self, facts: Note) -> Note:
        action = WriteMetadata({"commanded": facts["key"]})
        return {"input": await self._runtime.session(facts["session"]).enqueue(action, facts["key"])}

    async def _upkeep(self, facts: Note) -> Note:
        upkeep = self._runtime.store.upkeep
        match facts["what"]:
            case 0:
                await upkeep.gc(grace=0)
            case 1:
                await upkeep.prune(chunks_older_than=1, receipts_older_than=10, outgoing_older_than=3)
            case 2:
                await upkeep.expire()
            case _:
                await upkeep.gc(grace=1)
        return {}

    async def _settle(self, facts: Note) -> Note:
        session = self._runtime.session(facts["session"])
        for effect in await session.effects_in_doubt():
            if facts["call"] in (effect.call_id, effect.effect_key):
                await session.settle_effect(effect, result="settled by hand")
        return {}
