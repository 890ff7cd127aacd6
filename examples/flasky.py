import atexit
from contextlib import ExitStack

from flask import Flask, request

from shop import runtime, support

app, stack = Flask(__name__), ExitStack()
sessions = stack.enter_context(runtime.blocking())
atexit.register(stack.close)

@app.post("/chats/<chat>")
def say(chat: str) -> str:
    session = sessions.create(support, session_id=chat, exists_ok=True)
    return session.send(request.form["text"], key=request.form["key"]).text
