"""What a program learns of its children: what they returned, typed; what they said; or why they failed."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tenuto import AskChild, Store, Turn, WaitFor, program
from tenuto.errors import ChildFailed, InvalidInput
from tenuto.model.outgoing_item import OutboxKind
from tenuto.types import ChildResult
from tests.conftest import OurHarness
from tests.runtime.runtimes import Database, opened


class Offer(BaseModel):
    price: Decimal = Field(alias="eur")


@program
async def offers(turn: Turn) -> Offer:
    turn.append(f"An offer for {turn.text}.")
    return Offer(eur=Decimal("9.90"))


@program
async def says(turn: Turn) -> None:
    turn.append(f"About {turn.text}.")


@program
async def fails(turn: Turn) -> int:
    raise ValueError(turn.text)


async def test_children_and_signals_are_waited_for_together_and_each_result_has_its_type(harness: OurHarness) -> None:
    got: list[Any] = []

    @program
    async def buys(turn: Turn) -> None:
        offer, said, failed, sure = await turn.wait_all(
            AskChild(offers, "tea"), AskChild("says", "milk"), AskChild(fails, "x"), WaitFor("sure?", returns=bool)
        )
        again = await turn.child(offers, "more", session_id=offer.session_id)
        got.append((offer, said, failed, sure, again))

    runtime = await Database(harness).runtime(buys, offers, says, fails)
    session = await runtime.create(buys, session_id="s")
    waits = (await session.send("go")).waits
    assert [wait.kind for wait in waits] == ["child", "child", "child", "signal"]
    await session.answer(waits[3], True)
    await runtime.drain()
    ((offer, said, failed, sure, again),) = got
    assert (offer.result(), offer.text, offer.error) == (Offer(eur=Decimal("9.90")), "An offer for tea.", None)
    assert (said.result(), said.text) == (None, "About milk.")
    assert sure is True
    assert (again.session_id, again.text) == (offer.session_id, "An offer for more.")
    assert (failed.output, failed.error["category"]) == (None, "ValueError")
    with pytest.raises(ChildFailed, match="x") as refused:
        failed.result()
    assert refused.value.public_details() == {"session_id": failed.session_id}
    assert (await session.runs())[0].status == "completed"


async def test_a_child_that_cannot_be_waited_for_is_not_asked(store: Store) -> None:
    """A turn that handles the refusal leaves nothing behind that a later commit would send."""

    @program
    async def asks(turn: Turn) -> str:
        async def call() -> str:
            with pytest.raises(InvalidInput, match="inside its call"):
                await turn.child(says, "never")
            return "called"

        return await turn.effect("e", call)

    runtime = await opened(store, [asks, says])
    session = await runtime.create(asks, session_id="s")
    assert (await session.send("go")).output == "called"
    assert [item for item in await runtime.store.outbox.pending() if item.kind == OutboxKind.CHILD] == []


async def test_an_output_that_does_not_fit_the_annotation_fails_the_turn(store: Store) -> None:
    @program
    async def wrong(turn: Turn) -> int:
        return "many"  # type: ignore[return-value]

    @program
    async def unread(turn: Turn) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return {"any": "thing"}

    runtime = await opened(store, [wrong, unread])
    await runtime.create(wrong, session_id="s")
    outcome = await runtime.send("s", "go")
    assert (outcome.status, outcome.error["category"]) == ("failed", "invalid_input")
    assert "annotation" in outcome.error["message"]
    await runtime.create(unread, session_id="u")
    assert (await runtime.send("u", "go")).output == {"any": "thing"}


def test_a_result_of_a_child_is_data() -> None:
    assert ChildResult(session_id="c", output=3) == ChildResult(session_id="c", output=3)
    assert ChildResult(session_id="c", output=3).result() == 3
    assert repr(AskChild(says, "x")) == "<wait for child>"
