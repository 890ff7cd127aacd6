"""The same as apps/flask_chat.py, with LangGraph: a message's key is its id."""

import sqlite3
from collections import defaultdict
from threading import Lock
from typing import Any

from flask import Flask, request
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

model = ChatOpenAI(model="small")


def chat(state: MessagesState) -> dict[str, Any]:
    return {"messages": [model.invoke(state["messages"])]}


saver = SqliteSaver(sqlite3.connect("chat.db", check_same_thread=False))
graph = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat").compile(checkpointer=saver)
app, locks = Flask(__name__), defaultdict[str, Lock](Lock)


@app.post("/chats/<name>")
def say(name: str) -> str:
    config: Any = {"configurable": {"thread_id": name}}
    message = HumanMessage(request.form["text"], id=request.form["key"])
    with locks[name]:
        said = graph.get_state(config).values.get("messages", [])
        if message.id not in [each.id for each in said]:
            said = graph.invoke({"messages": [message]}, config)["messages"]
    return said[[each.id for each in said].index(message.id) + 1].content
