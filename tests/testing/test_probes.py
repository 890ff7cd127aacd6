"""The probes see every statement, and find a backend that leaves half of a failed act behind."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from tenuto.errors import StoreUnavailable
from tenuto.store.store import Store
from tenuto.testing.probes import fail_at_each_statement, failing, statements


class _Store:
    """Runs two statements; what its first one writes is undone when the second fails, unless it is careless."""

    def __init__(self, *, careless: bool = False, deaf: bool = False) -> None:
        self.probe: Callable[[str], None] | None = None
        self.backend = self
        self.rows: list[str] = []
        self._careless = careless
        self._deaf = deaf

    async def dump(self) -> dict[str, list[str]]:
        return {"rows": list(self.rows)}

    async def act(self) -> str:
        before = list(self.rows)
        try:
            for name in ("first", "second"):
                if self.probe:
                    self.probe(name)
                self.rows.append(name)
        except StoreUnavailable:
            if not self._careless:
                self.rows = before
            if not self._deaf:
                raise
        return "done"


def _as_store(made: _Store) -> Store:
    return cast("Store", cast("Any", made))


async def test_statements_are_seen_by_name_and_the_former_probe_comes_back() -> None:
    made = _Store()
    with statements(_as_store(made)) as outer:
        with statements(_as_store(made)) as inner:
            await made.act()
        await made.act()
    assert (outer, inner, made.probe) == (["first", "second"], ["first", "second"], None)


async def test_the_nth_statement_fails() -> None:
    made = _Store()
    with failing(_as_store(made), 2) as seen, pytest.raises(StoreUnavailable, match="before second"):
        await made.act()
    assert (seen, made.rows) == (["first", "second"], [])


async def test_an_act_that_leaves_nothing_behind_ends_with_its_result() -> None:
    made = _Store()
    assert await fail_at_each_statement(_as_store(made), made.act) == ("done", ["first", "second"])


async def test_what_a_failed_act_leaves_behind_is_found() -> None:
    made = _Store(careless=True)
    with pytest.raises(AssertionError, match="a failure before second left something behind"):
        await fail_at_each_statement(_as_store(made), made.act)


async def test_a_failure_that_is_swallowed_is_found() -> None:
    made = _Store(deaf=True)
    with pytest.raises(AssertionError, match="the failure before first was swallowed"):
        await fail_at_each_statement(_as_store(made), made.act)
