"""The shop's runtime, opened as the file declares it."""

from pathlib import Path

import pytest


async def test_a_tool_an_approval_and_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from shop import runtime, support

    async with runtime:
        session = await runtime.create(support, session_id="ada")
        assert (await session.send("look_up 7")).text == 'You said: {"order":"7","status":"sent"}'
        asked = await session.send("refund 7")
        (wait,) = asked.waits
        assert (asked.status, wait.kind, wait.metadata["tool"]) == ("suspended", "approval", "refund")
        wrong = await runtime.create(support, session_id="bob")
        assert "order: Field required" in (await wrong.send("refund")).text
    async with runtime:  # the process may have ended in between
        answered = await runtime.answer(wait, True)
        assert answered.outcome is not None
        assert answered.outcome.text == "You said: refunded order 7"
        assert (await runtime.get("ada")).document == {"refunded": "7"}
        located = await runtime.send("ada", "locate")
        answered = await runtime.answer(located.waits[0], [48.2, 16.4])
        assert answered.outcome is not None
        assert answered.outcome.text == "You said: [48.2,16.4]"
