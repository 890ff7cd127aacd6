"""The end of a run: no more faults, what was cut off is repeated, what waits is answered, until nothing is left."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tenuto import SessionRuntime
from tenuto.errors import TenutoError
from tests.chaos.client import Performer, unanswered
from tests.chaos.ledger import Ledger, Note
from tests.chaos.tables import Query, Row, Site, connected

_LEFT = {
    "run": "SELECT s.session_id, r.run_id AS id, r.status AS what FROM run r JOIN session s ON s.sid = r.session "
    "WHERE r.status = 'running'",
    "input": "SELECT s.session_id, i.input_id AS id, i.kind AS what FROM input i JOIN session s ON s.sid = i.session "
    "WHERE i.status = 'open'",
    "wait": "SELECT s.session_id, w.wait_id AS id, w.kind AS what FROM wait w JOIN session s ON s.sid = w.session "
    "WHERE w.status = 'open'",
    "outgoing": "SELECT s.session_id, o.outbox_id AS id, o.kind AS what FROM outgoing o "
    "JOIN session s ON s.sid = o.session WHERE o.status = 'pending'",
}
_CLOSED = "SELECT session_id FROM session WHERE alive = 1 AND status IN ('suspended', 'completed', 'failed')"
_QUIET = 3
"""How many looks in a row have to find nothing."""


class Closing:
    """Brings a run to its end, through the supervisor's own runtime and the workers that are left."""

    def __init__(self, site: Site, runtime: SessionRuntime, ledger: Ledger, notes: list[Note]) -> None:
        self._site = site
        self._runtime = runtime
        self._performer = Performer("supervisor", runtime, ledger)
        self._unanswered = unanswered(notes)

    async def drain(self, seconds: float, work: Callable[[], Awaitable[None]] | None = None) -> list[Row]:
        """Go on until nothing is left, or for so long nothing less is left than before; return what is left then.

        `work` does what is due, where there are no workers.
        """
        clock = asyncio.get_running_loop().time
        deadline, quiet, least, left = clock() + seconds, 0, math.inf, list[Row]()
        repeats = [asyncio.create_task(self._performer.repeat(each, random.Random(0))) for each in self._unanswered]
        try:
            async with connected(self._site) as ask:
                while clock() < deadline:
                    await self._reopen(ask)
                    left = await _look(ask)
                    if len(left) < least:
                        least, deadline = len(left), clock() + seconds
                    quiet = 0 if left or not all(task.done() for task in repeats) else quiet + 1
                    if quiet >= _QUIET:
                        break
                    await self._answer([row for row in left if row["table"] == "wait"])
                    await asyncio.sleep(0.05)
                    if work is not None:
                        await work()
        finally:
            for task in repeats:
                task.cancel()
            await asyncio.gather(*repeats, return_exceptions=True)
        return left

    async def _reopen(self, ask: Query) -> None:
        for row in await ask(_CLOSED):
            await self._performer.do({"deed": "reopen", "session": row["session_id"]}, cut=None)

    async def _answer(self, waits: list[Row]) -> None:
        values: dict[str, Any] = {
            "approval": True,
            "signal": "the end",
            "tool_result": "the end",
            "in_doubt": {"outcome": "done", "result": "the end"},
        }
        for row in waits:
            facts = {"deed": "answer", "session": row["session_id"], "wait": row["id"], "kind": row["what"]}
            if row["what"] in values:
                with suppress(TenutoError):
                    await self._performer.do(facts | {"value": values[row["what"]], "go_on": False}, cut=None)


async def _look(ask: Query) -> list[Row]:
    return [{"table": table, **row} for table, sql in _LEFT.items() for row in await ask(sql)]
