"""Two tenants of one service: the same users, and sessions of their own."""

import pytest

from apps import owners
from tenuto.errors import SessionNotFound
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database


async def test_each_tenant_has_its_own_and_a_user_continues_the_last(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(harness)
    runtime = await database.runtime(owners.chat)
    monkeypatch.setattr(owners, "runtime", runtime)
    assert await owners.say("acme", "ada", "one", "k1") == "acme, ada: one"
    assert await owners.say("globex", "ada", "two", "k1") == "globex, ada: two"
    (first,) = await owners.exported("acme")
    newer = await runtime.for_tenant("acme").create(owners.chat, user_id="ada")
    await newer.send("three")
    database.clock.advance(5)
    await runtime.for_tenant("acme").send(first, "four")
    assert await owners.say("acme", "ada", "five", "k2") == "acme, ada: five"
    assert await owners.say("acme", "bob", "six", "k1") == "acme, bob: six"
    found = await owners.exported("acme")
    assert found[first][::2] == ["one", "four", "five"]
    assert sorted(map(len, found.values())) == [2, 2, 6]
    assert list((await owners.exported("globex")).values()) == [["two", "globex, ada: two"]]
    with pytest.raises(SessionNotFound):
        await runtime.for_tenant("globex").get(first)
