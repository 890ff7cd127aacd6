"""The simulated disk against plain SQLite, whose promises are known."""

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tenuto.testing.sqlite_vfs import FileKind, SimulatedDisk


@pytest.fixture
def disk() -> Iterator[SimulatedDisk]:
    with SimulatedDisk() as disk:
        yield disk


def _open(path: Path, disk: SimulatedDisk | None, journal: str, synchronous: str) -> apsw.Connection:
    connection = apsw.Connection(str(path), vfs=disk.name if disk else None)
    connection.pragma("journal_mode", journal)
    connection.pragma("synchronous", synchronous)
    return connection


def _rows(path: Path) -> list[int]:
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute("PRAGMA integrity_check").get == "ok"
        if not connection.execute("SELECT count(*) FROM sqlite_schema").get:
            return []
        return [row[0] for row in connection.execute("SELECT a FROM t ORDER BY a")]
    finally:
        connection.close()


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize(("journal", "synchronous"), [("wal", "FULL"), ("delete", "EXTRA")])
def test_what_sqlite_promises_survives_a_cut_after_every_commit(
    tmp_path: Path, journal: str, synchronous: str, torn: bool
) -> None:
    chance = random.Random(3) if torn else None
    for count in range(1, 6):
        path = tmp_path / f"{count}.db"
        with SimulatedDisk() as disk:
            connection = _open(path, disk, journal, synchronous)
            connection.execute("CREATE TABLE t (a)")
            for number in range(count):
                connection.execute("INSERT INTO t VALUES (?)", (number,))
            connection.execute("BEGIN")
            connection.execute("INSERT INTO t VALUES (99)")
            disk.power_cut(chance)
            with pytest.raises(apsw.IOError):
                connection.execute("COMMIT")
            connection.close()
        assert not Path(f"{path}-shm").exists()
        assert _rows(path) == list(range(count))


def test_what_was_not_synced_is_gone(tmp_path: Path, disk: SimulatedDisk) -> None:
    path = tmp_path / "test.db"
    connection = _open(path, disk, "wal", "FULL")
    connection.execute("CREATE TABLE t (a)")
    connection.pragma("synchronous", "OFF")
    connection.execute("INSERT INTO t VALUES (1)")
    other = apsw.Connection(str(path), vfs=disk.name)
    assert other.execute("SELECT a FROM t").get == 1, "other connections see it until the cut"
    other.close()
    disk.power_cut()
    connection.close()
    assert _rows(path) == []


def test_looking_at_the_survivors_cuts_nothing(tmp_path: Path, disk: SimulatedDisk) -> None:
    path = tmp_path / "test.db"
    connection = _open(path, disk, "wal", "FULL")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("INSERT INTO t VALUES (1)")
    left = disk.survivors()
    connection.execute("INSERT INTO t VALUES (2)")
    connection.close()
    assert _rows(path) == [1, 2]
    copy = tmp_path / "copy"
    copy.mkdir()
    for found, content in left.items():
        (copy / found.name).write_bytes(content)
    assert _rows(copy / "test.db") == [1]


def test_syncs_are_counted_by_kind_of_file(tmp_path: Path, disk: SimulatedDisk) -> None:
    connection = _open(tmp_path / "test.db", disk, "wal", "FULL")
    connection.execute("CREATE TABLE t (a)")
    before = disk.syncs.copy()
    for number in range(5):
        connection.execute("INSERT INTO t VALUES (?)", (number,))
    assert disk.syncs - before == {FileKind.WAL: 5}
    connection.pragma("synchronous", "OFF")
    before = disk.syncs.copy()
    connection.execute("INSERT INTO t VALUES (5)")
    assert disk.syncs == before
    connection.close()


def test_above_its_limit_the_disk_is_full_and_below_it_is_not(tmp_path: Path, disk: SimulatedDisk) -> None:
    path = tmp_path / "test.db"
    connection = _open(path, disk, "wal", "FULL")
    connection.execute("CREATE TABLE t (a)")
    disk.limit = disk.used() + 50_000
    with pytest.raises(apsw.FullError):
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    connection.execute("INSERT INTO t VALUES (1)")
    assert disk.used() <= disk.limit
    disk.limit = None
    connection.execute("INSERT INTO t VALUES (2)")
    assert disk.used() == sum(found.stat().st_size for found in tmp_path.iterdir() if found.suffix != ".db-shm")
    connection.close()
    assert _rows(path) == [1, 2]


def test_everything_done_to_the_disk_is_told_before(tmp_path: Path, disk: SimulatedDisk) -> None:
    told: list[str] = []
    disk.on_io = told.append
    connection = _open(tmp_path / "test.db", disk, "delete", "FULL")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute("PRAGMA journal_mode = truncate")
    connection.execute("INSERT INTO t VALUES (2)")
    connection.close()
    assert set(told) == {"write", "sync", "delete", "truncate"}
    assert told.count("sync") == disk.syncs.total()
    assert told.count("write") == disk.writes.total()


def test_any_part_of_what_was_not_synced_may_survive_a_torn_write(tmp_path: Path, disk: SimulatedDisk) -> None:
    path = tmp_path / "test.db"
    connection = _open(path, disk, "wal", "FULL")
    connection.execute("CREATE TABLE t (a)")
    wal = Path(f"{path}-wal")
    synced = disk.survivors()[wal]
    connection.pragma("synchronous", "OFF")
    connection.execute("INSERT INTO t VALUES (randomblob(9000))")
    written = wal.read_bytes()
    seen = {disk.survivors(random.Random(seed))[wal] for seed in range(20)}
    connection.close()
    assert len(seen) > 10
    for left in seen:
        assert left[: len(synced)] == synced
        assert all(byte in (new, 0) for byte, new in zip(left[len(synced) :], written[len(synced) :], strict=False))
    assert any(len(left) > len(synced) for left in seen)
