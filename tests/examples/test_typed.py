"""The typed program, and a session of its first version that it finds in the same file."""

from pathlib import Path

import pytest

from tenuto import SessionRuntime, Turn, program


async def test_the_program_counts_visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from typed import main

    await main()


async def test_a_session_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    from typed import Customer, greet

    @program(name="greet")
    async def first(turn: Turn) -> None:
        turn.state["mail"] = "a@b.c"

    url = f"sqlite:///{tmp_path}/shop.db"
    async with SessionRuntime(url, first) as runtime:
        await (await runtime.create(first, session_id="ada")).send("hi")
    async with SessionRuntime(url, greet) as runtime:
        assert (await runtime.send("ada", "hi")).result() == 1
        assert (await runtime.get("ada")).state(Customer) == Customer(email="a@b.c", visits=1)
