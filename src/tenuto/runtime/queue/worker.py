"""The worker: finds what is due in any session and does it, on one process or many."""

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
from tenuto.runtime.queue.orphans import end_orphan_without_session
from tenuto.runtime.run.refusal import NOT_HERE
from tenuto.runtime.tree.delivery import Deliveries
from tenuto.store.host import worker_is_dead
from tenuto.store.store import Store

_log = logging.getLogger("tenuto.worker")

POLL_SECONDS = 0.25
"""How often a worker looks for something to do when there is nothing."""

_TIDY_SECONDS = 60.0
_PAGE = 200
_LONGEST_PAUSE = 5.0
_TRIES = 3


class _Left(NamedTuple):
    until: float
    tries: int


def tune_gc_for_worker() -> None:
    """Let Python look for garbage less often, in a process that is a worker and does nothing else.

    What is loaded by now stays and is not looked through again; a turn leaves next to nothing to be found, and with the
    usual thresholds looking for it is a good part of what a turn costs.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def connections_for(concurrency: int) -> int:
    """Return how many connections to a server suffice for so many sessions at once.

    Turns wait for models and tools most of the time, and each connection is a process of the server with caches of its
    own: few that are busy are quicker than many.
    """
    return max(1, concurrency // 8)


class Worker:
    """Drains due input, wakes, timers, deliveries and lost runs, at most `concurrency` sessions at once.

    Several workers on one store do not get in each other's way: whoever has a session's lane works on it.
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
            raise InvalidInput(f"A worker needs a concurrency of 1 or more, got {quote(concurrency)}.")
        self._concurrency = concurrency
        self._poll = poll
        self._busy: dict[SessionKey, asyncio.Task[bool]] = {}
        self._found: deque[SessionKey] = deque()
        self._found_at = self._searched_at = self._tidied_at = -math.inf
        self._left: dict[SessionKey, _Left] = {}
        self._reported: set[str] = set()
        self._finished = asyncio.Event()
        self._ending = False
        self._until_idle = False

    def finish(self) -> None:
        """Take nothing new in hand and end once the turns under way have ended; what is queued is left to others."""
        self._ending = True
        self._finished.set()

    async def work(self, *, until_idle: bool = False) -> None:
        """Work until cancelled or told to finish, or, with `until_idle`, until nothing is due."""
        self._until_idle = until_idle
        try:
            while not self._ending:
                self._finished.clear()
                alone = not self._busy  # a turn that ends during the look may leave something to do behind it
                started = await self._look()
                if until_idle and alone and not started and not self._tries_again():
                    return
                if not started or len(self._busy) >= self._concurrency:
                    # Not `wait_for`, which may lose a cancellation that comes as a turn ends.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._poll):
                            await self._finished.wait()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)
        finally:
            for task in list(self._busy.values()):
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _look(self) -> int:
        """Take in hand what is due; return how much there was.

        What was found within the last poll is done first, since a look costs as much as a turn, unless it turned out
        that others are quicker.
        """
        if asyncio.get_running_loop().time() - self._found_at < self._poll and (started := self._start()):
            return started
        try:
            await self._tidy()
            delivered = await self._deliveries.deliver_due()
            self._found.extend(await self._due())
        except StoreError as error:
            if self._until_idle:
                raise
            _log.warning("Nothing can be looked for: %s", error)
            return 0
        self._found_at = asyncio.get_running_loop().time()
        return delivered + self._start()

    async def _tidy(self) -> None:
        """Finish deletes that were cut off, now and then."""
        now = asyncio.get_running_loop().time()
        if now - self._tidied_at >= _TIDY_SECONDS:
            self._tidied_at = now
            await self._store.upkeep.finish_deletes()

    def _start(self) -> int:
        """Take in hand what was found, as far as there is room; return how much that is."""
        started = 0
        while self._found and len(self._busy) < self._concurrency:
            key = self._found.popleft()
            if self._is_free(key):
                started += 1
                self._busy[key] = asyncio.create_task(self._advance(key))
        return started

    async def _due(self) -> list[SessionKey]:
        """Return the sessions with something to do, lost runs first, the others in no order: workers spread.

        Those that were left alone for a while do not hide the others.
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
        """End a lost run that no session goes on with; one that cannot be ended does not keep the others from it."""
        try:
            await end_orphan_without_session(self._store, run)
        except StoreError:
            raise
        except TenutoError as error:
            _log.warning("The lost run %s of %s could not be ended: %s", run.run_id, run.key, error)

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
        """Report once what this process lacks; it stays queued for others."""
        reason = f"{error.category} {error.details().get('program')} {error.details().get('from_version')}"
        known = reason in self._reported or not isinstance(error, NOT_HERE)
        self._reported.add(reason)
        _log.log(logging.DEBUG if known else logging.WARNING, "%s is left to others: %s", key, error)

    def _leave(self, key: SessionKey, *, for_good: bool) -> None:
        """Leave a session alone for a while that could not be advanced: others may, or it is not for this worker."""
        tries = self._left[key].tries + 1 if key in self._left else 1
        pause = min(self._poll * 2 ** (tries - 1), _LONGEST_PAUSE)
        if self._until_idle and (for_good or tries >= _TRIES):
            pause = math.inf
        self._left[key] = _Left(asyncio.get_running_loop().time() + pause, tries)
