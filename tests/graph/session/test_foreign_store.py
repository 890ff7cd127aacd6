"""What a session store of the user's own must have."""

from typing import Any

import pytest

from tenuto import open_store
from tenuto.errors import InvalidInput
from tenuto.graph import SessionStore
from tenuto.graph.session.foreign_store import check_session_store


class Four:
    async def load(self, session_id: str) -> Any: ...

    async def save(self, session_id: str, record: Any) -> Any: ...

    async def delete(self, session_id: str) -> Any: ...

    async def list(self, filter: Any = None) -> Any: ...  # noqa: A002


class Guarded(Four):
    async def save(self, session_id: str, record: Any, **options: Any) -> Any: ...


class Locking(Four):
    async def acquire_lock(self, session_id: str) -> None: ...

    async def release_lock(self, session_id: str) -> None: ...


async def test_four_methods_make_a_session_store_and_ours_has_them() -> None:
    check_session_store(Four(), "last_write_wins")
    assert isinstance(Four(), SessionStore)
    async with open_store("memory://") as store:
        assert isinstance(store, SessionStore)
        check_session_store(store, "optimistic")


@pytest.mark.parametrize("missing", ["load", "save", "delete", "list"])
def test_what_is_missing_is_named(missing: str) -> None:
    store = Four()
    setattr(store, missing, None)
    with pytest.raises(InvalidInput, match=missing) as raised:
        check_session_store(store, "last_write_wins")
    assert raised.value.details()["missing"] == [missing]
    assert raised.value.category == "invalid_input"


def test_exclusive_needs_both_halves_of_a_lock() -> None:
    check_session_store(Locking(), "exclusive")
    half = Locking()
    half.release_lock = None  # type: ignore[method-assign, assignment]
    with pytest.raises(InvalidInput) as raised:
        check_session_store(half, "exclusive")
    assert raised.value.details()["missing"] == ["release_lock"]


def test_optimistic_needs_a_save_that_takes_the_expected_version() -> None:
    check_session_store(Guarded(), "optimistic")
    with pytest.raises(InvalidInput, match="expected_version"):
        check_session_store(Four(), "optimistic")
