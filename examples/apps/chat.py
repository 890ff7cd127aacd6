"""A chat in the terminal, kept in a file: `python chat.py NAME`."""

import asyncio
import sys

from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program
from tenuto.messages import AssistantMessage, stream_openai, text_of, to_openai

client = AsyncOpenAI()


@program
async def chat(turn: Turn) -> None:
    async def ask() -> AssistantMessage:
        said = to_openai(turn.context)
        stream = await client.chat.completions.create(model="small", messages=said, stream=True)
        return await stream_openai(stream, turn.emit)

    turn.append(await turn.effect("model", ask, kind="model"))


async def main(name: str) -> None:
    async with SessionRuntime("sqlite:///chat.db", chat) as runtime:
        session = await runtime.create(chat, session_id=name, exists_ok=True)
        for message in await session.messages():
            print(f"{message['role']}> {text_of(message)}")
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            async for text in (await session.start(line, when_busy="queue")).text():
                print(text, end="", flush=True)
            print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
