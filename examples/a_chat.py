import asyncio

from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program
from tenuto.messages import stream_openai, to_openai

create = AsyncOpenAI().chat.completions.create


@program
async def chat(turn: Turn) -> None:
    said = to_openai(turn.context)
    reply = await turn.model(lambda: stream_openai(create(model="gpt-5-mini", messages=said, stream=True), turn.emit))
    turn.append(reply)


async def main() -> None:
    async with SessionRuntime("sqlite:///chat.db", chat) as runtime:
        session = await runtime.create(chat, session_id="me", exists_ok=True)
        async for text in (await session.start(input("> "))).text():
            print(text, end="", flush=True)


asyncio.run(main())
