"""The steered turn: whatever came of the stop, the last message is answered, taken back and answered again."""

from pathlib import Path

import pytest


async def test_the_last_turn_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from shop import runtime
    from steering import main

    monkeypatch.chdir(tmp_path)
    await main()
    assert capsys.readouterr().out == "You said: No: all.\n"
    async with runtime:
        (summary,) = await runtime.list()
        session = runtime.session(summary.session_id)
        again, replaced, *_ = await session.runs()
        assert (again.status, again.run.rolled_back) == ("completed", False)
        assert (replaced.status, replaced.run.rolled_back) == ("completed", True)
        said = [each for each in await session.messages() if each.get("content") == "No: all."]
        assert len(said) == 1
