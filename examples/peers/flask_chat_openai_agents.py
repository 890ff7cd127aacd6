"""The same as apps/flask_chat.py, with the OpenAI Agents SDK and a table of replies."""

import sqlite3
from collections import defaultdict
from threading import Lock

from agents import Agent, Runner, SQLiteSession
from flask import Flask, request

agent = Agent(name="chat", model="small")
db = sqlite3.connect("replies.db", check_same_thread=False)
db.execute("CREATE TABLE IF NOT EXISTS replies (chat, key, text, PRIMARY KEY (chat, key))")
app, locks = Flask(__name__), defaultdict[str, Lock](Lock)


@app.post("/chats/<name>")
def say(name: str) -> str:
    place = (name, request.form["key"])
    with locks[name]:
        row = db.execute("SELECT text FROM replies WHERE chat = ? AND key = ?", place).fetchone()
        if row:
            return row[0]
        text = Runner.run_sync(agent, request.form["text"], session=SQLiteSession(name, "chat.db")).final_output
        with db:
            db.execute("INSERT INTO replies VALUES (?, ?, ?)", (*place, text))
        return text
