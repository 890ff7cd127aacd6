"""The shop on Flask, which has no event loop, by a real server with threads."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.examples.apps import free_port, post, serving

pytestmark = [pytest.mark.wide, pytest.mark.long("it starts real servers")]

PRELOADED = """
from contextlib import ExitStack
from flask import Flask, request
from shop import runtime, support

app, stack, opened = Flask(__name__), ExitStack(), []

@app.post("/chats/<chat>")
def say(chat: str) -> str:
    if not opened:  # after the fork: nothing that is open survives one
        opened.append(stack.enter_context(runtime.blocking()))
    session = opened[0].create(support, session_id=chat, exists_ok=True)
    return session.send(request.form["text"], key=request.form["key"], when_busy="queue").text
"""


def test_threads_share_one_opening(tmp_path: Path) -> None:
    port = free_port()
    command = ("gunicorn", "flasky:app", "--bind", f"127.0.0.1:{port}", "--threads", "4")
    with serving(tmp_path, *command, port=port) as address, ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda n: post(f"{address}/chats/c{n}", text="hello", key="k"), range(8)))
        assert said == ["You said: hello"] * 8
        assert post(f"{address}/chats/c1", text="hello", key="k") == "You said: hello"


def test_a_declaration_that_was_not_opened_survives_a_preload(tmp_path: Path) -> None:
    (tmp_path / "preloaded.py").write_text(PRELOADED)
    port = free_port()
    command = ("gunicorn", "preloaded:app", "--bind", f"127.0.0.1:{port}", "--preload", "--workers", "2")
    with serving(tmp_path, *command, port=port) as address, ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda n: post(f"{address}/chats/ada", text=f"hello {n}", key=f"k{n}"), range(8)))
        assert sorted(said) == [f"You said: hello {n}" for n in range(8)]
