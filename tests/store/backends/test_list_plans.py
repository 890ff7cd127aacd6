"""Lists of waits and schedules are read from an index: what they leave out is not looked at, and nothing is sorted."""

import re
from pathlib import Path

import apsw
import pytest

from tenuto import open_store
from tenuto.store.backends.sql import queries

INDEXES = {
    "open_waits": "wait_open",
    "open_waits_of_tenant": "wait_open_tenant",
    "open_waits_of_kind": "wait_open_kind",
    "open_waits_of_graph": "wait_open_graph",
    "open_waits_of_user": "profile_user",
    "waits_of_tree": "profile_parent",
    "all_schedules": "sqlite_autoindex_schedule_1",
    "schedules_of_tenant": "schedule_tenant",
    "paused_schedules": "schedule_paused",
    "paused_schedules_of_tenant": "schedule_paused_tenant",
}


@pytest.mark.parametrize("name", INDEXES)
async def test_a_list_is_read_from_its_index(tmp_path: Path, name: str) -> None:
    async with open_store(f"sqlite:///{tmp_path}/a.db"):
        pass
    query = queries("sqlite")[name]
    given = [None] * max(int(each) for each in re.findall(r"\?(\d+)", query))
    connection = apsw.Connection(str(tmp_path / "a.db"))
    steps = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", given)]
    connection.close()
    assert any(f"INDEX {INDEXES[name]} " in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN ") and step != "SCAN b"], steps
    assert "schedule" not in name or not [step for step in steps if "TEMP B-TREE" in step], steps
