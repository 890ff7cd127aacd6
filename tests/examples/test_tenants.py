"""Two tenants of the shop: each finds its own chats, and one list has what waits in both."""

import pytest

import tenants
from shop import support
from tenuto.errors import SessionNotFound
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database


async def test_a_chat_of_one_tenant_is_unknown_to_the_other_and_one_list_has_all_approvals(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime = await Database(harness).runtime(support)
    acme, globex = runtime.for_tenant("acme"), runtime.for_tenant("globex")
    chat = await tenants.last_chat(acme, "ada")
    assert await tenants.last_chat(acme, "ada") == chat
    assert await tenants.last_chat(globex, "ada") != chat
    await acme.send(chat, "refund 7")
    await globex.send(await tenants.last_chat(globex, "ada"), "refund 8")
    monkeypatch.setattr(tenants, "runtime", runtime.using(await harness.open()))
    with pytest.raises(SessionNotFound):
        await tenants.main()
    waits = await runtime.across_tenants().waits(kind="approval")
    assert [(each.tenant, each.tool, each.arguments) for each in waits] == [
        ("acme", "refund", {"order": "7"}),
        ("globex", "refund", {"order": "8"}),
    ]
