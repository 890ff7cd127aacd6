"""The worker: finds what is due in any session and does it, on one process or many."""

import asyncio
import logging
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from tenuto.errors import ProgramNotRegistered, SessionNotFound, StatusRefused, StoreError, TenutoError
from tenuto.model.session import Kind, SessionKey
from tenuto.store.host import worker_is_dead

if TYPE_CHECKING:
    from tenuto.session.runtime import SessionRuntime

_log = logging.getLogger("tenuto.worker")

POLL_SECONDS = 0.25
"""How often a worker looks for something to do when there is nothing."""

_PAGE = 200


class Worker:
    """Drains due input, wakes, timers, deliveries and lost runs, at most `concurrency` sessions at once.

    Several workers on one store do not get in each other's way: whoever has a session's lane works on it.
    """

    def __init__(self, runtime: "SessionRuntime", *, concurrency: int = 8, poll: float = POLL_SECONDS) -> None:
        self._runtime = runtime
        self._free = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._poll = poll
        self._busy: dict[SessionKey, asyncio.Task[bool]] = {}
        self._finished = asyncio.Event()
        self._ending = False

    def finish(self) -> None:
        """Take nothing new in hand and end once the turns under way have ended; what is queued is left to others."""
        self._ending = True
        self._finished.set()

    async def work(self, *, until_idle: bool = False) -> None:
        """Work until cancelled or told to finish, or, with `until_idle`, until nothing is due."""
        try:
            while not self._ending:
                self._finished.clear()
                started = await self._look()
                if until_idle and not started and not self._busy:
                    return
                if not started or len(self._busy) >= self._concurrency:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._finished.wait(), self._poll)
            await asyncio.gather(*self._busy.values(), return_exceptions=True)
        finally:
            for task in list(self._busy.values()):
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _look(self) -> int:
        """Take in hand what is due; return how much there was."""
        try:
            done = await self._runtime.deliver()
            keys = await self._due()
        except StoreError as error:
            _log.warning("Nothing can be looked for: %s", error)
            return 0
        for key in keys:
            if key in self._busy:
                continue
            if len(self._busy) >= self._concurrency:
                break
            done += 1
            self._busy[key] = asyncio.create_task(self._advance(key))
        return done

    async def _due(self) -> list[SessionKey]:
        """Return the sessions with something to do, lost runs first, the others in no order: workers spread."""
        store = self._runtime.store
        lost = [run.key for run in await store.lanes.orphans(_PAGE) if run.key.kind is Kind.SESSION]
        lost += [run.key for run in await store.runs.running(limit=_PAGE) if worker_is_dead(run.worker)]
        due = list(await store.inbox.due(limit=_PAGE))
        random.shuffle(due)
        return list(dict.fromkeys([*lost, *due]))

    async def _advance(self, key: SessionKey) -> bool:
        try:
            return await self._runtime.advance(key, go_on=lambda: not self._ending)
        except (ProgramNotRegistered, SessionNotFound, StatusRefused) as error:
            _log.info("%s is not for this worker: %s", key, error)
        except TenutoError as error:
            _log.warning("%s could not be advanced: %s", key, error)
        finally:
            del self._busy[key]
            self._finished.set()
        return False
