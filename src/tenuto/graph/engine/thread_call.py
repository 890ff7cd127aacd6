"""Plain functions as nodes: they run in a thread, so that they may block without stopping everything else."""

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tenuto.errors import SuspensionInUnsupportedContext

R = TypeVar("R")

LONGEST_WAIT = 60.0
"""How long a thread waits for the event loop to do something for it, in seconds."""


class _Thread(NamedTuple):
    """The thread of a plain function: what function it is, and the loop that its run belongs to."""

    what: str
    loop: asyncio.AbstractEventLoop


_thread: ContextVar[_Thread | None] = ContextVar("tenuto_thread", default=None)


async def call_body(what: str, body: Callable[..., Any], *given: Any) -> Any:
    """Call a function of a node and return its result: an async one here, a plain one in a thread.

    The thread has the caller's context variables. It cannot be stopped: if its caller is, what it returns is dropped.
    """
    if _is_async(body):
        return await body(*given)
    result = await asyncio.to_thread(_entered, _Thread(what, asyncio.get_running_loop()), body, given)
    return await result if inspect.isawaitable(result) else result  # such as a lambda that calls an async function


def refuse_in_thread(verb: str) -> None:
    """Refuse a verb that has to be awaited where the node is a plain function."""
    if (here := _thread.get()) is not None:
        raise SuspensionInUnsupportedContext(
            f"{verb}() was called in {here.what}, a plain function that runs in a thread: declare it with `async def` "
            f"and write `await {verb}(...)`."
        )


def on_loop(call: Callable[..., R], *given: Any, **named: Any) -> R:
    """Call a function that belongs to the run's event loop: here, or there if this is the thread of a node."""
    here = _thread.get()
    if here is None:
        return call(*given, **named)
    done: Future[R] = Future()

    def work() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(call(*given, **named))
            except BaseException as error:
                done.set_exception(error)

    here.loop.call_soon_threadsafe(work)
    try:
        return done.result(LONGEST_WAIT)
    except (TimeoutError, CancelledError):
        done.cancel()
        raise


def _entered(thread: _Thread, body: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    _thread.set(thread)
    try:
        return body(*given)
    except StopIteration as error:  # a future cannot carry one
        raise RuntimeError(f"{thread.what} raised StopIteration") from error


def _is_async(body: Callable[..., Any]) -> bool:
    while isinstance(body, partial):
        body = body.func
    return inspect.iscoroutinefunction(body) or inspect.iscoroutinefunction(getattr(body, "__call__", None))  # noqa: B004
