import asyncio

from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program
from tenuto.messages import AssistantMessage, stream_openai, to_openai


@program
async def chat(turn: Turn) -> None:
    async def ask() -> AssistantMessage:
        return await stream_openai(
            await AsyncOpenAI().chat.completions.create(
                model="gpt-5-mini", messages=to_openai(turn.context), stream=True
            ),
            turn.emit,
        )

    turn.append(await turn.model(ask))


async def main() -> None:
    async with SessionRuntime("sqlite:///chat.db", chat) as runtime:
        session = await runtime.create(chat, session_id="me", exists_ok=True)
        async for text in (await session.start(input("> "))).text():
            print(text, end="", flush=True)


asyncio.run(main())
