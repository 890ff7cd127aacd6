"""Rules are pure: decided twice on the same rows, they give the same plan, and they change nothing they were given."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tenuto.ids import new_id
from tenuto.model.commit import Append, BeginRun, Budget, EndRun, NewCheckpoint, NextRun, OpenWait, Reset, SettleWait
from tenuto.model.effect import EffectKind, FinishEffect, StartEffect
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, InputKind, NewInput
from tenuto.model.lane import Owner
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus, StopKind
from tenuto.model.session import Profile, SessionKey
from tenuto.model.token_usage import NewUsage
from tenuto.store.rules.commit.pack import pack
from tenuto.store.rules.commit.write import decide_commit
from tenuto.store.rules.lane_row import sealed
from tenuto.store.rules.parts.input_rules import pack_input
from tenuto.store.rules.plan import Plan
from tenuto.store.rules.rows import ProfileRow
from tenuto.store.rules.verbs.deletion_rules import decide_delete
from tenuto.store.rules.verbs.inbox_rules import decide_cancel, decide_enqueue, decide_refuse
from tenuto.store.rules.verbs.lane_rules import decide_acquire, decide_disarm
from tenuto.store.rules.verbs.lifecycle import Forking, decide_create, decide_fork
from tenuto.store.rules.verbs.stop_rules import decide_interrupt, decide_stop, decide_withdraw
from tests.store.rules.found import (
    GENERATION,
    KEY,
    LIFE,
    SID,
    branch,
    commit,
    held,
    nothing,
    packed,
    queued,
    run,
    session,
    wait,
)

LANED = nothing(
    session=held(current_run="run-1"),
    run=run(holds=3),
    branches={(SID, 1): branch()},
    inputs={"input-1": queued(), "input-2": queued(input_id="input-2")},
    waits={"wait-1": wait(), "wait-2": wait(wait_id="wait-2")},
)
MESSAGE = NewInput(kind=InputKind.MESSAGE, body="hi")

EVERYTHING = packed(
    generation=GENERATION,
    run=RunRef(run_id="run-1", attempt=2),
    save=True,
    document={"big": "x" * 2000, "small": 1},
    logs={"log": Append(items=(1, 2)), "notes": Reset(items=(3,)), "in/side": Append(items=(4,))},
    profile={"title": "T"},
    checkpoint=NewCheckpoint(step=1, cursor=[1], document={"p": "y" * 2000}),
    open_waits=(OpenWait(kind="signal", timeout=1.0), OpenWait(kind="timer")),
    settle_waits=(SettleWait(wait_id="wait-1", answer=1),),
    keep_waits=("wait-2",),
    events=(NewEvent(type="e"),),
    inputs=(NewInput(kind=InputKind.MESSAGE, body=1, log="log", item=1),),
    consume=(Consume(input_id="input-1", log="log", item=0),),
    effects=(StartEffect(key="k", kind=EffectKind.TOOL, request=1), FinishEffect(key="k", result=2)),
    usage=(NewUsage(model="m", input=1),),
    outgoing=(NewOutgoing(kind="k", target=KEY), NewOutgoing(kind="l", target=KEY, delay=1.0)),
    end=EndRun(status=RunStatus.FAILED, error="e"),
)

ENDS_AND_BEGINS = packed(
    generation=GENERATION,
    run=RunRef(run_id="run-1", attempt=2),
    save=True,
    logs={"log": Append(items=(1,))},
    end=EndRun(status=RunStatus.COMPLETED),
    next_run=NextRun(
        begin=BeginRun(run_id="run-2", invocation_id="inv-2"),
        input_id="input-2",
        log="log",
        item="hi",
        events=(NewEvent(type="started"),),
    ),
)

PARENT = ProfileRow(*(None,) * len(ProfileRow._fields))._replace(session=SID, parent="parent")
FORKING = Forking(
    source=KEY,
    target=SessionKey("bea"),
    at=None,
    profile=Profile(title="T"),
    expected_commit=None,
    first=pack_input(MESSAGE, "first"),
    operation_id="op",
)
ME = Owner(owner_id="me", incarnation="1")

DECISIONS: dict[str, tuple[Callable[..., Plan[Any]], tuple[Any, ...]]] = {
    "a commit with every part": (decide_commit, (EVERYTHING, LANED)),
    "a commit with a next run": (decide_commit, (ENDS_AND_BEGINS, LANED)),
    "a create": (
        decide_create,
        (
            pack(commit(life=0, save=True, logs={"log": Append(items=(1,))}), Budget(), Profile(title="T")),
            None,
            nothing(),
        ),
    ),
    "a fork": (decide_fork, (FORKING, nothing(source=session(sid=SID + 1), branches={(SID, 1): branch()}))),
    "a delete": (
        decide_delete,
        (
            True,
            new_id(),
            nothing(
                session=session(),
                counts={"runs": 1},
                profile=PARENT,
                waited_for=[
                    wait(wait_id=new_id(), kind="child", metadata=f'{{"child":"ada","token":"{token}"}}')
                    for token in ("s", "t")
                ],
            ),
        ),
    ),
    "an enqueue": (decide_enqueue, (KEY, pack_input(MESSAGE, "input"), LANED)),
    "an interrupt": (decide_interrupt, (KEY, pack_input(MESSAGE, "input"), "why", LANED)),
    "a cancel": (decide_cancel, (["input-1", "input-2"], LANED)),
    "a refusal": (decide_refuse, (KEY, "input-1", {"why": 1}, LANED)),
    "an acquire": (decide_acquire, (KEY, ME, "mine", 2.0, LIFE, True, None, nothing(session=session()))),
    "a disarm": (decide_disarm, (KEY, LIFE, GENERATION, "mine", nothing(session=held(nonce=sealed("mine"))))),
    "a stop": (decide_stop, (KEY, "run-1", StopKind.ABORT, "why", LANED)),
    "a stop taken back": (
        decide_withdraw,
        (
            KEY,
            "run-1",
            nothing(session=session(), run=run(stop='{"kind":"abort","reason":null,"at":1,"seen_at":null}')),
        ),
    ),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_deciding_twice_gives_one_plan_and_changes_nothing_given(name: str) -> None:
    decide, given = DECISIONS[name]
    before = deepcopy(given)
    first = decide(*given)
    assert first.writes
    assert decide(*given) == first
    assert decide(*before) == first
    assert given == before


def test_what_is_owed_for_two_waits_has_two_ids() -> None:
    plan = decide_delete(*DECISIONS["a delete"][1])
    (owed,) = [write.rows for write in plan.writes if write.name == "insert_outgoing"]
    assert len({row.outbox_id for row in owed}) == 2  # type: ignore[attr-defined]
