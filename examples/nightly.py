"""A report that is made every night at three, and sent to another session."""

import asyncio

from tenuto import SessionRuntime, Turn, program


async def sales() -> int:
    return 12


@program
async def report(turn: Turn) -> int:
    found = await turn.effect("sales", sales, idempotent=True, retries=5, backoff=60)
    turn.enqueue(f"Sales: {found}", session="management", key=f"sales-{turn.origin_id}")
    return found


async def main() -> None:
    async with SessionRuntime("sqlite:///shop.db", report) as runtime:
        night = await runtime.create(report, session_id="nightly", exists_ok=True)
        await night.schedule("nightly", "Make the report.", cron="0 3 * * *", tz="Europe/Vienna")
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main())
