"""The guards of a commit: each refuses by its own type, in one order, and what passes all of them is written."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tenuto.errors import (
    ClaimLost,
    CommitMoved,
    CommitRefused,
    EffectMismatch,
    EffectNotOpen,
    InvocationExists,
    LaneBusy,
    LaneLost,
    OperationConflict,
    RunNotLive,
    SessionDeleted,
    StatusRefused,
    StopRequested,
    StopWithdrawn,
    StreamMoved,
    TenutoError,
    VersionConflict,
    WaitNotOpen,
)
from tenuto.model.commit import BeginRun, EndRun, Held, SettleWait, TakeRun
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import Rearm
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import SessionStatus
from tenuto.store.rules.commit.write import decide_commit
from tenuto.store.rules.parts.effect_rules import pack_effect
from tenuto.store.rules.plan import EffectPlace, Found
from tenuto.store.rules.rows import EffectRow
from tests.store.rules.found import (
    COMMIT,
    EVENTS,
    GENERATION,
    LIFE,
    NOW,
    SID,
    VERSION,
    held,
    nothing,
    packed,
    queued,
    receipt,
    run,
    session,
    wait,
)

LANED: dict[str, Any] = {"generation": GENERATION, "run": RunRef(run_id="run-1", attempt=2)}
STOP = '{"kind":"interrupt","reason":null,"at":1,"seen_at":null}'
ASKED = StartEffect(key="pay", kind=EffectKind.TOOL, request=1)


def laned(**more: Any) -> Found:
    """Return what is found of a session whose run is under way under its lane."""
    return nothing(**{"session": held(current_run="run-1"), "run": run(), **more})


def effect(**changes: Any) -> EffectRow:
    row = EffectRow(
        session=SID,
        life=LIFE,
        origin_id="inv-1",
        namespace="",
        step=0,
        key="pay",
        kind="tool",
        digest=pack_effect(ASKED, "effect").digest,
        request="1",
        result=None,
        status="started",
        idempotent=0,
        error=None,
        call_id=None,
        run_id="run-1",
        attempt=2,
        started_at=NOW,
        ended_at=None,
    )
    return row._replace(**changes)


PLACE = EffectPlace("inv-1", "", 0, "pay")

REFUSED: dict[str, tuple[type[TenutoError], Found, dict[str, Any]]] = {
    "another life": (SessionDeleted, nothing(session=session()), {"life": LIFE - 1}),
    "another intent": (OperationConflict, nothing(session=session(), receipt=receipt("other")), {}),
    "a save under somebody's lane": (LaneBusy, nothing(session=held()), {"save": True}),
    "another generation": (LaneLost, laned(), LANED | {"generation": GENERATION - 1}),
    "a disarmed lane": (LaneLost, laned(session=session(current_run="run-1")), LANED),
    "a rearm of a lane that is held": (
        LaneLost,
        nothing(session=held()),
        {"generation": GENERATION, "expected_commit": COMMIT, "rearm": Rearm(nonce="m", ttl=5.0)},
    ),
    "a rearm at another commit": (
        LaneLost,
        nothing(session=session()),
        {"generation": GENERATION, "expected_commit": COMMIT - 1, "rearm": Rearm(nonce="m", ttl=5.0)},
    ),
    "an unknown run": (RunNotLive, laned(run=None), LANED),
    "another session's run": (RunNotLive, laned(run=run(session=SID + 1)), LANED),
    "a run of a former life": (RunNotLive, laned(run=run(life=LIFE - 1)), LANED),
    "an ended run": (RunNotLive, laned(run=run(status="completed")), LANED),
    "another attempt": (RunNotLive, laned(run=run(attempt=3)), LANED),
    "a run that is not current": (RunNotLive, laned(session=held(current_run="run-0")), LANED),
    "a laned run without its lane": (LaneLost, nothing(session=session(), run=run()), {"run": LANED["run"]}),
    "a run that is still renewed": (
        RunNotLive,
        nothing(session=session(), run=run(generation=None, expires_at=NOW + 1)),
        {"run": TakeRun(run_id="run-1", attempt=2)},
    ),
    "a run id that is used": (
        CommitRefused,
        laned(),
        {"generation": GENERATION, "run": BeginRun(run_id="run-1", invocation_id="inv-2")},
    ),
    "an invocation id that is used": (
        InvocationExists,
        laned(run=None, chain=[run()]),
        {"generation": GENERATION, "run": BeginRun(run_id="run-2", invocation_id="inv-1")},
    ),
    "an end that passes over a stop": (
        StopRequested,
        laned(run=run(stop=STOP)),
        LANED | {"end": EndRun(status=RunStatus.COMPLETED)},
    ),
    "a stop that was withdrawn": (StopWithdrawn, laned(), LANED | {"sees_stop": True}),
    "another status": (
        StatusRefused,
        nothing(session=session(status="failed")),
        {"statuses": frozenset({SessionStatus.ACTIVE})},
    ),
    "a profile of nothing": (StatusRefused, nothing(), {"profile": {"title": "T"}}),
    "another version": (VersionConflict, nothing(session=session()), {"expected_version": VERSION - 1}),
    "a version of nothing": (VersionConflict, nothing(), {"expected_version": 1}),
    "another commit": (CommitMoved, nothing(session=session()), {"expected_commit": COMMIT + 1}),
    "another event": (StreamMoved, nothing(session=session()), {"expected_events": EVENTS - 1}),
    "an input that is gone": (
        ClaimLost,
        nothing(session=session(), inputs={"input-1": queued(status="cancelled")}),
        {"consume": (Consume(input_id="input-1"),)},
    ),
    "an input for another run": (
        ClaimLost,
        laned(inputs={"input-1": queued(run_id="run-0")}),
        LANED | {"consume": (Consume(input_id="input-1"),)},
    ),
    "an input named twice": (
        ClaimLost,
        nothing(session=session(), inputs={"input-1": queued()}),
        {"consume": (Consume(input_id="input-1"), Consume(input_id="input-1"))},
    ),
    "other content under a key": (
        OperationConflict,
        nothing(session=session(), input_keys={"k": queued(key="k")}),
        {"inputs": (NewInput(kind=InputKind.MESSAGE, body=1, key="k"),)},
    ),
    "a settled wait": (
        WaitNotOpen,
        nothing(session=session(), waits={"wait-1": wait(status="answered")}),
        {"settle_waits": (SettleWait(wait_id="wait-1"),)},
    ),
    "a wait past its deadline": (
        WaitNotOpen,
        nothing(session=session(), waits={"wait-1": wait(deadline=NOW)}),
        {"settle_waits": (SettleWait(wait_id="wait-1"),)},
    ),
    "a wait settled twice": (
        WaitNotOpen,
        nothing(session=session(), waits={"wait-1": wait()}),
        {"settle_waits": (SettleWait(wait_id="wait-1"), SettleWait(wait_id="wait-1"))},
    ),
    "another request": (EffectMismatch, laned(effects={PLACE: effect(digest="other")}), LANED | {"effects": (ASKED,)}),
    "an effect that is done": (
        EffectNotOpen,
        laned(effects={PLACE: effect(status="done")}),
        LANED | {"effects": (ASKED,)},
    ),
    "another runner's effect": (
        EffectNotOpen,
        laned(effects={PLACE: effect(attempt=1)}),
        LANED | {"effects": (FinishEffect(key="pay"),)},
    ),
    "a value that is not held": (
        VersionConflict,
        nothing(session=session()),
        {"save": True, "document": {"big": Held(hash="0" * 64)}},
    ),
}


@pytest.mark.parametrize("guard", REFUSED)
def test_a_guard_refuses_by_its_own_type(guard: str) -> None:
    error, found, parts = REFUSED[guard]
    with pytest.raises(error) as refused:
        decide_commit(packed(**parts), found)
    assert type(refused.value) is error


ORDER: list[tuple[str, type[TenutoError], dict[str, Any], Callable[[Found], Found]]] = [
    ("life", SessionDeleted, {"life": LIFE - 1}, lambda found: found),
    ("receipt", OperationConflict, {}, lambda found: replace(found, receipt=receipt("other"))),
    ("lane", LaneLost, {"generation": GENERATION - 1}, lambda found: found),
    ("run", RunNotLive, {"run": RunRef(run_id="run-1", attempt=9)}, lambda found: found),
    ("stop", StopWithdrawn, {"sees_stop": True}, lambda found: found),
    ("status", StatusRefused, {"statuses": frozenset({SessionStatus.FAILED})}, lambda found: found),
    ("version", VersionConflict, {"expected_version": 1}, lambda found: found),
    ("commit", CommitMoved, {"expected_commit": 1}, lambda found: found),
    ("events", StreamMoved, {"expected_events": 1}, lambda found: found),
    ("claims", ClaimLost, {"consume": (Consume(input_id="input-9"),)}, lambda found: replace(found, inputs={})),
    ("waits", WaitNotOpen, {"settle_waits": (SettleWait(wait_id="wait-9"),)}, lambda found: found),
    ("effects", EffectNotOpen, {"effects": (FinishEffect(key="x"),)}, lambda found: replace(found, effects={})),
]


@pytest.mark.parametrize("first", range(len(ORDER)), ids=[name for name, *_ in ORDER])
def test_of_several_guards_that_fail_the_first_in_the_order_speaks(first: int) -> None:
    parts, found = dict(LANED), laned()
    for _, _, miss, change in reversed(ORDER[first:]):
        parts |= miss
        found = change(found)
    with pytest.raises(TenutoError) as refused:
        decide_commit(packed(**parts), found)
    assert type(refused.value) is ORDER[first][1]


def test_what_passes_every_guard_is_written() -> None:
    plan = decide_commit(packed(**LANED, expected_version=VERSION, expected_commit=COMMIT), laned())
    assert [write.name for write in plan.writes] == ["move_session", "insert_receipts"]
    assert plan.result.commit_number == COMMIT + 1


def test_a_lapsed_lane_keeps_nobody_from_saving() -> None:
    found = nothing(session=held(lane_expires_at=NOW))
    assert decide_commit(packed(save=True), found).result.version == VERSION + 1


def test_a_repeat_returns_its_first_receipt_and_writes_nothing() -> None:
    given = packed(save=True)
    plan = decide_commit(given, nothing(session=session(), receipt=receipt(given.intent)))
    assert (plan.writes, plan.result.replayed, plan.result.commit_number) == ([], True, 10)
