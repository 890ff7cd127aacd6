"""Power cuts, through a simulated disk that forgets what was not synced."""

import random
from pathlib import Path

import apsw
import pytest

from tenuto import open_store
from tenuto.errors import StoreUnavailable
from tenuto.model.session import SessionKey
from tenuto.testing.sqlite_vfs import FileKind, SimulatedDisk
from tests.crash.turns import a_whole_turn, check_whole

pytestmark = pytest.mark.long("every moment of a run is a power cut")

KEY = SessionKey("powered")
TURNS = 25


class Cuts:
    """What a power cut would have left before every input or output of a run, and what was acknowledged by then."""

    def __init__(self, disk: SimulatedDisk, chance: random.Random | None) -> None:
        self.acknowledged: list[str] = []
        self.taken: list[tuple[int, dict[Path, bytes]]] = []
        self._disk = disk
        self._chance = chance
        disk.on_io = self._take

    def _take(self, _: str) -> None:
        self.taken.append((len(self.acknowledged), self._disk.survivors(self._chance)))

    def spread(self, count: int) -> list[tuple[int, dict[Path, bytes]]]:
        """Return at most this many of them, from the first to the last."""
        step = max(1, len(self.taken) // count)
        return [*self.taken[::step], self.taken[-1]]


async def _cuts_of_a_run(folder: Path, synchronous: str, chance: random.Random | None) -> Cuts:
    folder.mkdir()
    with SimulatedDisk() as disk:
        cuts = Cuts(disk, chance)
        store = await open_store(f"sqlite:///{folder}/test.db", vfs=disk.name, synchronous=synchronous)
        async with store:
            for number in range(TURNS):
                receipt = await store.commit(a_whole_turn(KEY, f"turn-{number}"))
                cuts.acknowledged.append(receipt.operation_id)
                if number % 10 == 9:
                    _checkpoint(folder / "test.db", disk)
        disk.on_io = None
    return cuts


def _checkpoint(path: Path, disk: SimulatedDisk) -> None:
    """Copy the WAL into the database and begin it anew, as SQLite does by itself after a thousand pages."""
    connection = apsw.Connection(str(path), vfs=disk.name)
    connection.pragma("synchronous", "FULL")
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
    connection.close()


async def _lost_after(folder: Path, files: dict[Path, bytes], acknowledged: list[str]) -> list[str]:
    """Open what a power cut left and return what is missing; whatever is there must be sound and whole."""
    folder.mkdir()
    for path, content in files.items():
        (folder / path.name).write_bytes(content)
    async with open_store(f"sqlite:///{folder}/test.db") as store:
        landed = await check_whole(store, KEY)
        await store.commit(a_whole_turn(KEY, "next"))
        assert await check_whole(store, KEY) == landed | {"next"}
    connection = apsw.Connection(str(folder / "test.db"))
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
    finally:
        connection.close()
    return [name for name in acknowledged if name not in landed]


@pytest.mark.parametrize("torn", [False, True], ids=["nothing unsynced survives", "any sector may survive"])
async def test_nothing_acknowledged_is_lost_wherever_the_power_goes(tmp_path: Path, torn: bool) -> None:
    cuts = await _cuts_of_a_run(tmp_path / "run", "FULL", random.Random(7) if torn else None)
    assert cuts.taken[-1][0] == TURNS
    for number, (count, files) in enumerate(cuts.spread(100)):
        lost = await _lost_after(tmp_path / str(number), files, cuts.acknowledged[:count])
        assert lost == []


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
async def test_with_less_than_full_syncs_the_same_cuts_do_lose_something(tmp_path: Path, synchronous: str) -> None:
    cuts = await _cuts_of_a_run(tmp_path / "run", synchronous, None)
    lost = 0
    for number, (count, files) in enumerate(cuts.spread(20)):
        lost += len(await _lost_after(tmp_path / str(number), files, cuts.acknowledged[:count]))
    assert lost > 0


async def test_a_commit_is_acknowledged_only_once_its_wal_is_synced(tmp_path: Path) -> None:
    with SimulatedDisk() as disk:
        async with open_store(f"sqlite:///{tmp_path}/test.db", vfs=disk.name) as store:
            for number in range(10):
                before = disk.syncs[FileKind.WAL]
                await store.commit(a_whole_turn(KEY, f"turn-{number}"))
                assert disk.syncs[FileKind.WAL] > before


async def test_a_store_whose_disk_lost_power_says_so_and_the_file_opens_again(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/test.db"
    with SimulatedDisk() as disk:
        async with open_store(address, vfs=disk.name) as store:
            await store.commit(a_whole_turn(KEY, "before"))
            disk.power_cut()
            with pytest.raises(StoreUnavailable):
                await store.commit(a_whole_turn(KEY, "without power"))
            with pytest.raises(StoreUnavailable):
                await store.load(KEY)
    async with open_store(address) as store:
        assert await check_whole(store, KEY) == {"before"}
