"""The chat of one message, by the real client against a provider that answers by a script."""

from pathlib import Path

import pytest

from tenuto.testing import provider
from tests.examples.beside.pairs import ran
from tests.examples.programs import EXAMPLES

pytestmark = [pytest.mark.wide, pytest.mark.long("it starts processes that import the client")]


def test_each_start_says_one_message_and_streams_the_reply(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with provider("It will.", "It still will.") as server:
        for reply in ("It will.", "It still will."):
            (line,) = ran(EXAMPLES / "a_chat.py", folder=tmp_path, provider=server.url, said="Will it rain?\n")
            assert line == f"> {reply}"
        messages = server.requests[1]["body"]["messages"]
    assert [each["content"] for each in messages] == ["Will it rain?", "It will.", "Will it rain?"]
