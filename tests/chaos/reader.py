"""A reader: follows streams, hangs up, comes back with its cursor, and notes every frame it was shown."""

import asyncio
import random
from contextlib import aclosing
from hashlib import sha256
from pathlib import Path
from typing import Any

from tenuto import SessionRuntime
from tenuto.codec import encode
from tenuto.errors import TenutoError
from tests.chaos.ledger import FAULT, FRAME, UNTYPED, Ledger, read_notes

AT_ONCE = 2
"""How many streams a reader follows at once."""


def digest(data: Any) -> str:
    """Return what is noted of a frame's data."""
    return sha256(encode(data).encode()).hexdigest()[:16]


class Reader:
    """Follows one stream after the other; what a former one of its place saw last is where it begins."""

    def __init__(self, place: str, folder: Path, dice: random.Random, runtime: SessionRuntime, ledger: Ledger) -> None:
        self._dice = dice
        self._runtime = runtime
        self._ledger = ledger
        self._cursors: dict[str, int] = {}
        self._connections = 0
        for note in read_notes((folder / "ledger").glob(f"{place}-*.jsonl")):
            if note["note"] == FRAME:
                self._cursors[note["session"]] = note["seq"]

    async def work(self) -> None:
        """Read until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                sessions = [each.key.session_id for each in await self._runtime.list(limit=60)]
                if sessions:
                    await self._follow(self._dice.choice(sessions))
            except TenutoError:
                await asyncio.sleep(0.02)
            except Exception as error:
                self._ledger.write(UNTYPED, error=repr(error), where="reader")
                await asyncio.sleep(0.02)

    async def _follow(self, session: str) -> None:
        self._connections += 1
        connection, after = self._connections, self._cursors.get(session, 0)
        self._ledger.write("connect", session=session, connection=connection, after=after)
        try:
            async with (
                asyncio.timeout(self._dice.uniform(0.2, 1.2)),
                aclosing(self._runtime.session(session).events(after=after)) as frames,
            ):
                async for frame in frames:
                    self._note(session, connection, frame)
        except TimeoutError:
            self._ledger.write(FAULT, kind="hang-up")

    def _note(self, session: str, connection: int, frame: Any) -> None:
        data: Any = frame.data
        span = data.get("from") if str(frame.type) == "elided" else None
        self._ledger.write(
            FRAME,
            session=session,
            connection=connection,
            type=str(frame.type),
            seq=frame.seq,
            name=frame.name,
            run=frame.run_id,
            span=span,
            digest=digest(data),
        )
        self._cursors[session] = frame.seq
