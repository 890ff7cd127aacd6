"""A turn that is steered, stopped, resumed, taken back and made again."""

import asyncio

from shop import runtime, support


async def main() -> None:
    async with runtime:
        session = await runtime.create(support)
        run = await session.start("Compare our suppliers.")
        await session.enqueue("Only European ones.", boundary="after_step")
        await run.stop(reason="closing time")
        outcome = await run.wait()
        if outcome.status == "interrupted":
            outcome = await session.resume()
        await session.send("No: all.", when_busy="rollback")
        print((await session.regenerate()).text)


if __name__ == "__main__":
    asyncio.run(main())
