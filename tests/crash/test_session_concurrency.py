"""Twenty invocations at once on one session, from one process and from four, in each concurrency mode."""

from typing import Any

import pytest

from tests.crash.processes import Database
from tests.crash.session_processes import Mate, Outside, mates, outside

USERS = [f"user {number}" for number in range(20)]
SHARES = pytest.mark.parametrize(
    ("processes", "checkpoints"), [(1, False), (4, True)], ids=["one process", "four processes with checkpoints"]
)


def pairs(messages: list[str]) -> list[str]:
    """Return the users in the order they stand there, each followed by the reply to it and nothing else."""
    users, replies = messages[::2], messages[1::2]
    assert replies == [f"reply to {user}" for user in users], messages
    return users


async def talked(
    database: Database, world: Outside, processes: int, mode: str, checkpoints: bool, **order: Any
) -> list[list[Any]]:
    """Let so many processes send their share of the messages at the same time; return each message's errors."""
    share = len(USERS) // processes
    parts = [USERS[first : first + share] for first in range(0, len(USERS), share)]
    async with mates(
        *(Mate(database, graph="chat", concurrency=mode, checkpoints=checkpoints, port=world.port) for _ in parts)
    ) as all_mates:
        for mate, users in zip(all_mates, parts, strict=True):
            mate.order("talk", session="chat", users=users, **order)
        if mode != "exclusive":
            # Nobody goes on before all have loaded the session.
            await world.asked(len(USERS))
            world.release()
        return [errors for mate in all_mates for errors in await mate.heard()]


async def kept(database: Database) -> tuple[list[str], int]:
    async with database.open() as store:
        record = await store.load("chat")
    assert record is not None
    return record.state["messages"], record.version


@SHARES
async def test_exclusive_invocations_all_get_their_turn_and_none_is_interleaved(
    database: Database, processes: int, checkpoints: bool
) -> None:
    async with outside() as world:
        errors = await talked(database, world, processes, "exclusive", checkpoints, apart=0.003)
    assert errors == [[None]] * len(USERS)
    messages, version = await kept(database)
    users = pairs(messages)
    assert sorted(users) == sorted(USERS)
    assert version == len(USERS)
    share = len(USERS) // processes
    for first in range(0, len(USERS), share):
        own = USERS[first : first + share]
        assert [user for user in users if user in own] == own, "not in order of arrival"


@SHARES
async def test_optimistic_losers_hear_of_it_and_none_is_lost_after_they_try_again(
    database: Database, processes: int, checkpoints: bool
) -> None:
    async with outside() as world:
        world.keep(lambda _: True)
        errors = await talked(database, world, processes, "optimistic", checkpoints, retry=True)
    assert {error for each in errors for error in each[:-1]} == {"session_write_conflict"}
    assert [each[-1] for each in errors] == [None] * len(USERS)
    assert [len(each) for each in errors].count(1) == 1, "all had loaded the same version, so one alone was first"
    messages, version = await kept(database)
    assert sorted(pairs(messages)) == sorted(USERS)
    assert version == len(USERS)


@SHARES
async def test_of_last_write_wins_the_last_one_stands_and_nobody_hears_of_it(
    database: Database, processes: int, checkpoints: bool
) -> None:
    async with outside() as world:
        async with mates(Mate(database, graph="chat")) as (before,):
            assert await before.do("talk", session="chat", users=["before"]) == [[None]]
        world.keep(lambda _: True)
        errors = await talked(database, world, processes, "last_write_wins", checkpoints)
    assert errors == [[None]] * len(USERS)
    messages, version = await kept(database)
    first, last = pairs(messages)
    assert first == "before"
    assert last in USERS
    assert version == 1 + len(USERS)
