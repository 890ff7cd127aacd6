"""An invocation suspended in one process and resumed in others: by one, by many at once, after kills, in every mode."""

import asyncio
from typing import Any

import pytest

from tests.crash.processes import Database
from tests.crash.session_processes import Mate, mates, outside

MODES = ["last_write_wins", "optimistic", "exclusive"]
START: dict[str, Any] = {"initial": {"messages": ["user"], "reason": "the lamp broke"}, "session_id": "customer"}
YES = {"approved": True}
PAID = ["user", "read: yes", "pay: yes", "thank: yes"]


@pytest.mark.parametrize("checkpoints", [False, True], ids=["session only", "checkpoints"])
async def test_resumed_in_another_process_it_goes_on_as_if_never_broken(database: Database, checkpoints: bool) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": checkpoints}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            paused = await first.do("run", **START)
            assert (paused["outcome"], world.requests[-1]["node"]) == ("suspended", "read")
            first.kill()
            broken = await second.do("run", resume_invocation=paused["invocation"], signal_payload=YES)
            asked = world.requests.copy()
            world.requests.clear()

            unbroken = START | {"session_id": "another"}
            paused_here = await second.do("run", **unbroken)
            whole = await second.do("run", resume_invocation=paused_here["invocation"], signal_payload=YES)
    assert (broken["outcome"], broken["state"]["messages"], broken["state"]["total"]) == ("completed", PAID, 111)
    assert broken["state"] == whole["state"]
    assert asked == world.requests
    assert [request["node"] for request in asked] == ["read", "pay", "thank"]
    assert asked[1]["state"] == {
        "messages": ["user", "read: yes"],
        "total": 1,
        "approved": True,
        "reason": "the lamp broke",
    }
    assert broken["invocation"] == paused["invocation"]
    async with database.open() as store:
        one, other = await store.load("customer"), await store.load("another")
    assert one is not None
    assert other is not None
    assert (one.state, one.version) == (other.state, other.version)


async def test_of_many_resumes_at_once_one_runs_in_every_concurrency_mode(database: Database) -> None:
    async with outside() as world:
        many = [Mate(database, port=world.port) for _ in range(8)]
        async with mates(*many):
            for mode in MODES:
                for count in (2, 8):
                    for checkpoints in (False, True):
                        how = {"concurrency": mode, "checkpoints": checkpoints}
                        session = f"{mode} {count} {checkpoints}"
                        paused = await many[0].do("run", how, **START | {"session_id": session})
                        world.requests.clear()
                        for number, mate in enumerate(many[:count]):
                            payload = YES | {"reason": f"given by {number % 2}"}
                            mate.order("run", how, resume_invocation=paused["invocation"], signal_payload=payload)
                        results = [await mate.heard() for mate in many[:count]]
                        outcomes = sorted(result["error"] or result["outcome"] for result in results)
                        assert outcomes == ["completed"] + ["suspension_record_invalid"] * (count - 1), session
                        assert [request["node"] for request in world.requests] == ["pay", "thank"], session
                        reasons = {request["state"]["reason"] for request in world.requests}
                        (won,) = (result for result in results if not result["error"])
                        assert reasons == {won["state"]["reason"]}, session
    async with database.open() as store:
        for mode in MODES:
            for count in (2, 8):
                record = await store.load(f"{mode} {count} True")
                assert record is not None
                assert record.state == {"messages": PAID, "total": 111}
                assert record.version == 2


@pytest.mark.parametrize("mode", MODES)
async def test_an_invalid_payload_changes_nothing_and_a_good_one_works_afterwards(
    database: Database, mode: str
) -> None:
    plan: dict[str, Any] = {"concurrency": mode, "checkpoints": True}
    async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
        paused = await first.do("run", **START)
        async with database.open() as store:
            before = without_lane(await store.dump())
            wrong = {"approved": {"not": "a bool"}}
            refused = await second.do("run", resume_invocation=paused["invocation"], signal_payload=wrong)
            assert refused["error"] == "suspension_resume_payload_invalid"
            assert without_lane(await store.dump()) == before
        done = await second.do("run", resume_invocation=paused["invocation"], signal_payload=YES)
    assert (done["outcome"], done["state"]["total"]) == ("completed", 111)


@pytest.mark.parametrize("checkpoints", [False, True], ids=["session only", "checkpoints"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_resumed_run_killed_after_the_gate_is_taken_over_with_the_same_payload(
    database: Database, mode: str, checkpoints: bool
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "concurrency": mode, "checkpoints": checkpoints}
        async with mates(*(Mate(database, **plan) for _ in range(3))) as (first, second, third):
            started = await first.do("run", **START)
            paused = started["invocation"]
            resume: dict[str, Any] = {"resume_invocation": paused, "signal_payload": YES}
            by_wait: dict[str, Any] = {"wait": started["wait"], "payload": YES}
            world.keep(lambda request: request["node"] == "pay")
            first.order("run", **resume)
            await world.asked(2)
            live = [await second.do("run", **resume), await second.do("resume", **by_wait)]
            first.kill()
            world.release()
            other = await second.do("run", resume_invocation=paused, signal_payload={"approved": False})
            other_by_wait = await second.do("resume", wait=started["wait"], payload={"approved": False})

            world.keep(lambda request: request["node"] == "thank")
            second.order("run", **resume)
            await world.asked(4)
            second.kill()
            world.release()
            done = await third.do("resume", **by_wait)
            again = await third.do("run", **resume)
            again_by_wait = await third.do("resume", **by_wait)
    assert [each["error"] for each in live] == ["suspension_record_invalid"] * 2
    assert other["error"] == "suspension_record_invalid"
    assert [other_by_wait["error"], again_by_wait["error"]] == ["already_answered"] * 2
    assert (done["outcome"], done["invocation"], done["error"]) == ("completed", paused, None)
    assert (done["state"]["messages"], done["state"]["total"], done["state"]["approved"]) == (PAID, 111, True)
    assert again["error"] == "suspension_record_invalid"
    # With a checkpoint after "pay" only what was under way runs again; without one everything since the pause does.
    nodes = ["read", "pay", "pay", "thank"] + ([] if checkpoints else ["pay"]) + ["thank"]
    assert [request["node"] for request in world.requests] == nodes
    assert [request["state"]["approved"] for request in world.requests] == [None] + [True] * (len(nodes) - 1)
    async with database.open() as store:
        record = await store.load("customer")
        runs = await store.runs.of_session("customer")
    assert record is not None
    assert (record.state, record.version) == ({"messages": PAID, "total": 111}, 2)
    assert [(run.status, run.attempt) for run in reversed(runs)] == [("suspended", 1), ("completed", 3)]


async def test_a_resumed_run_that_stands_still_is_taken_over_once_its_lane_lapses_and_can_write_nothing_more(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": True}
        still, other = Mate(database, keeper={"ttl": 1.5, "every": 0.4}, **plan), Mate(database, **plan)
        async with mates(still, other):
            paused = (await still.do("run", **START))["invocation"]
            resume: dict[str, Any] = {"resume_invocation": paused, "signal_payload": YES}
            world.keep(lambda request: request["node"] == "pay" and len(world.requests) == 2)
            still.order("run", **resume)
            await world.asked(2)
            still.stop()
            async with asyncio.timeout(30):
                while (done := await other.do("run", **resume))["error"] == "suspension_record_invalid":
                    await asyncio.sleep(0.1)
            still.go_on()
            lost = await still.heard()
    assert (done["outcome"], done["state"]["messages"], done["state"]["total"]) == ("completed", PAID, 111)
    assert (lost["outcome"], lost["error"]) == ("failed", "session_execution_lease_lost")
    async with database.open() as store:
        record = await store.load("customer")
    assert record is not None
    assert (record.state, record.version) == ({"messages": PAID, "total": 111}, 2)


async def test_without_a_payload_a_resumed_run_that_was_killed_goes_on_with_the_answer_it_had(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": True}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            paused = (await first.do("run", **START))["invocation"]
            world.keep(lambda request: request["node"] == "pay")
            first.order("run", resume_invocation=paused, signal_payload=YES)
            await world.asked(2)
            first.kill()
            world.release()
            done = await second.do("run", resume_invocation=paused)
    assert (done["outcome"], done["error"]) == ("completed", None)
    assert (done["state"]["messages"], done["state"]["total"], done["state"]["approved"]) == (PAID, 111, True)
    assert [request["state"]["approved"] for request in world.requests] == [None, True, True, True]


async def test_without_a_payload_and_without_checkpoints_a_resumed_run_that_was_killed_is_left_as_it_is(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            paused = (await first.do("run", **START))["invocation"]
            world.keep(lambda request: request["node"] == "pay")
            first.order("run", resume_invocation=paused, signal_payload=YES)
            await world.asked(2)
            first.kill()
            world.release()
            async with database.open() as store:
                before = without_lane(await store.dump())
                refused = await second.do("run", resume_invocation=paused)
                assert without_lane(await store.dump()) == before
            done = await second.do("run", resume_invocation=paused, signal_payload=YES)
    assert refused["error"] == "checkpoint_not_found"
    assert (done["outcome"], done["state"]["messages"]) == ("completed", PAID)


@pytest.mark.parametrize("on_moved", ["rebase", "overwrite"])
@pytest.mark.parametrize("checkpoints", [False, True], ids=["session only", "checkpoints"])
async def test_a_killed_resume_can_be_taken_over_after_others_used_the_session(
    database: Database, checkpoints: bool, on_moved: str
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "concurrency": "exclusive", "checkpoints": checkpoints}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            paused = (await first.do("run", **START))["invocation"]
            resume: dict[str, Any] = {"resume_invocation": paused, "signal_payload": YES}
            world.keep(lambda request: request["node"] == "pay")
            first.order("run", **resume)
            await world.asked(2)
            first.kill()
            world.release()
            later = await second.do("run", initial={"messages": ["later"]}, session_id="customer")
            refused = await second.do("run", **resume)
            done = await second.do("run", **resume, on_moved=on_moved)
    assert later["outcome"] == "suspended"
    assert refused["error"] == "session_write_conflict"
    assert (done["outcome"], done["error"]) == ("completed", None)
    others = ["later", "read: yes"] if on_moved == "rebase" else []
    assert done["state"]["messages"] == [*PAID[:2], *others, *PAID[2:]]
    async with database.open() as store:
        record = await store.load("customer")
    assert record is not None
    assert record.state == {"messages": done["state"]["messages"], "total": done["state"]["total"]}
    assert done["state"]["total"] == (112 if on_moved == "rebase" else 111)


async def test_a_killed_turn_can_be_resumed_from_its_checkpoint_after_others_used_the_session(
    database: Database,
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "chat", "concurrency": "exclusive", "checkpoints": True, "port": world.port}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            world.keep(lambda request: request == "first")
            first.order("run", initial={"messages": ["first"]}, session_id="chat", invocation_id="killed")
            await world.asked(1)
            first.kill()
            world.release()
            later = await second.do("run", initial={"messages": ["second"]}, session_id="chat")
            refused = await second.do("run", resume_invocation="killed")
            done = await second.do("run", resume_invocation="killed", on_moved="rebase")
    assert (later["outcome"], refused["error"]) == ("completed", "session_write_conflict")
    assert (done["outcome"], done["error"]) == ("completed", None)
    assert done["state"]["messages"] == ["second", "reply to second", "first", "reply to first"]


async def test_a_resumed_run_that_failed_goes_on_from_its_checkpoint_with_the_answer_it_had(database: Database) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"port": world.port, "checkpoints": True}
        async with mates(Mate(database, **plan), Mate(database, **plan)) as (first, second):
            paused = (await first.do("run", **START))["invocation"]
            world.refuse(lambda request: request["node"] == "pay")
            payload = {"approved": True, "reason": "given by the answer", "total": 5}
            failed = await first.do("run", resume_invocation=paused, signal_payload=payload)
            world.refuse(lambda _: False)
            done = await second.do("run", resume_invocation=paused)
    assert failed["error"] == "node_exception"
    assert done["outcome"] == "completed"
    given = {"approved": True, "reason": "given by the answer"}
    assert done["state"] == {"messages": PAID, "total": 115, **given}
    assert world.requests[2] == world.requests[1]


def without_lane(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return every row, but of a session's row not what a lane taken and given back leaves."""
    lane = {"generation", "armed", "nonce", "holder", "lane_expires_at", "current_run"}
    return {
        table: [{name: value for name, value in row.items() if table != "session" or name not in lane} for row in rows]
        for table, rows in tables.items()
    }
