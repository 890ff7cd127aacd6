"""The writer: one thread that takes the transactions waiting in its queue into one commit."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import apsw

from tenuto.errors import StoreContended
from tenuto.store.backends.signals import Refused
from tenuto.store.backends.sqlite.connection import begin, rollback
from tenuto.store.backends.sqlite.faults import translate
from tenuto.store.backends.sqlite.file import DatabaseFile
from tenuto.store.backends.threads import answer

GROUP_AT_MOST = 64
GROUP_BYTES = 1024 * 1024

_CLOSE_TIMEOUTS = 3
_CLOSE_SECONDS = 30.0

Work = Callable[[apsw.Connection], Any]
"""What one transaction does; it writes nothing before it has decided, so a refusal leaves no trace in a group."""


class Job:
    """One transaction and the caller who waits for it."""

    __slots__ = ("error", "future", "loop", "result", "size", "work")

    def __init__(self, work: Work, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.size = size
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self, connection: apsw.Connection) -> None:
        """Do the work; a refusal is kept for the caller, a failure goes up and ends the transaction."""
        try:
            self.result = self.work(connection)
            self.error = None
        except Refused as refusal:
            self.error = refusal.error


class Writer:
    """Owns the writing connection. Callers are answered after COMMIT, never before.

    The thread starts with the first transaction.
    """

    def __init__(self, connection: apsw.Connection, path: str, lock_timeout: float, file: DatabaseFile) -> None:
        self._connection = connection
        self._path = path
        self._file = file
        self._timeout = lock_timeout
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, size: int = 0) -> asyncio.Future[Any]:
        """Queue one transaction; its result comes once it is on disk."""
        job = Job(work, size, asyncio.get_running_loop())
        self._queue.put(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=f"tenuto-writer {self._path}", daemon=True)
            self._thread.start()
        return job.future

    def close(self) -> None:
        """Finish what is queued and end the thread; blocks until then, or until it has clearly got stuck."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUTS * self._timeout + _CLOSE_SECONDS)

    def _serve(self) -> None:
        job = self._queue.get()
        while job is not None:
            group, following = self._take(job)
            self._commit(group)
            if lost := self._file.lost():
                # Nothing is acknowledged that went into a file nobody will find again: checked once for all.
                for each in group:
                    each.error = each.error or lost
            _deliver(group)
            job = following if following is not _NOTHING else self._queue.get()

    def _take(self, first: Job) -> tuple[list[Job], Any]:
        group, size = [first], first.size
        while not self._queue.empty() and len(group) < GROUP_AT_MOST:
            job = self._queue.get()
            if job is None or size + job.size > GROUP_BYTES:
                return group, job
            group.append(job)
            size += job.size
        return group, _NOTHING

    def _commit(self, group: list[Job]) -> None:
        group[:] = [job for job in group if not job.future.cancelled()]
        if not group:
            return
        try:
            self._transaction(group)
        except BaseException as error:
            if len(group) == 1 or isinstance(error, StoreContended):
                # A database that others hold is tried once for all: one by one, the last would wait for all before it.
                for job in group:
                    job.error = error
                return
            # The whole transaction was undone: one by one, each gets its own answer. Receipts make that safe.
            for job in group:
                try:
                    self._transaction([job])
                except BaseException as own:
                    job.error = own

    def _transaction(self, jobs: list[Job]) -> None:
        connection = self._connection
        try:
            begin(connection, self._timeout)
            for job in jobs:
                job.run(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            rollback(connection)
            raise translate(error, self._path) from error


_NOTHING: Any = object()


def _deliver(group: list[Job]) -> None:
    """Answer all callers of one event loop with a single wake-up."""
    loops = {job.loop for job in group}
    for loop in loops:
        jobs = group if len(loops) == 1 else [job for job in group if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_answer, jobs)
        except RuntimeError:
            continue  # the loop was closed: nobody is waiting


def _answer(jobs: list[Job]) -> None:
    for job in jobs:
        answer(job.future, job.result, job.error)
