"""A run's stream, read in other processes while its writer is killed and taken over."""

import asyncio
from collections.abc import Callable
from typing import Any

from tenuto import Store
from tenuto.model.run import Run
from tenuto.model.session import SessionKey
from tenuto.runtime.stream.reader import fold
from tests.crash.processes import Database
from tests.crash.runtime_processes import Colleague, mates
from tests.crash.runtime_programs import LINES, STORY, World, runtime_of
from tests.crash.session_processes import outside

RECONNECTIONS = 50


async def _chunk_of(store: Store, told: int, attempt: int) -> None:
    """Wait until a line of that part, told by that attempt, is in the stream."""
    after = 0
    async with asyncio.timeout(30):
        async for page in store.events.subscribe("story", after=after):
            for event in page.events:
                data: Any = event.data
                if event.type == "chunk" and (data["chunk"]["data"][0], data["attempt"]) == (told, attempt):
                    return


def _of_part(told: int) -> Callable[[Any], bool]:
    return lambda request: bool(request[0] == told)


async def _current(store: Store) -> Run:
    run = await store.runs.current(SessionKey("story"))
    assert run is not None
    return run


async def test_readers_of_a_stream_whose_writer_is_killed_twice_end_with_the_same_sequence(database: Database) -> None:
    async with outside() as world, database.open() as store:
        writers = [Colleague(database, port=world.port) for _ in range(3)]
        steady, restless = Colleague(database), Colleague(database)
        runtime = await runtime_of(store, World(folder=database.folder))
        await runtime.create("teller", session_id="story")
        async with mates(*writers, steady, restless):
            await runtime.session("story").enqueue("tell me")
            for told, writer in ((1, writers[0]), (2, writers[1])):
                world.requests.clear()
                world.keep(_of_part(told))
                writer.order("work", poll=0.05)
                await world.asked(2)
                run = await _current(store)
                if told == 1:
                    steady.order("follow", session="story", run=run.run_id)
                    restless.order("follow", session="story", run=run.run_id, seed=7, times=RECONNECTIONS)
                await _chunk_of(store, told, run.attempt)
                writer.kill()
            world.release()
            writers[2].order("work", poll=0.05)
            one, other = await asyncio.gather(steady.heard(), restless.heard())
        assert (await _current(store)).attempt == 3
        frames = [frame async for frame in runtime.session("story").events(run=run.run_id)]
    assert one == other
    assert [each[0] for each in one] == [frame.seq for frame in frames if frame.name]
    assert [each[1] for each in one].count("rewound") == 2
    assert (one[-1][1], one[-1][4]["status"]) == ("end", "completed")
    raw = [frame.data for frame in frames if frame.type == "chunk"]
    folded: list[Any] = [frame.data for frame in fold(frames) if frame.type == "chunk"]
    lines = [chunk["data"] for chunk in folded]
    assert len(raw) > len(lines)
    assert [line[:2] for line in lines] == [[told, line] for told in range(STORY) for line in range(LINES)]
    # Each part was told by one attempt alone, and later parts never by an earlier one.
    attempts = [{line[2] for line in lines if line[0] == told} for told in range(STORY)]
    assert attempts == [{1}, {2}, {3}, {3}]


async def test_a_reader_in_another_process_sees_chunks_before_the_turn_is_over(database: Database) -> None:
    async with outside() as world, database.open() as store, database.open() as elsewhere:
        runtime = await runtime_of(store, World(folder=database.folder, port=world.port))
        await runtime.create("teller", session_id="story")
        world.keep(lambda request: request[0] == 0)
        handle = await runtime.session("story").start("tell me")
        assert handle.run_id is not None
        async with mates(Colleague(database)) as (reader,):
            reader.order("follow", session="story", run=handle.run_id)
            await world.asked(1)
            await _chunk_of(elsewhere, 0, 1)
            world.release()
            followed = await reader.heard()
            outcome = await handle.wait()
    assert outcome.status == "completed"
    assert sum(each[1] == "chunk" for each in followed) == STORY * LINES
    assert followed[-1][1] == "end"
