"""State written by the code of one version in one process, and gone on with by later code in another."""

from typing import Any

import pytest

from tests.crash.processes import Database
from tests.crash.session_processes import Mate, mates, outside

START: dict[str, Any] = {"initial": {"events": ["ordered"], "to": "Ada", "grams": 1500}, "session_id": "parcel"}


async def test_a_session_of_version_one_is_loaded_by_version_three_in_another_process(database: Database) -> None:
    async with (
        outside() as world,
        mates(
            Mate(database, graph="parcel", version="v1"), Mate(database, graph="parcel", version="v3", port=world.port)
        ) as (old, new),
    ):
        assert (await old.do("run", **START))["outcome"] == "completed"
        old.kill()
        done = await new.do("run", initial={"events": [{"what": "returned"}]}, session_id="parcel")
        again = await new.do("run", session_id="parcel")
    history = ["ordered", "packed", "sent (None)", "returned", "packed", "sent (yes)", "packed", "sent (yes)"]
    assert done["outcome"] == again["outcome"] == "completed"
    assert world.requests[0] == {
        "events": [{"what": what} for what in history[:5]],
        "recipient": "Ada",
        "kilograms": 1.5,
        "signed": False,
    }
    async with database.open() as store:
        record = await store.load("parcel")
    assert record is not None
    assert record.schema_version == "v3"
    assert record.state == {
        "events": [{"what": what} for what in history],
        "recipient": "Ada",
        "kilograms": 1.5,
        "signed": False,
    }


@pytest.mark.parametrize("checkpoints", [False, True], ids=["session only", "checkpoints"])
@pytest.mark.parametrize("kills", [0, 1], ids=["resumed", "resumed again after a kill"])
async def test_an_invocation_paused_by_version_one_is_resumed_under_version_three(
    database: Database, checkpoints: bool, kills: int
) -> None:
    async with outside() as world:
        plan: dict[str, Any] = {"graph": "paused parcel", "checkpoints": checkpoints, "port": world.port}
        old, *new = [Mate(database, version="v1", **plan), *(Mate(database, version="v3", **plan) for _ in range(2))]
        async with mates(old, *new):
            paused = await old.do("run", **START)
            assert paused["outcome"] == "suspended"
            old.kill()
            resume: dict[str, Any] = {"resume_invocation": paused["invocation"], "signal_payload": {"signed": True}}
            if kills:
                world.keep(lambda _: True)
                new[0].order("run", **resume)
                await world.asked(1)
                new[0].kill()
                world.release()
            done = await new[1].do("run", **resume)
    expected: dict[str, Any] = {
        "events": [{"what": "ordered"}, {"what": "packed"}, {"what": "sent (yes)"}],
        "recipient": "Ada",
        "kilograms": 1.5,
        "signed": True,
    }
    assert (done["error"], done["outcome"], done["state"]) == (None, "completed", expected)
    assert world.requests == [expected | {"events": expected["events"][:2]}] * (1 + kills)
    async with database.open() as store:
        record = await store.load("parcel")
    assert record is not None
    assert (record.schema_version, record.state) == ("v3", expected)


async def test_a_session_migrated_meanwhile_is_no_move_for_an_invocation_that_is_paused_on_it(
    database: Database,
) -> None:
    plan: dict[str, Any] = {"graph": "paused parcel", "checkpoints": True}
    async with mates(Mate(database, version="v1", **plan), Mate(database, version="v3", **plan)) as (old, new):
        paused = (await old.do("run", **START))["invocation"]
        # Another invocation, under the new code, writes the migrated record first and then changes nothing of it.
        other = await new.do("run", {"graph": "broken parcel"}, session_id="parcel")
        assert other["error"] == "node_exception"
        async with database.open() as store:
            head = await store.head("parcel")
        assert head is not None
        assert (head.schema_version, head.version) == ("v3", 2)
        done = await new.do("run", resume_invocation=paused, signal_payload={"signed": True})
    assert (done["error"], done["outcome"]) == (None, "completed")
    assert [event["what"] for event in done["state"]["events"]] == ["ordered", "packed", "sent (None)"]
