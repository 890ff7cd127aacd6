"""The worker: finds what is due in any session and does it, in one process or many."""

import asyncio
import gc
import logging
import math
import random
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from tenuto.errors import InvalidInput, SessionNotFound, StatusRefused, StoreError, TenutoError
from tenuto.model.run import Run
from tenuto.model.session import Kind, SessionKey
from tenuto.quote import quote
from tenuto.runtime.queue.dispatcher import Dispatcher
from tenuto.runtime.queue.due_schedules import fire_due
from tenuto.runtime.queue.orphans import end_orphan_without_session
from tenuto.runtime.run.refusal import NOT_HERE
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.store.host import worker_is_dead
from tenuto.store.store import Store

_log = logging.getLogger("tenuto.worker")

POLL_SECONDS = 0.25
"""How often an idle worker polls the store, in seconds."""

_TIDY_SECONDS = 60.0
_FIRE_SECONDS = 1.0
_PAGE = 200
_LONGEST_PAUSE = 5.0
_TRIES = 3


class _Left(NamedTuple):
    until: float
    tries: int


def tune_gc_for_worker() -> None:
    """Reduce the frequency of garbage collection, in a process that is a worker and nothing else.

    Objects that exist now are never scanned again. A turn leaves almost no cyclic garbage, and with the default
    thresholds the collector takes a good part of a turn's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def connections_for(concurrency: int) -> int:
    """Return how many connections to a server are enough for this number of concurrent sessions.

    Turns wait for models and tools most of the time, and each connection is a server process with its own caches: a few
    busy connections outperform many idle ones.
    """
    return max(1, concurrency // 8)


class Worker:
    """Handles due input, wakes, timers, schedules, deliveries and lost runs, at most `concurrency` sessions at once.

    Several workers can share a store: the one that holds a session's lane works on it.
    """

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        deliveries: Deliveries,
        *,
        concurrency: int = 8,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._deliveries = deliveries
        if type(concurrency) is not int or concurrency < 1:
            raise InvalidInput(f"`concurrency` must be an integer of 1 or more, got {quote(concurrency)}.")
        self._concurrency = concurrency
        self._poll = poll
        self._busy: dict[SessionKey, asyncio.Task[bool]] = {}
        self._found: deque[SessionKey] = deque()
        self._found_at = self._searched_at = self._tidied_at = self._fired_at = -math.inf
        self._left: dict[SessionKey, _Left] = {}
        self._reported: set[str] = set()
        self._finished = asyncio.Event()
        self._ending = False
        self._until_idle = False

    def finish(self) -> None:
        """Start nothing new, and end once the running turns have ended; queued input is left to other workers."""
        self._ending = True
        self._finished.set()

    async def work(self, *, until_idle: bool = False) -> None:
        """Work until cancelled or until `finish` is called, or, with `until_idle`, until nothing is due."""
        self._until_idle = until_idle
        try:
            while not self._ending:
                self._finished.clear()
                alone = not self._busy  # a turn that ends during the search may leave something to do
                started = await self._search()
                if until_idle and alone and not started and not self._tries_again():
                    return
                if not started or len(self._busy) >= self._concurrency:
                    # Not `wait_for`, which may lose a cancellation that arrives as a turn ends.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._poll):
                            await self._finished.wait()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)
        finally:
            for task in list(self._busy.values()):
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _search(self) -> int:
        """Find what is due and start it; return how many deliveries and sessions there were.

        Sessions found within the last poll interval are started without another search, which costs as much as a turn,
        unless other workers turned out to be faster.
        """
        if asyncio.get_running_loop().time() - self._found_at < self._poll and (started := self._start()):
            return started
        try:
            await self._tidy()
            delivered = await self._deliveries.deliver_due() + await self._fire()
            self._found.extend(await self._due())
        except StoreError as error:
            if self._until_idle:
                raise
            _log.warning("Polling failed: %s", error)
            return 0
        self._found_at = asyncio.get_running_loop().time()
        return delivered + self._start()

    async def _tidy(self) -> None:
        """Finish interrupted deletes, once a minute."""
        now = asyncio.get_running_loop().time()
        if now - self._tidied_at >= _TIDY_SECONDS:
            self._tidied_at = now
            await self._store.upkeep.finish_deletes()

    async def _fire(self) -> int:
        """Fire the schedules that are due, looked for once a second; return how many messages that queued."""
        now = asyncio.get_running_loop().time()
        if now - self._fired_at < _FIRE_SECONDS and not self._until_idle:
            return 0
        self._fired_at = now
        return await fire_due(self._store)

    def _start(self) -> int:
        """Start work on found sessions up to the concurrency; return how many were started."""
        started = 0
        while self._found and len(self._busy) < self._concurrency:
            key = self._found.popleft()
            if self._is_free(key):
                started += 1
                self._busy[key] = asyncio.create_task(self._advance(key))
        return started

    async def _due(self) -> list[SessionKey]:
        """Return the sessions with something to do, lost runs first, the others shuffled to spread the workers.

        Sessions that this worker leaves alone for a while do not hide the others.
        """
        store, now = self._store, asyncio.get_running_loop().time()
        self._left = {key: left for key, left in self._left.items() if left.until + _LONGEST_PAUSE > now}
        self._found.clear()
        lost = [] if self._busy and now - self._searched_at < self._poll else await self._lost()
        found = [key for key in dict.fromkeys(lost) if self._is_free(key)]
        after: str | None = None
        while len(found) < self._concurrency:
            page = await store.inbox.due(limit=_PAGE, after=after)
            due = [key for key in page if self._is_free(key) and key not in found]
            random.shuffle(due)
            found += due
            after = page.next
            if after is None:
                break
        return found

    async def _lost(self) -> list[SessionKey]:
        store = self._store
        self._searched_at = asyncio.get_running_loop().time()
        runs = list(await store.lanes.orphans(_PAGE))
        running = await store.runs.running(limit=_PAGE)
        dead = {worker for worker in {run.worker for run in running} if worker_is_dead(worker)}
        runs += [run for run in running if run.worker in dead]
        found = []
        for run in {run.run_id: run for run in runs}.values():
            bare = run.generation is None or run.key.kind is not Kind.SESSION
            if bare or await store.stamp(run.key) is None:
                await self._end(run)
            else:
                found.append(run.key)
        return found + list(await store.inbox.stranded(limit=_PAGE))

    async def _end(self, run: Run) -> None:
        """End a lost run that no session can resume; a failure is logged, so that it does not block the others."""
        try:
            await end_orphan_without_session(self._store, run)
        except StoreError:
            raise
        except TenutoError as error:
            _log.warning("Lost run %s of %s could not be ended: %s", run.run_id, run.key, error)

    def _is_free(self, key: SessionKey) -> bool:
        left = self._left.get(key)
        return key not in self._busy and (left is None or left.until <= asyncio.get_running_loop().time())

    def _tries_again(self) -> bool:
        now = asyncio.get_running_loop().time()
        return any(now < left.until < math.inf for left in self._left.values())

    async def _advance(self, key: SessionKey) -> bool:
        worked, for_good = False, False
        try:
            worked = (await self._dispatcher.advance(key, should_continue=lambda: not self._ending)).worked
        except (*NOT_HERE, SessionNotFound, StatusRefused) as error:
            for_good = True
            self._report(key, error)
        except TenutoError as error:
            _log.warning("%s could not be advanced: %s", key, error)
        except Exception:
            _log.exception("%s could not be advanced", key)
        finally:
            del self._busy[key]
            self._finished.set()
        if worked:
            self._left.pop(key, None)
        else:
            self._found_at = -math.inf
            self._leave(key, for_good=for_good)
        return worked

    def _report(self, key: SessionKey, error: TenutoError) -> None:
        """Log once what this process lacks; the input stays queued for other workers."""
        reason = f"{error.category} {error.details().get('program')} {error.details().get('from_version')}"
        known = reason in self._reported or not isinstance(error, NOT_HERE)
        self._reported.add(reason)
        _log.log(logging.DEBUG if known else logging.WARNING, "%s is left to other workers: %s", key, error)

    def _leave(self, key: SessionKey, *, for_good: bool) -> None:
        """Leave a session that could not be advanced alone for a while: it may be for another worker."""
        tries = self._left[key].tries + 1 if key in self._left else 1
        pause = min(self._poll * 2 ** (tries - 1), _LONGEST_PAUSE)
        if self._until_idle and (for_good or tries >= _TRIES):
            pause = math.inf
        self._left[key] = _Left(asyncio.get_running_loop().time() + pause, tries)
