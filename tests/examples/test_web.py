"""The shop on FastAPI, by real servers: two worker processes share one file, and a stream is followed over HTTP."""

from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.examples.apps import PATIENCE, free_port, post, serving

pytestmark = [pytest.mark.wide, pytest.mark.long("it starts real servers")]


def events(address: str, after: int, wanted: str) -> list[dict[str, str]]:
    """Return the server-sent events after a cursor, up to one of a type."""
    found: list[dict[str, str]] = []
    with urlopen(Request(address, headers={"Last-Event-ID": str(after)}), timeout=PATIENCE) as stream:
        block: dict[str, str] = {}
        for line in stream:
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(": ")
                block[name] = value
                continue
            found.append(block)
            if block["event"] == wanted:
                return found
            block = {}
    raise AssertionError("the stream ended")


def test_two_workers_answer_and_a_reader_follows(tmp_path: Path) -> None:
    port = free_port()
    command = ("uvicorn", "web:app", "--port", str(port), "--workers", "2", "--log-level", "warning")
    with serving(tmp_path, *command, port=port) as address:
        inputs = [post(f"{address}/chats/ada?text=hello%20{n}&key=k{n}") for n in range(6)]
        assert post(f"{address}/chats/ada?text=hello%200&key=k0") == inputs[0]
        ends: list[dict[str, str]] = []
        cursor = 0
        while len(ends) < len(inputs):
            more = events(f"{address}/chats/ada/events", cursor, "end")
            ends.append(more[-1])
            cursor = int(more[-1]["id"])
        assert all('"status":"completed"' in end["data"] for end in ends)
        assert len(set(inputs)) == len(inputs)
