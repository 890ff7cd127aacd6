"""One worker process: `python -m bench.worker <store>`. It works between `go` and `halt`.

A dot is a turn, an exclamation mark a transaction that was refused since others kept the database busy.

It reports its turns a few at a time, since the process that counts them runs on the same cores.
"""

import asyncio
import os
import sys
from typing import Any

from bench.workload import message
from tenuto import open_store
from tenuto.errors import StoreContended
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.runtime.queue.worker import connections_for, tune_gc_for_worker
from tenuto.runtime.runtime import SessionRuntime

CONCURRENCY = 8
_SECONDS = 0.02
_REPLY: Any = message("assistant")
_TOLD_AFTER = 0.02

_untold = 0


@program
async def sleeps(turn: Turn) -> None:
    """Wait as for a model, then reply."""
    await asyncio.sleep(_SECONDS)
    turn.append(_REPLY)
    _count()


def _count() -> None:
    global _untold
    _untold += 1
    if _untold == 1:
        asyncio.get_running_loop().call_later(_TOLD_AFTER, _tell)


def _tell() -> None:
    global _untold
    os.write(1, b"." * _untold)
    _untold = 0


def _count_contention() -> None:
    """Report every contention error as it is made."""
    made = StoreContended.__init__

    def told(self: StoreContended, message: str, **details: Any) -> None:
        os.write(1, b"!")
        made(self, message, **details)

    StoreContended.__init__ = told  # type: ignore[method-assign, assignment]


async def main() -> None:
    """Do as the lines of the standard input say, until it ends; set up as `tenuto worker` is."""
    hear = asyncio.get_running_loop().run_in_executor
    tune_gc_for_worker()
    _count_contention()
    async with (
        open_store(sys.argv[1], pool_size=connections_for(CONCURRENCY)) as store,
        SessionRuntime(store, [sleeps]) as runtime,
    ):
        while await hear(None, sys.stdin.readline) == "go\n":
            work = asyncio.create_task(runtime.work(CONCURRENCY))
            await hear(None, sys.stdin.readline)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
