"""What a session's program is, as plain data."""

from typing import Any

import pytest

from tenuto.codec import dumps, loads
from tenuto.errors import InvalidInput
from tenuto.runtime.session.definition import Definition, Task

WHOLE = Definition(
    name="helper",
    version="2",
    label="The helper",
    system_prompt="be kind",
    model={"name": "m", "options": [1, 2]},
    tools=("look", "buy"),
    tasks=(Task(content="a"), Task(content="b", status="in_progress", active_form="doing b")),
    options={"depth": 3},
)


@pytest.mark.parametrize("definition", [WHOLE, Definition(name="plain"), Definition(name="none", tools=())])
def test_a_definition_reads_back_equal_from_json_text(definition: Definition) -> None:
    assert Definition.read(loads(dumps(definition.record()), "definition")) == definition


def test_no_tools_and_all_tools_are_told_apart() -> None:
    for tools in ((), None):
        definition = Definition(name="a", tools=tools)
        assert Definition.read(definition.record()) == definition


def test_the_label_falls_back_to_the_name() -> None:
    assert Definition(name="helper").label == "helper"
    assert Definition(name="helper", label="Helper").label == "Helper"


def test_lists_become_tuples_so_that_definitions_compare() -> None:
    given: Any = ["look"]
    assert Definition(name="a", tools=given) == Definition(name="a", tools=("look",))


@pytest.mark.parametrize(
    "parts",
    [
        {"name": ""},
        {"name": "a", "version": ""},
        {"name": 5},
        {"name": "a", "label": 5},
        {"name": "a", "system_prompt": 5},
        {"name": "a", "tools": "look"},
        {"name": "a", "tools": [""]},
        {"name": "a", "tools": [1]},
        {"name": "a", "tasks": (Task(content=""),)},
        {"name": "a", "tasks": (Task(content="a", status="done"),)},
    ],
)
def test_a_definition_that_makes_no_sense_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Definition(**parts)


def tasks(count: int, under_way: int = 0) -> tuple[Task, ...]:
    return tuple(
        Task(content=f"task {number}", status="in_progress" if number < under_way else "pending")
        for number in range(count)
    )


def test_twenty_tasks_pass_with_one_in_progress() -> None:
    assert len(Definition(name="a", tasks=tasks(20, under_way=1)).tasks) == 20


@pytest.mark.parametrize("wrong", [tasks(21), tasks(2, under_way=2)])
def test_more_than_twenty_tasks_or_two_in_progress_are_refused(wrong: tuple[Task, ...]) -> None:
    with pytest.raises(InvalidInput):
        Definition(name="a", tasks=wrong)


@pytest.mark.parametrize(
    "record",
    [
        None,
        "helper",
        {},
        {"name": "helper"},
        {"name": 5, "version": "1"},
        {"name": "a", "version": "1", "tasks": [["content only"]]},
        {"name": "a", "version": "1", "tools": 5},
    ],
)
def test_a_record_that_cannot_be_a_definition_is_read_as_none(record: Any) -> None:
    assert Definition.read(record) is None
