"""Loading while others delete: what is read piece by piece is still of one instant, or none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tenuto.store.backend import View
from tenuto.store.store import Store
from tenuto.testing.factories import a_session
from tests.conftest import OurHarness


class _Interrupted:
    """A look at the store during which something happens after its first read."""

    def __init__(self, inner: View, happen: Any) -> None:
        self._inner = inner
        self._happen = happen

    async def read(self, name: str, *params: object) -> Any:
        rows = await self._inner.read(name, *params)
        if name == "record_by_key":
            await self._happen()
        return rows


@pytest.mark.parametrize("harness", ["postgres"], indirect=True)  # SQLite's looks always see one instant
@pytest.mark.parametrize("again", [False, True])
async def test_a_session_that_is_deleted_while_it_is_loaded_is_none_or_the_one_made_anew(
    harness: OurHarness, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    store, other = await harness.open(), await harness.open()
    key, _ = await a_session(store, None, "a", "b")
    view = store.backend.view
    looks: list[bool] = []

    async def happen() -> None:
        await other.delete(key)
        if again:
            await other.create(key, state={"messages": ["new"]}, logs={"messages"})

    @asynccontextmanager
    async def looking(*, at_one_instant: bool = True) -> AsyncIterator[Any]:
        looks.append(at_one_instant)
        async with view(at_one_instant=at_one_instant) as found:
            yield found if at_one_instant else _Interrupted(found, happen)

    monkeypatch.setattr(store.backend, "view", looking)
    record = await store.load(key)
    assert looks == [False, True]
    assert (record and record.state) == ({"messages": ["new"]} if again else None)


async def test_what_is_there_is_loaded_without_a_second_look(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _ = await a_session(store, None, "a", "b")
    view = store.backend.view
    looks: list[bool] = []

    def looking(*, at_one_instant: bool = True) -> Any:
        looks.append(at_one_instant)
        return view(at_one_instant=at_one_instant)

    monkeypatch.setattr(store.backend, "view", looking)
    record = await store.load(key)
    assert record is not None
    assert (record.state["messages"], looks) == (["a", "b"], [False])
