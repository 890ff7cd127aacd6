"""`python -m tests.chaos --seconds 60 --store sqlite --seed 1`: a run of its own, with its report and exit code."""

import argparse
import asyncio
import os
import sys
from contextlib import nullcontext
from typing import Any

from tests.chaos.plan import Plan
from tests.chaos.report import lines
from tests.chaos.run import run
from tests.servers import running_postgres

BUG = "TENUTO_CHAOS_BUG"
"""The environment variable that names the bug to be planted."""


def main() -> int:
    """Do a run and report it."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", action="store_true", help="print when which fault comes, and run nothing")
    told = parser.parse_args()
    plan = Plan(seconds=told.seconds, store=told.store, seed=told.seed, bug=os.environ.get(BUG))
    if told.schedule:
        for fault in plan.faults():
            print(f"{fault.at:8.3f} {fault.kind:20} {fault.lasts:6.3f} {fault.whom}")
        return 0
    server: Any = running_postgres() if plan.store == "postgres" else nullcontext()
    with server as started:
        result = asyncio.run(run(plan, started.url if started else None))
    print("\n".join(lines(result)))
    return result.code


if __name__ == "__main__":
    sys.exit(main())
