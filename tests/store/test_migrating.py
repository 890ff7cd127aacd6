"""Our own tables: brought up to date, looked at, or refused."""

import asyncio
from pathlib import Path

import pytest

from tenuto import open_store
from tenuto.errors import InvalidInput, SchemaMismatch
from tenuto.store.backends.sql import migrations
from tenuto.store.migrating import migrate
from tests.conftest import OurHarness
from tests.servers import Postgres


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> OurHarness:
    if request.param == "sqlite":
        return OurHarness("sqlite", f"sqlite:///{tmp_path}/fresh.db")
    server: Postgres = request.getfixturevalue("postgres")
    return OurHarness("postgres", server.url, schema=f"m_{tmp_path.name.replace('-', '_')[-30:].lower()}")


async def test_check_and_print_tell_what_is_to_do_and_change_nothing(fresh: OurHarness) -> None:
    assert fresh.address
    steps = migrations(fresh.name)
    checked = await migrate(fresh.address, "check", **fresh.options)
    assert (checked.found, checked.expected, checked.ready, checked.sql) == (0, len(steps), False, "")
    assert checked.pending == tuple(step.name for step in steps)
    printed = await migrate(fresh.address, "print", **fresh.options)
    assert all(step.sql in printed.sql for step in steps)
    assert (await migrate(fresh.address, "check", **fresh.options)).found == 0
    if fresh.name == "sqlite":
        assert not Path(fresh.address.removeprefix("sqlite:///")).exists()


async def test_without_migration_an_empty_database_is_refused_and_after_it_opened(fresh: OurHarness) -> None:
    assert fresh.address
    with pytest.raises(SchemaMismatch) as refusal:
        await open_store(fresh.address, migrate=False, **fresh.options)
    assert (refusal.value.found, refusal.value.expected) == (0, len(migrations(fresh.name)))
    await migrate(fresh.address, "apply", **fresh.options)
    assert (await migrate(fresh.address, "check", **fresh.options)).ready
    async with open_store(fresh.address, migrate=False, **fresh.options) as store:
        await store.create("after-migration")


async def test_several_openers_of_a_new_database_migrate_it_once(fresh: OurHarness) -> None:
    assert fresh.address

    async def use(number: int) -> int:
        assert fresh.address
        async with open_store(fresh.address, **fresh.options) as store:
            return (await store.create(f"session-{number}")).version

    assert await asyncio.gather(*map(use, range(6))) == [1] * 6


async def test_a_database_newer_than_the_code_is_refused_naming_both_versions(fresh: OurHarness) -> None:
    assert fresh.address
    async with open_store(fresh.address, **fresh.options):
        pass
    newer = "PRAGMA user_version = 99" if fresh.name == "sqlite" else "UPDATE schema_version SET version = 99"
    await fresh.damage(newer)
    for call in (open_store(fresh.address, **fresh.options), migrate(fresh.address, "check", **fresh.options)):
        with pytest.raises(SchemaMismatch, match="99") as refusal:
            await call
        assert (refusal.value.found, refusal.value.expected) == (99, len(migrations(fresh.name)))


async def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dry"):
        await migrate("memory://", "dry")
