"""A chat on Flask, by a real server with threads: one reply for each key, and nothing lost between two requests."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tenuto.testing import Provider, provider
from tests.examples.apps import free_port, post, serving
from tests.examples.beside.pairs import both, environment, path_of

pytestmark = [
    pytest.mark.wide,
    pytest.mark.long("it starts servers that import whole frameworks"),
    pytest.mark.timeout(600),
]


def echo(body: Mapping[str, Any]) -> str:
    """Say how many messages the request has, and the last of them."""
    messages = body.get("messages") or body["input"]
    return f"{len(messages)}: {messages[-1]['content']}"


def served(name: str, folder: Path, server: Provider) -> AbstractContextManager[str]:
    """Run the service with four threads until the block ends."""
    port = free_port()
    place = ("--chdir", str(folder), "--pythonpath", str(path_of(name).parent), "--bind", f"127.0.0.1:{port}")
    command = ("gunicorn", f"{name}:app", *place, "--threads", "4")
    return serving(folder, *command, port=port, env=environment(server.url))


@both("flask_chat", "openai", "flask", "gunicorn")
def test_a_chat_outlives_the_server_and_answers_each_key_once(name: str, tmp_path: Path) -> None:
    with provider(echo) as server:
        with served(name, tmp_path, server) as address:
            assert post(f"{address}/chats/ada", text="one", key="k1") == "1: one"
        with served(name, tmp_path, server) as address:
            assert post(f"{address}/chats/ada", text="two", key="k2") == "3: two"
            assert post(f"{address}/chats/ada", text="one", key="k1") == "1: one"
            assert post(f"{address}/chats/bob", text="one", key="k1") == "1: one"
            assert len(server.requests) == 3
            with ThreadPoolExecutor(6) as pool:
                said = list(pool.map(lambda n: post(f"{address}/chats/eve", text=f"m{n}", key=f"k{n}"), range(6)))
    assert sorted(int(each.split(":")[0]) for each in said) == [1, 3, 5, 7, 9, 11]
    assert [each.split(": ")[1] for each in said] == [f"m{n}" for n in range(6)]
