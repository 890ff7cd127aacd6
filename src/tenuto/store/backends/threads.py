"""Threads that work for an event loop; like the interpreter's own pools, but of use until its very end."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """At most `size` threads, started when there is work; they end with `close`, or with the process."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Have a thread do this; await its result."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((work, future))
        if len(self._threads) < self._size:
            thread = threading.Thread(target=self._serve, name=f"{self._name} {len(self._threads)}", daemon=True)
            if _started(thread):
                self._threads.append(thread)
            elif not self._threads:
                _do(*self._queue.get_nowait())  # type: ignore[misc]
        return future

    def close(self, within: float) -> None:
        """End the threads once they have done what is queued; one that does not in time is left behind."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(within)

    def _serve(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            _do(*job)


async def in_thread(work: Callable[[], T]) -> T:
    """Do something that blocks, in its own thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    if not _started(threading.Thread(target=_do, args=(work, future), name="tenuto", daemon=True)):
        _do(work, future)
    return await future


def _started(thread: threading.Thread) -> bool:
    """Start a thread; an interpreter that is ending may start none, and its last calls are done without."""
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def _do(work: Callable[[], T], future: "asyncio.Future[T]") -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = work()
    except BaseException as raised:
        error = raised
    try:
        future.get_loop().call_soon_threadsafe(answer, future, result, error)
    except RuntimeError:
        return  # the loop was closed: nobody is waiting


def answer(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    """Answer a caller, who may have gone."""
    if future.done():
        return
    if isinstance(error, StopIteration):
        error = RuntimeError(str(error))  # which no future takes
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
