"""A fork copies nothing: neither time nor space depends on what it forks."""

from bench.harness import Measure, Scene, Stopwatch, cpu
from bench.workload import WarmSession, a_key
from tenuto import Store, open_store
from tenuto.model.session import SessionKey

_FORKS = 100


async def entries(scene: Scene) -> float:
    """Return a fork at 10,000 entries against one at 10."""
    async with (
        open_store(scene.url("long"), synchronous="OFF") as long_store,
        open_store(scene.url("short"), synchronous="OFF") as short_store,
    ):
        long = await WarmSession.begin(long_store, entries=10_000)
        short = await WarmSession.begin(short_store, entries=10)

        async def at_ten_thousand() -> float:
            return await _time(long_store, long.key, 20)

        async def at_ten() -> float:
            return await _time(short_store, short.key, 20)

        return await scene.ratio(at_ten_thousand, at_ten, rounds=25)


async def growth(scene: Scene) -> float:
    """Return by how many KiB a fork lets the closed file grow."""
    async with open_store(scene.url(), synchronous="OFF") as store:
        source = (await WarmSession.begin(store, entries=10_000)).key
    file = scene.folder / "store.db"
    before = file.stat().st_size
    async with open_store(scene.url(), synchronous="OFF") as store:
        await _time(store, source, _FORKS)
    return (file.stat().st_size - before) / 1024 / _FORKS


async def _time(store: Store, source: SessionKey, forks: int) -> float:
    targets = [a_key() for _ in range(forks)]
    with Stopwatch(cpu) as watch:
        for target in targets:
            await store.fork(source, target)
    return watch.seconds / forks


MEASURES = (
    Measure(name="fork at 10,000 entries against at 10", unit="x", run=entries),
    Measure(name="file growth per fork, over 100 forks", unit="KiB", run=growth),
)
