"""The warm turn on PostgreSQL."""

from tests.servers import running_postgres

from bench.floors import PostgresFloor
from bench.harness import Measure, Scene, Stopwatch, wall
from bench.workload import WarmSession, document, messages
from tenuto import open_store


async def turn(scene: Scene) -> float:
    """Return the time of a turn against the floor's, on one server with its own settings: both durable."""
    with running_postgres() as server:
        floor = await PostgresFloor.open(server.url)
        async with open_store(server.url) as store:
            session = await WarmSession.begin(store)

            async def ours() -> float:
                items = messages()
                with Stopwatch(wall) as watch:
                    await session.turn(items)
                return watch.seconds

            async def raw() -> float:
                items = messages()
                with Stopwatch(wall) as watch:
                    await floor.turn(items, document(1))
                return watch.seconds

            try:
                # The server plans a statement again for each of its first few executions.
                for _ in range(20):
                    await ours()
                    await raw()
                return await scene.ratio(ours, raw, rounds=1000)
            finally:
                await floor.close()


MEASURES = (Measure(name="warm turn, PostgreSQL: against the raw asyncpg floor", unit="x", run=turn),)
