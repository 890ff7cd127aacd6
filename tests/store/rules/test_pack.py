"""A commit as text: measured, hashed by what it means, with ids of its own."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tenuto.errors import CommitTooLarge, InvalidInput, NotJson
from tenuto.model.commit import Append, BeginRun, Budget, EndRun, Held, NewCheckpoint, OpenWait, Reset, SettleWait
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import LogEnd, Profile, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.store.rules.commit.pack import HELD_FROM_BYTES, handle_of, pack, pack_document
from tests.store.rules.found import KEY, commit, packed

RUN: dict[str, Any] = {"run": RunRef(run_id="r")}

MEANINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a save": {"save": True},
    "a field": {"save": True, "document": {"a": 1}},
    "another field": {"save": True, "document": {"a": 2}},
    "a field removed": {"save": True, "removed": frozenset({"a"})},
    "a schema version": {"save": True, "schema_version": "2"},
    "an append": {"save": True, "logs": {"a": Append(items=(1,))}},
    "an append elsewhere": {"save": True, "logs": {"a": Append(items=(1,), base=LogEnd(1, 2, 3))}},
    "a reset": {"save": True, "logs": {"a": Reset(items=(1,))}},
    "items parted otherwise": {"save": True, "logs": {"a": Append(items=(1,)), "b": Append(items=(2, 3))}},
    "items parted so": {"save": True, "logs": {"a": Append(items=(1, 2)), "b": Append(items=(3,))}},
    "a status": {"status": SessionStatus.FAILED},
    "a title": {"profile": {"title": "T"}},
    "a resume": {"count_resume": True},
    "a run": RUN,
    "another attempt": {"run": RunRef(run_id="r", attempt=2)},
    "a new run": {"run": BeginRun(run_id="r", invocation_id="i")},
    "an end": RUN | {"end": EndRun(status=RunStatus.FAILED)},
    "an end with an error": RUN | {"end": EndRun(status=RunStatus.FAILED, error="e")},
    "a checkpoint": RUN | {"checkpoint": NewCheckpoint(step=1)},
    "a checkpoint before": RUN | {"checkpoint": NewCheckpoint(step=1, before=True)},
    "a wait": RUN | {"open_waits": (OpenWait(kind="signal"),)},
    "a wait with a deadline": RUN
    | {"open_waits": (OpenWait(kind="signal", deadline=datetime(2030, 1, 1, tzinfo=UTC)),)},
    "an answer": {"settle_waits": (SettleWait(wait_id="w", answer=1),)},
    "another answer": {"settle_waits": (SettleWait(wait_id="w", answer=2),)},
    "a wait kept": RUN | {"keep_waits": ("w",)},
    "another wait kept": RUN | {"keep_waits": ("v",)},
    "an event": {"events": (NewEvent(type="e"),)},
    "an input": {"inputs": (NewInput(kind=InputKind.MESSAGE, body=1),)},
    "a claim": {"consume": (Consume(input_id="i"),)},
    "a rollback": {"rolls_back": "r"},
    "an effect": RUN | {"effects": (StartEffect(key="k", kind=EffectKind.TOOL, request=1),)},
    "an outcome": RUN | {"effects": (FinishEffect(key="k"),)},
    "usage": {"usage": (NewUsage(model="m", input=1),)},
    "something sent": {"outgoing": (NewOutgoing(kind="k", target=KEY),)},
    "a stop seen": RUN | {"sees_stop": True},
    "a save that carries": {"save": True, "carries": True},
}


def test_what_means_something_else_has_another_intent() -> None:
    intents = {name: packed(**parts).intent for name, parts in MEANINGS.items()}
    assert len(set(intents.values())) == len(intents)


@pytest.mark.parametrize(
    "guard",
    [
        {"life": 9},
        {"operation_id": "another"},
        {"heard": "before"},
        {"expected_version": 3, "expected_commit": 4, "expected_events": 5},
        {"statuses": frozenset({SessionStatus.ACTIVE})},
    ],
    ids=str,
)
def test_guards_are_no_part_of_what_a_commit_means(guard: dict[str, Any]) -> None:
    given = commit(save=True, document={"a": 1})
    assert pack(replace(given, **guard), Budget()).intent == pack(given, Budget()).intent


def test_ids_are_minted_once_and_are_no_part_of_what_it_means() -> None:
    parts: dict[str, Any] = RUN | {
        "open_waits": (OpenWait(kind="signal"), OpenWait(kind="timer")),
        "inputs": (
            NewInput(kind=InputKind.MESSAGE, body=1),
            NewInput(kind=InputKind.MESSAGE, body=1, input_id="given"),
        ),
        "outgoing": (NewOutgoing(kind="k", target=KEY),),
    }
    first, second = packed(**parts), packed(**parts)
    minted = [
        [*(each.wait_id for each in one.waits), one.inputs[0].input_id, one.outgoing[0].outbox_id]
        for one in (first, second)
    ]
    assert len({*minted[0], *minted[1]}) == 8
    assert first.inputs[1].input_id == "given"
    assert first.intent == second.intent


def test_a_big_value_is_held_by_its_hash_and_a_small_one_inline() -> None:
    big = "x" * (HELD_FROM_BYTES - 2)
    document = pack_document({"big": big, "small": big[:-1], "known": Held(hash="h")}, "document")
    handle = handle_of(big)
    assert handle is not None
    assert document.inline == {"small": big[:-1]}
    assert document.held == {"big": handle.hash, "known": "h"}
    assert document.bodies == {handle.hash: f'"{big}"'}
    assert document.known == {"h"}
    assert handle_of(big[:-1]) is None


@pytest.mark.parametrize(
    ("budget", "parts", "measure"),
    [
        (Budget(max_bytes=9), {"save": True, "document": {"a": "1234567"}}, "bytes"),
        (Budget(max_bytes=9), {"events": (NewEvent(type="e", data="12"),)}, "bytes"),
        (Budget(max_rows=2), {"save": True, "logs": {"a": Append(items=(1, 2, 3))}}, "rows"),
        (Budget(max_rows=2), {"save": True, "document": {"a": 1, "b": 2, "c": 3}}, "fields"),
        (Budget(max_rows=2), {"save": True, "removed": frozenset("abc")}, "fields"),
    ],
)
def test_what_is_over_the_budget_is_refused_with_its_measure(
    budget: Budget, parts: dict[str, Any], measure: str
) -> None:
    with pytest.raises(CommitTooLarge) as refused:
        pack(commit(**parts), budget)
    assert refused.value.measure == measure


def test_what_just_fits_the_budget_is_taken() -> None:
    given = pack(commit(save=True, logs={"a": Append(items=(1, 2))}), Budget(max_rows=2, max_bytes=3))
    assert (given.rows, given.size) == (2, 3)


@pytest.mark.parametrize(
    "parts",
    [
        {"document": {"a": 1}},
        {"logs": {"a": Append(items=(1,))}},
        {"end": EndRun(status=RunStatus.FAILED)},
        {"sees_stop": True},
        {"disarm": True},
        {"heard": "op"},
        {"save": True, "logs": {"a": Append()}, "document": {"a": 1}},
        {"save": True, "logs": {"a/b": Append()}},
        {"profile": {"parent": "p"}},
        {"effects": (FinishEffect(key="k"),)},
        {"events": (NewEvent(type="elided"),)},
        {"inputs": (NewInput(kind=InputKind.MESSAGE, body=1, log="log", item=0),)},
    ],
    ids=str,
)
def test_parts_that_do_not_go_together_are_refused_before_anything_is_asked(parts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        packed(**parts)


def test_a_value_that_is_not_json_is_named_by_its_path() -> None:
    with pytest.raises(NotJson) as refused:
        packed(save=True, logs={"log": Append(items=(1, float("nan")))})
    assert refused.value.path == "log[1]"


def test_a_create_is_measured_and_meant_with_its_profile() -> None:
    plain, titled = (pack(commit(save=True), Budget(), Profile(title=title)) for title in (None, "T"))
    assert titled.size == plain.size + 1
    assert titled.intent != plain.intent
