"""The same as apps/chat.py, with the OpenAI Agents SDK: `python chat_openai_agents.py NAME`."""

import asyncio
import sys

from agents import Agent, Runner, SQLiteSession

agent = Agent(name="chat", model="small")


async def say(session: SQLiteSession, text: str) -> None:
    result = Runner.run_streamed(agent, text, session=session)
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            print(event.data.delta, end="", flush=True)
    print()


async def main(name: str) -> None:
    session = SQLiteSession(name, "chat.db")
    items = await session.get_items()
    for item in items:
        print(f"{item['role']}> {item['content'] if item['role'] == 'user' else item['content'][0]['text']}")
    if items and items[-1]["role"] == "user":  # the process died before the reply
        await session.pop_item()
        await say(session, items[-1]["content"])
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        await say(session, line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
