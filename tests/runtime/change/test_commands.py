"""Actions as plain data."""

from dataclasses import dataclass
from typing import Any

import pytest

from tenuto.codec import dumps, loads
from tenuto.errors import InvalidInput, NotJson
from tenuto.runtime.change.action import (
    ChangeModel,
    ChangeSystemPrompt,
    ClearSession,
    Commands,
    CompleteSession,
    FailSession,
    ResumeSession,
    SuspendSession,
    UpdateTask,
    WriteMetadata,
)
from tenuto.runtime.session.definition import Task
from tenuto.runtime.session.session_view import SessionView


@dataclass(frozen=True, slots=True)
class Label:
    names: tuple[str, ...]
    ranks: list[int]

    async def apply(self, session: SessionView) -> SessionView:
        return session.with_fields(names=list(self.names), ranks=self.ranks)


@pytest.mark.parametrize(
    "action",
    [
        SuspendSession(),
        ResumeSession(),
        CompleteSession(),
        FailSession(reason="out of luck"),
        ClearSession(),
        ClearSession(logs=("messages", "notes")),
        ChangeSystemPrompt("be brief"),
        ChangeSystemPrompt(None),
        ChangeModel("m2"),
        ChangeModel(["m1", {"name": "m2"}]),
        ClearSession(keep=("notes",)),
        WriteMetadata({"a": [1, {"b": None}]}),
        WriteMetadata("a", None),
        UpdateTask("find it"),
        UpdateTask([Task(content="a", status="in_progress", active_form="doing a"), {"content": "b"}]),
        Label(("x", "y"), [2, 1]),
    ],
)
def test_an_action_comes_back_equal_from_the_inbox(action: Any) -> None:
    commands = Commands([Label])
    found = commands.read(loads(dumps(commands.record(action)), "command"))
    assert (type(found), found) == (type(action), action)


def test_an_action_the_runtime_does_not_know_cannot_be_queued() -> None:
    with pytest.raises(InvalidInput, match="Label"):
        Commands().record(Label(("x",), []))


def test_an_action_that_is_not_plain_data_cannot_be_queued() -> None:
    odd: Any = {"a": {1, 2}}
    with pytest.raises(NotJson):
        Commands().record(WriteMetadata(odd))


@pytest.mark.parametrize(
    "record",
    [
        None,
        "SuspendSession",
        {},
        {"action": "Unheard", "values": {}},
        {"action": "FailSession", "values": {"why": "other fields"}},
        {"action": "ChangeModel", "values": {}},
    ],
)
def test_a_queued_action_that_is_not_known_here_is_refused(record: Any) -> None:
    with pytest.raises(InvalidInput):
        Commands().read(record)


class Bare:
    async def apply(self, session: SessionView) -> SessionView:
        return session


@dataclass
class Idle:
    pass


@dataclass(frozen=True)
class SuspendTwin:
    async def apply(self, session: SessionView) -> SessionView:
        return session


SuspendTwin.__name__ = "SuspendSession"


@pytest.mark.parametrize("wrong", [Bare, Idle, SuspendTwin, "SuspendSession", Label(("x",), [])])
def test_only_dataclasses_with_names_of_their_own_can_be_given_as_actions(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        Commands([wrong])
