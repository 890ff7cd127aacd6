"""A small history, always the same, that meets everything the audit judges: for the audit's own tests."""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tenuto import SessionRuntime
from tenuto.testing.faults import FaultyBackend
from tests.chaos.audit.evidence import Evidence
from tests.chaos.audit.judge import judge
from tests.chaos.audit.violation import Violation
from tests.chaos.bugs import planted
from tests.chaos.client import Performer
from tests.chaos.closing import Closing
from tests.chaos.ledger import Ledger, Note, read_notes
from tests.chaos.process import opened
from tests.chaos.programs import World, programs
from tests.chaos.tables import Site, read_tables

_DRAIN = 1.0


async def play(folder: Path, bug: str | None) -> list[Violation]:
    """Play the history on a file of its own, with a bug or without, and return what the audit finds."""
    path = f"{folder}/scripted.db"
    ledger = Ledger(folder / "ledger" / "client-0-1.jsonl")
    with planted(bug):
        async with opened(f"sqlite:///{path}", {}) as store, opened(f"sqlite:///{path}", {}) as other:
            store.backend = faults = Meddled(store.backend)
            async with (
                SessionRuntime(store, programs(World(folder))) as runtime,
                SessionRuntime(other, programs(World(Path()))) as beside,
            ):
                await _Script(runtime, beside, faults, ledger).play()
                await runtime.drain()
                left = await Closing(Site(path=path), runtime, ledger, []).drain(_DRAIN, runtime.drain)
    acts = read_notes([folder / "acts"]) if (folder / "acts").exists() else []
    notes = read_notes((folder / "ledger").glob("*.jsonl"))
    return judge(Evidence.of(await read_tables(Site(path=path)), notes, acts), left)


class Meddled(FaultyBackend):
    """A backend that lets somebody do something just before a commit."""

    before_commit: Callable[[], Awaitable[Any]] | None = None

    async def transact(self, read: Any, decide: Any, lock: Any, **options: Any) -> Any:
        meddle, named = self.before_commit, getattr(decide, "func", decide).__name__
        if meddle is not None and named == "decide_commit":
            self.before_commit = None
            await meddle()
        return await super().transact(read, decide, lock, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Script:
    def __init__(self, runtime: SessionRuntime, other: SessionRuntime, faults: Meddled, ledger: Ledger) -> None:
        self._runtime = runtime
        self._other = Performer("other", other, ledger)
        self._faults = faults
        self._performer = Performer("client-0-1", runtime, ledger)

    async def play(self) -> None:
        """Play it, act by act."""
        for name in ("agent", "chief", "clerk", "talker"):
            await self._runtime.create(name, session_id=f"steady-{name}")
        await self._say("steady-agent", "a1", "pay+look flaky")
        await self._say("steady-chief", "c1")
        await self._runtime.drain()
        for key in ("t1", "t2", "t3"):
            await self._do(_message("steady-talker", key, verb="enqueue", boundary=None, delay=None))
        await self._runtime.drain()
        # Somebody queues a message between another's look and its first commit.
        late = _message("steady-clerk", "k1", verb="enqueue", boundary=None, delay=None)
        self._faults.before_commit = lambda: self._other.do(late, cut=None)
        await self._say("steady-clerk", "k2")
        await self._runtime.drain()
        # The reply to an enqueue is lost, and it is repeated under its key.
        self._faults.lose_reply()
        again = _message("steady-talker", "t4", verb="enqueue", boundary=None, delay=None)
        await self._performer.repeat(again, random.Random(0))
        await self._runtime.drain()
        # Every reply is lost once: those that can be asked for are, those that cannot are sent again.
        for nth in range(1, 6):
            self._faults.lose_reply(nth)
            await self._performer.repeat(_message("steady-agent", f"r{nth}", words="pay"), random.Random(0))
            self._faults.heal()
            await self._runtime.drain()

    async def _say(self, session: str, key: str, words: str = "") -> None:
        await self._do(_message(session, key, words=words))

    async def _do(self, facts: Note) -> None:
        await self._performer.do(facts, cut=None)


def _message(session: str, key: str, *, verb: str = "send", words: str = "", **options: Any) -> Note:
    facts = {"deed": "message", "session": session, "key": key, "verb": verb, "text": f"{key} {words}".strip()}
    return {**facts, "when_busy": "queue", "repeats": True, **options}
