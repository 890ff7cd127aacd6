"""One event loop in a thread, into which code without one calls."""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from tenuto.errors import InvalidInput, NotOpen, WrongLoop

T = TypeVar("T")

_log = logging.getLogger("tenuto.runtime")

_INTERRUPTED = (
    "Only the wait was interrupted: the call continues in the background, and so does its turn. Ask for its outcome "
    "with the same key, or with `outcome(input_id)`. Closing waits for it; interrupt again to leave it to others."
)


class Portal:
    """Runs coroutines in its own thread and returns their results; any thread may call."""

    def __init__(self) -> None:
        _refuse_in_loop()
        self._loop = asyncio.new_event_loop()
        self._under_way: set[Future[Any]] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="tenuto-portal", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns; an interrupt ends the wait, not the work, and says so."""
        try:
            _refuse_in_loop()
            if self._closed:
                raise NotOpen("This runtime is closed; use it inside `with runtime.blocking() as rt:`.")
        except InvalidInput:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        try:
            return future.result()
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(_INTERRUPTED)
            _log.warning("%s", _INTERRUPTED)
            raise

    def iterate(self, make: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
        """Yield what an async generator yields, and close it when the iterator is closed."""

        async def made() -> AsyncGenerator[T, None]:
            return make()

        items = self.call(made())
        try:
            while True:
                try:
                    item = self.call(anext(items))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if not self._closed:
                self.call(items.aclose())

    @contextmanager
    def opened(self, runtime: AbstractAsyncContextManager[Any]) -> Iterator[None]:
        """Open a runtime in the portal's event loop; at the end, finish what is under way, close it, end the thread.

        If the end is interrupted while it waits, turns that run are left for another process to take over.
        """
        try:
            self.call(runtime.__aenter__())
            try:
                yield
            finally:
                for future in list(self._under_way):
                    future.exception()
                self.call(runtime.__aexit__(None, None, None))
        finally:
            self._end()

    def _end(self) -> None:
        self._closed = True
        if self._under_way:
            return  # its end was interrupted: the thread may be in the middle of something, and ends with the process
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _refuse_in_loop() -> None:
    if asyncio._get_running_loop() is not None:
        raise WrongLoop("A blocking call would stop the event loop that runs here; use `async with runtime` instead.")
