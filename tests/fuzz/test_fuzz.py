"""Every verb with nasty values, a sample of the matrix; `make fuzz` drives all of it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenuto.ids import new_id
from tenuto.store.store import Store
from tests.fuzz.driver import Fuzzer
from tests.fuzz.nasty import CLASSES
from tests.fuzz.places import missing, places
from tests.fuzz.world import Ground

COUNT = 125
SEEDS = tuple(range(1, 17))
"""Sixteen parts, so that none takes long: 2,000 calls on each backend."""


@pytest.fixture
def any_number() -> Iterator[None]:
    """Let integers of any length be shown, for a digest of them."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """Where worlds are made, with one second process for all of them."""
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    found = Ground(request.param, tmp_path_factory.mktemp("fuzz"), server)
    yield found
    found.end()


def test_every_verb_and_action_has_a_recipe() -> None:
    assert missing() == []


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
async def test_every_recipe_is_accepted_as_it_stands(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A call that is refused anyway would prove nothing about a nasty value in it."""
    server = request.getfixturevalue("postgres") if name == "postgres" else None
    fuzzer = Fuzzer(Ground(name, tmp_path, server), count=0, seed=1)
    await fuzzer.check_recipes()
    assert fuzzer.faults == []


def test_no_row_of_the_matrix_is_there_twice() -> None:
    names = [place.name for place in places()]
    assert len(names) == len(set(names))
    assert len(CLASSES) >= 20


@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize("seed", SEEDS)
async def test_nasty_values_are_refused_or_come_out_as_they_went_in(ground: Ground, seed: int) -> None:
    fuzzer = Fuzzer(ground, count=COUNT, seed=seed)
    await fuzzer.run()
    assert fuzzer.is_clean, fuzzer.report()
    assert fuzzer.calls == COUNT


def _seeded(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """Let one verb misbehave: raise an untyped error, write what it refuses, or keep something else."""
    honest = Store.create

    async def create(self: Store, key: Any, **given: Any) -> Any:
        if bug == "untyped" and given.get("schema_version") != "1":
            raise AttributeError("not ours")
        if bug == "unequal" and isinstance(state := given.get("state"), dict):
            given["state"] = {name: "x" for name in state if isinstance(name, str)}
        if bug == "written" and given.get("schema_version") != "1":
            await honest(self, new_id())
        return await honest(self, key, **given)

    monkeypatch.setattr(Store, "create", create)


@pytest.mark.usefixtures("any_number")
@pytest.mark.parametrize("bug", ["untyped", "written", "unequal"])
async def test_a_seeded_bug_is_found(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind one, in one verb: a fuzzer that finds nothing there would find nothing anywhere."""
    wanted = [place for place in places() if place.name in ("store.create.schema_version", "store.create.state")]
    monkeypatch.setattr("tests.fuzz.driver.places", lambda: wanted)
    _seeded(monkeypatch, bug)
    ground = Ground("sqlite", tmp_path)
    fuzzer = Fuzzer(ground, count=100, seed=1)
    try:
        await fuzzer.run()
    finally:
        ground.end()
    assert {fault.kind for fault in fuzzer.faults} == {bug}
