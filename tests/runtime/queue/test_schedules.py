"""Schedules of a session: workers send their messages, and none of them abandons what the session waits for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenuto import Session, SessionRuntime, Store, Turn, program
from tenuto.actions import CompleteSession
from tenuto.errors import InvalidInput, MessageRefused, ScheduleNotFound, SessionNotFound
from tenuto.messages import UserMessage, assistant, text_of
from tenuto.model.session import SessionKey
from tenuto.testing.fake_clock import FakeClock
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
DAY = 86_400.0
FIRST = "2030-01-02T02:00:00Z"

heard: list[tuple[str, Any]] = []


@program(name="desk")
async def desk(turn: Turn) -> None:
    """Note what is said and when it was due; ask before paying."""
    assert turn.input is not None
    heard.append((turn.text, (turn.input.get("metadata") or {}).get("schedule")))
    if turn.text == "pay":
        approval = await turn.wait("approve", kind="approval")
        heard.append(("approved", approval.approved))
    turn.append(assistant(f"re: {turn.text}"))


class Desk:
    """A runtime with one session, on a clock that tests move."""

    def __init__(self, runtime: SessionRuntime, clock: FakeClock) -> None:
        self.runtime, self.clock = runtime, clock
        self.session: Session[Any] = runtime.session("s")

    async def after(self, seconds: float) -> list[tuple[str, Any]]:
        """Let time pass, let a worker do what is due, and return what the program heard."""
        self.clock.advance(seconds)
        heard.clear()
        await self.runtime.drain()
        return list(heard)


@pytest.fixture
async def ours(harness: OurHarness) -> Desk:
    clock = FakeClock(START)
    runtime = await opened(await harness.open(clock=clock), [desk])
    await runtime.create("desk", session_id="s")
    heard.clear()
    return Desk(runtime, clock)


async def _nightly(ours: Desk, **parts: Any) -> None:
    await ours.session.schedule("nightly", "report", cron="0 3 * * *", tz="Europe/Vienna", **parts)


def _about(at: str, missed: int = 0) -> dict[str, Any]:
    return {"name": "nightly", "at": at, "missed": missed}


async def test_a_worker_sends_the_message_of_each_occurrence_once(ours: Desk) -> None:
    await _nightly(ours)
    assert await ours.after(14 * 3600 - 1) == []
    assert await ours.after(1) == [("report", _about(FIRST))]
    assert await ours.after(0) == []
    assert await ours.after(DAY) == [("report", _about("2030-01-03T02:00:00Z"))]
    said = [(each["role"], text_of(each)) for each in await ours.session.messages()]
    assert said == [("user", "report"), ("assistant", "re: report")] * 2


async def test_the_message_keeps_its_own_metadata(ours: Desk) -> None:
    message: UserMessage = {"role": "user", "content": "hi", "metadata": {"source": "plan"}}
    await ours.session.schedule("a", message, every=timedelta(minutes=1))
    assert await ours.after(60) == [("hi", {"name": "a", "at": "2030-01-01T12:01:00Z", "missed": 0})]
    said: Any = (await ours.session.messages())[0]
    assert said["metadata"]["source"] == "plan"


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ("latest", [_about("2030-01-04T02:00:00Z", 2)]),
        ("all", [_about(f"2030-01-0{day}T02:00:00Z") for day in (2, 3, 4)]),
        ("none", []),
    ],
)
async def test_after_an_outage_of_three_days(ours: Desk, missed: Any, expected: list[Any]) -> None:
    await _nightly(ours, missed=missed)
    assert await ours.after(3 * DAY) == [("report", each) for each in expected]
    assert await ours.after(14 * 3600) == [("report", _about("2030-01-05T02:00:00Z"))]


async def test_a_declaration_can_be_repeated_listed_paused_and_removed(ours: Desk) -> None:
    await _nightly(ours)
    (first,) = await ours.session.schedules()
    ours.clock.advance(60)
    await _nightly(ours)
    assert await ours.session.schedules() == [first]
    assert (first.message, first.cron, first.tz, first.missed, first.when_waiting) == (
        {"role": "user", "content": "report"},
        "0 3 * * *",
        "Europe/Vienna",
        "latest",
        "hold",
    )
    assert (await ours.session.pause_schedule("nightly", "holidays")).paused == "holidays"
    assert await ours.after(3 * DAY) == []
    assert (await ours.session.resume_schedule("nightly")).paused is None
    assert await ours.after(DAY) == [("report", _about("2030-01-05T02:00:00Z"))]
    assert await ours.session.unschedule("nightly")
    assert not await ours.session.unschedule("nightly")
    assert await ours.after(DAY) == []
    assert await ours.session.schedules() == []
    with pytest.raises(ScheduleNotFound):
        await ours.session.pause_schedule("nightly")
    with pytest.raises(SessionNotFound):
        await ours.runtime.session("nobody").schedules()


async def test_an_open_approval_is_never_abandoned_by_a_schedule(ours: Desk) -> None:
    """The occurrence is held; it is sent once the turn that waited has ended."""
    await _nightly(ours)
    outcome = await ours.session.send("pay")
    assert await ours.after(DAY) == []
    (wait,) = await ours.session.waits()
    assert wait.wait_id == outcome.waits[0].wait_id
    heard.clear()
    await ours.session.answer(wait, {"approved": True})
    assert heard == [("pay", None), ("approved", True)]
    assert await ours.after(0) == [("report", _about(FIRST))]


async def test_what_was_queued_before_the_session_waited_is_held_too(ours: Desk) -> None:
    """Other messages pass it, and only those abandon what the session waits for."""
    await _nightly(ours)
    ours.clock.advance(DAY)
    await ours.session.enqueue("pay")
    store = ours.runtime.store
    assert isinstance(store, Store)
    assert len((await store.schedules.fire("s", "nightly")).inputs) == 1
    assert await ours.after(0) == [("pay", None)]
    assert await ours.after(DAY) == []
    (wait,) = await ours.session.waits()
    assert (await ours.session.send("hello")).text == "re: hello"
    assert await ours.session.waits() == []
    assert await ours.after(0) == [("report", _about(FIRST)), ("report", _about("2030-01-03T02:00:00Z"))]
    assert wait.kind == "approval"


async def test_an_occurrence_may_be_left_out_or_abandon_what_is_waited_for(ours: Desk) -> None:
    await ours.session.schedule("skips", "left out", cron="0 2 * * *", when_waiting="skip")
    await ours.session.send("pay")
    assert await ours.after(DAY) == []
    assert len(await ours.session.waits()) == 1
    await ours.session.schedule("abandons", "now", cron="0 3 * * *", when_waiting="abandon")
    assert await ours.after(DAY) == [("now", {"name": "abandons", "at": "2030-01-03T03:00:00Z", "missed": 0})]
    assert await ours.session.waits() == []
    assert [each[0] for each in await ours.after(DAY)] == ["left out", "now"]


async def test_a_session_that_is_closed_pauses_it_and_a_rewind_does_not_undo_it(ours: Desk) -> None:
    outcome = await ours.session.send("hello")
    await _nightly(ours)
    await ours.session.rewind(str(outcome.run_id))
    fork = await ours.session.fork()
    assert await fork.schedules() == []
    await ours.session.execute(CompleteSession())
    assert await ours.after(DAY) == []
    (paused,) = await ours.session.schedules()
    assert paused.paused == "The session is completed."


async def test_a_program_schedules_in_the_commit_of_its_turn(harness: OurHarness) -> None:
    """A turn that fails takes it back; one that schedules again, or removes it, has the last word."""
    clock = FakeClock(START)

    @program(name="planner")
    async def planner(turn: Turn) -> None:
        heard.append((turn.text, None))
        if turn.text in ("plan", "fail"):
            turn.schedule(turn.text, "now", every=timedelta(hours=1), missed="none", when_waiting="skip")
        if turn.text == "stop":
            turn.unschedule("plan")
        if turn.text == "fail":
            raise ValueError("no luck")

    runtime = await opened(await harness.open(clock=clock), [planner])
    ours = Desk(runtime, clock)
    await runtime.create("planner", session_id="s")
    await ours.session.send("plan")
    assert (await ours.session.send("fail")).status == "failed"
    assert await ours.after(0) == []
    (found,) = await ours.session.schedules()
    assert (found.name, found.every, found.missed, found.when_waiting) == ("plan", 3600.0, "none", "skip")
    assert await ours.after(3600) == [("now", None)]
    await ours.session.send("stop")
    await ours.after(0)
    assert await ours.session.schedules() == []


async def test_one_that_cannot_be_fired_stops_no_other(ours: Desk, harness: OurHarness) -> None:
    await ours.session.schedule("broken", "never", cron="0 1 * * *")
    await _nightly(ours)
    await harness.damage("""UPDATE schedule SET words = '{"body":{},"every":null,"cron":"x","tz":"UTC","missed":"all"}'
        WHERE name = 'broken'""")
    assert await ours.after(DAY) == [("report", _about(FIRST))]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"every": 0},
        {"every": "often"},
        {"cron": "nightly"},
        {"cron": "0 3 * * *", "tz": "Europe/Wien"},
        {"cron": "0 3 * * *", "missed": "some"},
        {"cron": "0 3 * * *", "when_waiting": "never"},
        {"cron": "0 3 * * *", "every": 3},
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_before_anything_is_written(ours: Desk, wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        await ours.session.schedule("a", "hi", **wrong)
    with pytest.raises((InvalidInput, MessageRefused)):
        await ours.session.schedule("a", {"role": "assistant", "content": "no"}, every=60)  # type: ignore[arg-type]
    store = ours.runtime.store
    assert isinstance(store, Store)
    assert await store.schedules.of_session(SessionKey("s")) == []


async def test_schedules_are_listed_over_all_sessions_of_a_tenant_and_for_operators_of_all(ours: Desk) -> None:
    """One that a worker paused is among those that are paused, with the reason."""
    acme = ours.runtime.for_tenant("acme")
    await acme.create("desk", session_id="s")
    await ours.runtime.create("desk", session_id="other")
    sessions = [(ours.runtime, "other", "b"), (acme, "s", "n"), (ours.runtime, "s", "b"), (ours.runtime, "s", "a")]
    for view, session_id, name in sessions:
        await view.session(session_id).schedule(name, "report", every=3600)
    await acme.session("s").execute(CompleteSession())
    await ours.runtime.session("other").pause_schedule("b", "holidays")
    assert len(await ours.after(3600)) == 2

    def named(page: Any) -> list[str]:
        return [f"{each.key.tenant}/{each.key.session_id}/{each.name}" for each in page]

    everything = ["/s/a", "/s/b", "acme/s/n", "/other/b"]
    assert named(await ours.runtime.schedules()) == ["/s/a", "/s/b", "/other/b"]
    assert named(await ours.runtime.schedules(paused=False)) == ["/s/a", "/s/b"]
    assert [each.paused for each in await ours.runtime.schedules(paused=True)] == ["holidays"]
    assert [each.paused for each in await acme.schedules()] == ["The session is completed."]
    across = ours.runtime.across_tenants()
    assert named(await across.schedules()) == everything
    assert named(await across.schedules(paused=True)) == everything[2:]
    first = await across.schedules(limit=3)
    assert named(first) + named(await across.schedules(after=first.next)) == everything
    assert await ours.runtime.for_tenant("nobody").schedules() == ()
