"""Who gets a lane, who re-enters it, who frees it."""

from typing import Any

import pytest

from tenuto.errors import LaneBusy, LaneLost, SessionDeleted, SessionNotFound
from tenuto.model.lane import Lane, Owner
from tenuto.store.rules.lane_row import is_live, sealed, view_of
from tenuto.store.rules.plan import Found, Plan
from tenuto.store.rules.rows import SessionRow
from tenuto.store.rules.verbs.lane_rules import decide_acquire, decide_disarm
from tests.store.rules.found import GENERATION, KEY, LIFE, NOW, held, nothing, rows_of, session

ME = Owner(owner_id="me", incarnation="1")
THEM = Owner(owner_id="o", incarnation="i")
SECOND = 1_000_000


def acquire(found: Found, nonce: str = "mine", **more: Any) -> Plan[Lane]:
    given = {"dead": None, "life": None, "alive": False, **more}
    return decide_acquire(KEY, ME, nonce, 2.0, given["life"], given["alive"], given["dead"], found)


def test_a_free_lane_is_granted_under_the_next_generation() -> None:
    plan = acquire(nothing(session=session()))
    (row,) = rows_of(plan, "move_session")
    assert (plan.result.generation, plan.result.nonce, plan.result.displaced) == (GENERATION + 1, "mine", None)
    assert sealed("mine") in row
    assert "mine" not in row
    assert plan.after is not None
    assert plan.after.session.lane_expires_at == NOW + 2 * SECOND


def test_an_unknown_id_gets_a_row_for_its_lane_unless_it_has_to_live() -> None:
    plan = acquire(nothing())
    assert plan.result.generation == 1
    (row,) = rows_of(plan, "insert_session")
    assert not row.alive
    with pytest.raises(SessionNotFound):
        acquire(nothing(), alive=True)


def test_a_held_lane_is_busy_for_every_other_nonce_and_says_until_when() -> None:
    with pytest.raises(LaneBusy) as refused:
        acquire(nothing(session=held(nonce=sealed("theirs"))))
    assert (refused.value.owner, refused.value.generation) == ("o", GENERATION)


def test_its_own_nonce_re_enters_and_never_shortens_it() -> None:
    late = NOW + 9 * SECOND
    plan = acquire(nothing(session=held(nonce=sealed("mine"), lane_expires_at=late)))
    assert plan.result.generation == GENERATION
    assert plan.after is not None
    assert plan.after.session.lane_expires_at == late


def test_a_lapsed_holder_is_displaced_and_named() -> None:
    plan = acquire(nothing(session=held(lane_expires_at=NOW)))
    assert plan.result.displaced is not None
    assert (plan.result.displaced.owner, plan.result.displaced.generation) == (THEM, GENERATION)


def test_a_dead_holder_counts_as_lapsed_if_it_still_is_the_holder() -> None:
    found = nothing(session=held())
    assert acquire(found, dead=(GENERATION, THEM)).result.generation == GENERATION + 1
    for dead in ((GENERATION - 1, THEM), (GENERATION, ME)):
        with pytest.raises(LaneBusy):
            acquire(found, dead=dead)


def test_a_session_of_another_life_is_not_the_one_meant() -> None:
    with pytest.raises(SessionDeleted):
        acquire(nothing(session=session()), life=LIFE - 1)


def test_only_its_holder_frees_a_lane_and_once() -> None:
    mine = held(nonce=sealed("mine"))
    plan = decide_disarm(KEY, LIFE, GENERATION, "mine", nothing(session=mine))
    assert rows_of(plan, "move_session")[0][: len(mine.changes)] == mine._replace(armed=0).changes
    for row, generation, nonce in (
        (mine, GENERATION, "theirs"),
        (mine, GENERATION - 1, "mine"),
        (mine._replace(armed=0), GENERATION, "mine"),
    ):
        with pytest.raises(LaneLost):
            decide_disarm(KEY, LIFE, generation, nonce, nothing(session=row))
    with pytest.raises(SessionDeleted):
        decide_disarm(KEY, LIFE - 1, GENERATION, "mine", nothing(session=mine))


@pytest.mark.parametrize(
    ("row", "live", "state"),
    [
        (session(), False, "free"),
        (held(), True, "held"),
        (held(lane_expires_at=NOW), False, "lapsed"),
        (held(lane_expires_at=NOW + 1, armed=0), False, "free"),
    ],
)
def test_a_lane_is_held_until_its_expiry_and_not_at_it(row: SessionRow, live: bool, state: str) -> None:
    assert is_live(row, NOW) is live
    assert view_of(row, NOW).state == state
