"""The adapter itself: what it cannot do, what it cannot read, and where it looks."""

from pathlib import Path

import pytest
import yaml

from tests.conformance.adapter import pending
from tests.conformance.adapter.loader import conformance_root
from tests.conformance.selftest.trial import report_of, trial

GOOD = trial("adapter/good").text


async def test_what_the_engine_cannot_do_yet_is_told_and_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pending.NOT_RUN_YET, "observers", "nobody looks")
    report = await report_of(GOOD, tmp_path)
    assert report.pending == ["case: needs observers: nobody looks"]


async def test_a_batched_checkpointer_must_say_its_batch(tmp_path: Path) -> None:
    report = await report_of(GOOD + "checkpointer: {kind: in_memory_batched}\n", tmp_path)
    assert any("flushed at a time" in problem for problem in report.problems)


async def test_what_is_not_yaml_fails(tmp_path: Path) -> None:
    assert (await report_of("a: [", tmp_path)).problems


def test_the_place_of_the_fixtures_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path))
    assert conformance_root() == tmp_path
    monkeypatch.setenv("TENUTO_CONFORMANCE", str(tmp_path / "nowhere"))
    assert conformance_root() is None


def test_the_good_fixture_is_read_in_order() -> None:
    assert list(yaml.safe_load(GOOD)["nodes"]) == ["a", "b"]
