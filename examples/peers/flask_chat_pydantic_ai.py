"""The same as apps/flask_chat.py, with Pydantic AI, a table of conversations and one of replies."""

import sqlite3
from collections import defaultdict
from threading import Lock

from flask import Flask, request
from pydantic_ai import Agent, ModelMessagesTypeAdapter

agent = Agent("openai-chat:small")
db = sqlite3.connect("chat.db", check_same_thread=False)
db.execute("CREATE TABLE IF NOT EXISTS chats (name PRIMARY KEY, messages)")
db.execute("CREATE TABLE IF NOT EXISTS replies (chat, key, text, PRIMARY KEY (chat, key))")
app, locks = Flask(__name__), defaultdict[str, Lock](Lock)


@app.post("/chats/<name>")
def say(name: str) -> str:
    place = (name, request.form["key"])
    with locks[name]:
        row = db.execute("SELECT text FROM replies WHERE chat = ? AND key = ?", place).fetchone()
        if row:
            return row[0]
        row = db.execute("SELECT messages FROM chats WHERE name = ?", (name,)).fetchone()
        history = ModelMessagesTypeAdapter.validate_json(row[0] if row else b"[]")
        result = agent.run_sync(request.form["text"], message_history=history)
        with db:
            db.execute("REPLACE INTO chats VALUES (?, ?)", (name, result.all_messages_json()))
            db.execute("INSERT INTO replies VALUES (?, ?, ?)", (*place, result.output))
        return result.output
