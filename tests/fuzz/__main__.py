"""Fuzz the store and the runtime: `python -m tests.fuzz --count 20000 --store sqlite --seed 1`."""

import argparse
import asyncio
import logging
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.fuzz.driver import Fuzzer
from tests.fuzz.world import Ground
from tests.servers import MEMORY, running_postgres


def main() -> int:
    """Run it; the exit code says whether anything was found."""
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    words.add_argument("--count", type=int, default=20_000, help="how many calls to make")
    words.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    words.add_argument("--seed", type=int, default=1, help="makes a run repeatable")
    given = words.parse_args()
    logging.disable(logging.CRITICAL)
    sys.set_int_max_str_digits(0)
    place = MEMORY if MEMORY.is_dir() else None  # no disk is waited for
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tenuto-fuzz-", dir=place)))
        server = stack.enter_context(running_postgres(durable=False)) if given.store == "postgres" else None
        ground = Ground(given.store, folder, server)
        fuzzer = Fuzzer(ground, count=given.count, seed=given.seed)
        try:
            asyncio.run(_run(fuzzer))
        finally:
            ground.end()
    print(fuzzer.report())
    return 0 if fuzzer.is_clean else 1


async def _run(fuzzer: Fuzzer) -> None:
    await fuzzer.check_recipes()
    await fuzzer.run()


if __name__ == "__main__":
    sys.exit(main())
