"""What a warm turn asks of SQLite on average: syncs and statements, whoever does the turn."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from bench.counters import counting_statements, counting_syncs
from bench.harness import Scene
from bench.workload import Messages, messages
from tenuto import Store, open_store

_TURNS = 500


class Session(Protocol):
    """A session of the workload that does turns."""

    def turn(self, items: Messages) -> Awaitable[object]:
        """Do one turn with these messages."""
        ...


Begin = Callable[[Store], Awaitable[Session]]
"""Creates a session in a store."""


async def syncs_per_turn(scene: Scene, begin: Begin) -> float:
    """Return the mean number of syncs of a turn, checkpoints of the WAL included."""
    with counting_syncs() as counter:
        async with open_store(scene.url(), vfs=counter.name) as store:
            return await _per_turn(scene, await begin(store), lambda: counter.syncs)


async def statements_per_turn(scene: Scene, begin: Begin) -> float:
    """Return the mean number of SQL statements of a turn, reads, BEGIN and COMMIT included."""
    with counting_statements() as counter:
        async with open_store(scene.url(), synchronous="OFF") as store:
            return await _per_turn(scene, await begin(store), lambda: counter.statements)


async def _per_turn(scene: Scene, session: Session, count: Callable[[], int]) -> float:
    await session.turn(messages())
    before = count()
    for _ in scene.rounds(_TURNS):
        await session.turn(messages())
    return (count() - before) / _TURNS
