"""A chat in the terminal: it remembers, streams, and answers what a killed process was asked."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tenuto.testing import Answer, Provider, provider
from tests.examples.apps import PATIENCE
from tests.examples.beside.pairs import both, command_of, environment, ran

pytestmark = [pytest.mark.long("it starts processes that import whole frameworks"), pytest.mark.timeout(600)]


def echo(body: Mapping[str, Any]) -> Any:
    """Say how many messages the request has, and the last of them."""
    assert body["stream"], "it is not streamed"
    return f"{len(body['messages'])}: {body['messages'][-1]['content']}"


@contextmanager
def asked(name: str, line: bytes, folder: Path, server: Provider) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the chat, with a line typed in; kill it at the end of the block."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command_of(name, "ada"), stdin=pipe, stdout=pipe, cwd=folder, env=environment(server.url)
    )
    with process:
        try:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
            yield process
        finally:
            process.kill()


@both("chat", "openai")
def test_it_remembers_and_answers_what_a_killed_process_was_asked(name: str, tmp_path: Path) -> None:
    held = [True]

    def says(body: Mapping[str, Any]) -> Any:
        said = echo(body)
        last = body["messages"][-1]["content"]
        return (
            Answer(message={"role": "assistant", "content": said}, hold=True) if held[0] and last == "third" else said
        )

    with provider(says) as server:
        assert ran(name, "ada", folder=tmp_path, provider=server.url, said="first\nsecond\n") == [
            "1: first",
            "3: second",
        ]
        with asked(name, b"third\n", tmp_path, server):
            server.wait_for(3, within=PATIENCE)
        held[0] = False
        printed = [
            line.rpartition("> ")[2] for line in ran(name, "ada", folder=tmp_path, provider=server.url, said="last\n")
        ]
        assert printed == ["first", "1: first", "second", "3: second", "third", "5: third", "7: last"]
        assert ran(name, "bob", folder=tmp_path, provider=server.url, said="hello\n") == ["1: hello"]


@both("chat", "openai")
def test_text_is_printed_as_it_comes(name: str, tmp_path: Path) -> None:
    slow = Answer(message={"role": "assistant", "content": "one two three"}, pace=1.0)
    with provider(slow) as server, asked(name, b"count\n", tmp_path, server) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 100)
        process.stdin.close()
        rest = process.stdout.read()
    assert first
    assert rest.strip()
    assert (first + rest).decode().strip() == "one two three"
