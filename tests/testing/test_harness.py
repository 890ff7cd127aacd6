"""A test that needs a capability is skipped where the harness lacks it, and says which."""

from inspect import signature
from typing import Any, cast

import pytest

from tenuto.testing.harness import Capability, Harness, needs


class _Harness:
    name = "small"
    address = None
    options: dict[str, Any] = {}
    capabilities = frozenset({Capability.PROBES})


HARNESS = cast("Harness", _Harness())


async def test_a_test_runs_where_the_harness_has_all_it_needs() -> None:
    seen = []

    @needs(Capability.PROBES)
    async def test(harness: Harness, number: int) -> None:
        seen.append((harness, number))

    await test(harness=HARNESS, number=1)
    assert seen == [(HARNESS, 1)]


async def test_a_test_is_skipped_with_a_sentence_that_names_what_is_lacking() -> None:
    @needs(Capability.PROBES, Capability.TRIGGERS)
    async def test(number: int) -> None:
        raise AssertionError(number)

    with pytest.raises(pytest.skip.Exception, match="small lacks the capability TRIGGERS, which this test needs"):
        await test(harness=HARNESS, number=1)


def test_a_test_that_takes_no_harness_is_given_one_to_decide_by() -> None:
    @needs(Capability.PROBES)
    async def test(store: object) -> None: ...

    assert list(signature(test).parameters) == ["store", "harness"]
    assert test.__name__ == "test"
