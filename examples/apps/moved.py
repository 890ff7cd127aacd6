"""The same program on a file or on a server, by its address alone: `python moved.py URL`."""

import asyncio
import sys

from tenuto import SessionRuntime, Store, Turn, program


@program
async def count(turn: Turn) -> int:
    turn.update(lambda state: {"count": state.get("count", 0) + 1})
    return turn.state["count"]


async def main(store: str | Store) -> None:
    async with SessionRuntime(store, count) as runtime:
        session = await runtime.create(count, session_id="counter", exists_ok=True)
        print((await session.send("once more")).output)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
