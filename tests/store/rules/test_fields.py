"""What each field of a commit's parts may be: nasty values are refused by the field's whole name."""

from dataclasses import dataclass, fields
from typing import Any

import pytest

from tenuto.errors import InvalidInput
from tenuto.model.commit import Append, Commit, EndRun, OpenWait
from tenuto.model.effect import EffectKind, StartEffect
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import LogEnd, SessionStatus
from tenuto.store.rules.fields import COMMIT, RUN_REF, Shape, check_end
from tenuto.store.rules.limits import MAX_COUNT, MAX_NAME_BYTES, check_count
from tests.store.rules.found import commit


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"key": "ada"}, "key"),
        ({"operation_id": ""}, "operation_id"),
        ({"operation_id": "x" * (MAX_NAME_BYTES + 1)}, "operation_id"),
        ({"life": True}, "life"),
        ({"life": -1}, "life"),
        ({"generation": 2**53}, "generation"),
        ({"expected_version": "1"}, "expected_version"),
        ({"save": 1}, "save"),
        ({"document": []}, "document"),
        ({"removed": ["a"]}, "removed"),
        ({"status": SessionStatus.DELETED}, "status"),
        ({"status": "lost"}, "status"),
        ({"run": "run-1"}, "run"),
        ({"run": RunRef(run_id="r", attempt=-1)}, "run.attempt"),
        ({"logs": {"log": [1]}}, "log"),
        ({"logs": {"log": Append(items="ab")}}, "log.items"),  # type: ignore[arg-type]
        ({"logs": {"log": Append(base=(1, 2, 3))}}, "log.base"),  # type: ignore[arg-type]
        ({"logs": {"": Append()}}, "a name in logs"),
        ({"end": EndRun(status=RunStatus.RUNNING)}, "end.status"),
        ({"open_waits": (OpenWait(kind="k"), OpenWait(kind="k", timeout=0.0))}, "open_waits[1].timeout"),
        ({"effects": (StartEffect(key="k", kind=EffectKind.TOOL, request=1, step=-1),)}, "effects[0].step"),
        ({"effects": ("k",)}, "effects[0]"),
        ({"events": "ab"}, "events"),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_refused_by_its_name(parts: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        COMMIT(commit(**parts))
    assert named in refused.value.message


def test_every_field_of_a_commit_has_its_check() -> None:
    assert {name for name, *_ in COMMIT._rows} == {each.name for each in fields(Commit)}


def test_a_field_at_its_default_is_not_looked_at() -> None:
    @dataclass
    class Point:
        count: int = -1

    RUN_REF(RunRef(run_id="r"))
    COMMIT(commit())
    Shape(Point)(Point())
    with pytest.raises(InvalidInput):
        Shape(Point)(Point(count=-2))


def test_another_class_is_refused_whatever_its_fields() -> None:
    class Other(RunRef):
        pass

    with pytest.raises(InvalidInput):
        RUN_REF(Other(run_id="r"), "run")


@pytest.mark.parametrize("value", [0, MAX_COUNT])
def test_a_count_reaches_from_nothing_to_its_limit(value: int) -> None:
    assert check_count(value, "n") == value


@pytest.mark.parametrize("end", [(1, 2, 3), None, LogEnd(1, 2, -1), LogEnd(1, 2, 2**53)], ids=str)
def test_a_point_in_a_log_has_three_counts(end: Any) -> None:
    with pytest.raises(InvalidInput):
        check_end(end, "log")
