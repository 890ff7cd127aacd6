"""Every night a report is made and sent to management: `python night.py` sets it up and is the worker."""

import asyncio

from tenuto import SessionRuntime, Sessions, Turn, program


async def sales() -> int:
    return 12


@program
async def report(turn: Turn) -> int:
    found = await turn.effect("sales", sales, idempotent=True)
    turn.enqueue(f"Sales: {found}", session="management", key=f"sales-{turn.origin_id}")
    return found


@program
async def notes(turn: Turn) -> None:
    turn.append(f"Noted. {turn.text}")


async def set_up(sessions: Sessions) -> None:
    await sessions.create(notes, session_id="management", exists_ok=True)
    night = await sessions.create(report, session_id="nightly", exists_ok=True)
    await night.schedule("nightly", "Make the report.", cron="0 3 * * *", tz="Europe/Vienna")


async def main() -> None:
    async with SessionRuntime("sqlite:///night.db", [report, notes]) as runtime:
        await set_up(runtime)
        await runtime.work()


if __name__ == "__main__":
    asyncio.run(main())
