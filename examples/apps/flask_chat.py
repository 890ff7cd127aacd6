"""A chat on Flask, without an event loop: one reply for each key, and one message after the other."""

import atexit
from contextlib import ExitStack

from flask import Flask, request
from openai import AsyncOpenAI

from tenuto import SessionRuntime, Turn, program
from tenuto.messages import AssistantMessage, from_openai, to_openai

create = AsyncOpenAI().chat.completions.create


@program
async def chat(turn: Turn) -> None:
    async def ask() -> AssistantMessage:
        return from_openai(await create(model="small", messages=to_openai(turn.context)))

    turn.append(await turn.model(ask))


app, stack = Flask(__name__), ExitStack()
sessions = stack.enter_context(SessionRuntime("sqlite:///chat.db", chat).blocking())
atexit.register(stack.close)


@app.post("/chats/<name>")
def say(name: str) -> str:
    session = sessions.create(chat, session_id=name, exists_ok=True)
    return session.send(request.form["text"], request.form["key"], when_busy="queue").text
