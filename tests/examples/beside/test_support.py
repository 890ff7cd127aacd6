"""A shop's support: what waits for a person or a browser outlives the server, and nothing is done twice."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from tenuto.testing import Provider, provider
from tests.examples.apps import PATIENCE, free_port, serving
from tests.examples.beside.pairs import both, environment, path_of

pytestmark = [
    pytest.mark.wide,
    pytest.mark.long("it starts servers that import whole frameworks"),
    pytest.mark.timeout(600),
]


def model(body: Mapping[str, Any]) -> Any:
    """Call every tool if the customer wants a refund; else repeat what was said last."""
    said: list[Mapping[str, Any]] = body["messages"]
    last = said[-1]
    if last["role"] == "user" and last["content"].startswith("refund"):
        order = last["content"].split()[1]
        calls = [("look_up", {"order": order}), ("refund", {"order": order}), ("locate", {})]
        made = [{"id": f"{name}{len(said)}", "name": name, "arguments": given} for name, given in calls]
        return {"role": "assistant", "content": "", "tool_calls": made}
    if last["role"] == "tool":
        results = sorted(each["content"] for each in said if each["role"] == "tool")
        return f"Done: {', '.join(results)}."
    return f"{len(said)}: {last['content']}"


def served(name: str, folder: Path, server: Provider) -> AbstractContextManager[str]:
    """Run the service until the block ends."""
    port = free_port()
    command = ("uvicorn", f"{name}:app", "--app-dir", str(path_of(name).parent), "--port", str(port))
    return serving(folder, *command, port=port, env=environment(server.url))


def ask(address: str, value: Any = None) -> Any:
    """Post JSON and return the answer's; or get it, if there is nothing to post."""
    data = None if value is None else json.dumps(value).encode()
    headers = {"content-type": "application/json"}
    with urlopen(Request(address, data=data, headers=headers), timeout=PATIENCE) as answer:
        return json.load(answer)


def say(address: str, chat: str, text: str, key: str) -> Any:
    return ask(f"{address}/chats/{chat}?text={quote(text)}&key={key}", {})


@both("support", "openai", "fastapi", "uvicorn")
def test_a_refund_is_approved_after_a_restart_and_made_once(name: str, tmp_path: Path) -> None:
    with provider(model) as server:
        with served(name, tmp_path, server) as address:
            assert say(address, "ada", "refund 7", "k1") == ""
            assert say(address, "bob", "hello", "k1") == "1: hello"
        with served(name, tmp_path, server) as address:
            waits = {each["tool"]: each for each in ask(f"{address}/waits")}
            assert {tool: each["arguments"] for tool, each in waits.items()} == {"refund": {"order": "7"}, "locate": {}}
            assert ask(f"{address}/waits/{waits['refund']['id']}", True) == ""
            reply = "Done: Wien, order 7 is paid back, order 7 was sent."
            assert ask(f"{address}/waits/{waits['locate']['id']}", "Wien") == reply
            assert ask(f"{address}/waits") == []
            asked = len(server.requests)
            assert say(address, "bob", "hello", "k1") == "1: hello"
            assert len(server.requests) == asked
        assert (tmp_path / "refunds.log").read_text() == "7\n"


@both("support", "openai", "fastapi", "uvicorn")
def test_messages_that_come_at_once_are_answered_one_after_the_other(name: str, tmp_path: Path) -> None:
    with provider(model) as server, served(name, tmp_path, server) as address, ThreadPoolExecutor(5) as pool:
        said = list(pool.map(lambda n: say(address, "ada", f"hello {n}", f"k{n}"), range(5)))
        found = sorted((int(each.split(":")[0]), each.split(": ")[1]) for each in said)
        assert [count for count, _ in found] == [1, 3, 5, 7, 9]
        assert {text for _, text in found} == {f"hello {n}" for n in range(5)}
