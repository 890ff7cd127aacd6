"""A chat in the terminal, kept in a file: `python chat.py NAME`."""

import asyncio
import sys

from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program
from tenuto.messages import stream_openai, text_of, to_openai

create = AsyncOpenAI().chat.completions.create


@program
async def chat(turn: Turn) -> None:
    said = to_openai(turn.context)
    turn.append(await turn.model(lambda: stream_openai(create(model="small", messages=said, stream=True), turn.emit)))


async def main(name: str) -> None:
    async with SessionRuntime("sqlite:///chat.db", chat) as runtime:
        await runtime.drain()  # what a process that died had begun
        session = await runtime.create(chat, session_id=name, exists_ok=True)
        for message in await session.messages():
            print(f"{message['role']}> {text_of(message)}")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            async for text in (await session.start(line, when_busy="queue")).text():
                print(text, end="", flush=True)
            print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
