"""Our own tables: brought up to date, looked at, or refused."""

import asyncio
from pathlib import Path
from typing import NoReturn

import pytest

from tenuto import JSON, open_store
from tenuto.errors import InvalidInput, SchemaMismatch
from tenuto.graph import END, GraphBuilder, State, suspend
from tenuto.model.commit import BeginRun, NewCheckpoint
from tenuto.model.report import DeleteReport
from tenuto.model.schedule import NewSchedule
from tenuto.model.session import Profile, SessionKey
from tenuto.runtime.program.program import program
from tenuto.runtime.program.turn import Turn
from tenuto.store.backends.sql import migrations
from tenuto.store.schema import migrate
from tenuto.testing.factories import a_commit
from tests.conftest import OurHarness
from tests.runtime.runtimes import opened


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> OurHarness:
    if request.param == "sqlite":
        return OurHarness("sqlite", f"sqlite:///{tmp_path}/fresh.db")
    return OurHarness("postgres", request.getfixturevalue("fresh_postgres")(), schema="without_tables")


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


BEFORE_SCHEDULE_LISTS = (
    *(f"DROP INDEX {name}" for name in ("schedule_tenant", "schedule_paused", "schedule_paused_tenant")),
    "ALTER TABLE schedule DROP COLUMN tenant",
)

BEFORE_WAIT_LISTS = (
    *BEFORE_SCHEDULE_LISTS,
    *(f"DROP INDEX {name}" for name in ("wait_open", "wait_open_tenant", "wait_open_kind", "wait_open_graph")),
    "ALTER TABLE wait DROP COLUMN tenant",
    "ALTER TABLE wait DROP COLUMN graph",
    "CREATE INDEX wait_open ON wait (wait_id) WHERE status = 'open'",
)

BEFORE_BUDGETS = (*BEFORE_WAIT_LISTS, "ALTER TABLE run DROP COLUMN budget")

BEFORE_MAKINGS = (*BEFORE_BUDGETS, "ALTER TABLE effect DROP COLUMN making")

BEFORE_PREVIEWS = (
    *BEFORE_MAKINGS,
    "UPDATE profile SET preview = (SELECT s.preview FROM session s WHERE s.sid = profile.session)",
    "ALTER TABLE session DROP COLUMN preview",
)

BEFORE_SCHEDULES = (*BEFORE_PREVIEWS, "DROP TABLE schedule")

BEFORE_ADDITIONS = (*BEFORE_SCHEDULES, "ALTER TABLE run DROP COLUMN additions")

BEFORE_DELETIONS = (*BEFORE_ADDITIONS, "DROP TABLE deletion", "ALTER TABLE profile DROP COLUMN parent_life")

BEFORE_TENANTS = (
    *BEFORE_DELETIONS,
    "CREATE TABLE shared (hash TEXT PRIMARY KEY, encoding TEXT NOT NULL, body TEXT NOT NULL, loose_at BIGINT)",
    "INSERT INTO shared SELECT hash, min(encoding), min(body), NULL FROM content GROUP BY hash",
    "DROP TABLE content",
    "ALTER TABLE shared RENAME TO content",
    "CREATE INDEX content_loose ON content (loose_at) WHERE loose_at IS NOT NULL",
    "DROP INDEX holding_value",
    "ALTER TABLE holding DROP COLUMN tenant",
    "CREATE INDEX holding_hash ON holding (hash)",
)


async def go_back_to(fresh: OurHarness, version: int) -> None:
    """Say that the tables are of a former version."""
    words = "PRAGMA user_version = {}" if fresh.name == "sqlite" else "UPDATE schema_version SET version = {}"
    await fresh.damage(words.format(version))


async def test_values_that_tenants_shared_become_each_tenants_own(fresh: OurHarness) -> None:
    assert fresh.address
    both, mine = "b" * 3000, "m" * 2000
    one, two = SessionKey("s", tenant="one"), SessionKey("s", tenant="two")
    async with open_store(fresh.address, **fresh.options) as store:
        await store.create(one, state={"both": both, "mine": mine, "small": 1})
        await store.create(two, state={"both": both})
        await store.fork(two, SessionKey("fork", tenant="two"))
        run = BeginRun(run_id="r", invocation_id="i")
        await store.commit(a_commit(two, run=run, checkpoint=NewCheckpoint(step=1, document={"kept": mine})))
        now = await store.dump()
    assert len(now["content"]) == 4
    for statement in BEFORE_TENANTS:
        await fresh.damage(statement)
    await fresh.damage("INSERT INTO content VALUES ('nobody', 'json', '1', 5)")
    await go_back_to(fresh, 4)
    async with open_store(fresh.address, **fresh.options) as store:
        assert await store.dump() == now
        record, point = await store.load(one), await store.checkpoints.latest(two)
        assert record is not None
        assert point is not None
        assert (record.state, point.document) == ({"both": both, "mine": mine, "small": 1}, {"kept": mine})
        assert (await store.delete(one)).contents == 2
        assert (await store.upkeep.gc(grace=0)).contents == 0
        for key in (two, SessionKey("fork", tenant="two")):
            record = await store.load(key)
            assert record is not None
            assert record.state == {"both": both}


async def gate(_: State) -> NoReturn:
    await suspend("paused")


@program
async def asks(turn: Turn) -> JSON:
    return await turn.wait("asked")


async def test_what_waited_before_is_listed_by_tenant_and_by_graph(fresh: OurHarness) -> None:
    assert fresh.address
    graph = GraphBuilder(State, "stops").add_node("gate", gate).add_edge("gate", END).set_entry("gate").compile()
    async with open_store(fresh.address, **fresh.options) as store:
        runtime = await opened(store, [asks])
        tenant = runtime.for_tenant("acme")
        await tenant.create(asks, session_id="s", user_id="ada")
        asked = (await tenant.send("s", "hi")).waits
        paused = await graph.bind(store, tenant="acme").run()
    for statement in BEFORE_WAIT_LISTS:
        await fresh.damage(statement)
    await go_back_to(fresh, 12)
    async with open_store(fresh.address, **fresh.options) as store:
        assert await store.waits.open() == ()
        assert await store.waits.open(tenant="acme") == (*asked, paused.wait)
        assert await store.waits.open(tenant="acme", user_id="ada") == asked
        assert await graph.bind(store, tenant="acme").waiting() == (paused.wait,)


async def test_schedules_from_before_are_listed_by_tenant(fresh: OurHarness) -> None:
    assert fresh.address
    async with open_store(fresh.address, **fresh.options) as store:
        mine, theirs = SessionKey("mine"), SessionKey("theirs", tenant="acme")
        for key in (mine, theirs):
            await store.create(key)
            await store.schedules.declare(key, NewSchedule(name="n", body={"message": "hi"}, every=60.0))
        paused = await store.schedules.pause(theirs, "n")
    for statement in BEFORE_SCHEDULE_LISTS:
        await fresh.damage(statement)
    await go_back_to(fresh, 13)
    async with open_store(fresh.address, **fresh.options) as store:
        assert [each.key for each in await store.schedules.list()] == [mine]
        assert await store.schedules.list(tenant="acme") == (paused,)
        assert await store.schedules.list(tenant="acme", paused=True) == (paused,)


async def test_previews_from_before_are_still_there(fresh: OurHarness) -> None:
    assert fresh.address
    async with open_store(fresh.address, **fresh.options) as store:
        await store.create("with", profile=Profile(title="t", preview="said last"))
        await store.create("without", profile=Profile(title="u"))
        now = await store.dump()
    for statement in BEFORE_PREVIEWS:
        await fresh.damage(statement)
    await go_back_to(fresh, 9)
    async with open_store(fresh.address, **fresh.options) as store:
        assert await store.dump() == now
        found = {each.key.session_id: (each.title, each.preview) for each in await store.list()}
        assert found == {"with": ("t", "said last"), "without": ("u", None)}
        head = await store.head("with")
        assert head is not None
        assert head.profile.preview == "said last"


async def test_children_from_before_belong_to_the_life_their_parent_has(fresh: OurHarness) -> None:
    assert fresh.address
    root, other = SessionKey("root"), SessionKey("root", tenant="other")
    async with open_store(fresh.address, **fresh.options) as store:
        await store.create(root)
        await store.delete(root)
        await store.create(root)
        await store.create("child", profile=Profile(parent="root"))
        await store.create("orphan", profile=Profile(parent="nobody"))
        await store.create(SessionKey("theirs", tenant="other"), profile=Profile(parent="root"))
        now = await store.dump()
    assert [row["parent_life"] for row in now["profile"]] == [None, 2, None, None]
    for statement in BEFORE_DELETIONS:
        await fresh.damage(statement)
    await go_back_to(fresh, 5)
    async with open_store(fresh.address, **fresh.options) as store:
        assert await store.dump() == now
        assert (await store.delete(root, cascade=True)).children == (SessionKey("child"),)
        assert await store.delete(other) == DeleteReport()
        assert await store.exists(SessionKey("theirs", tenant="other"))


BEFORE_POINTS = (
    *BEFORE_TENANTS,
    """
    UPDATE checkpoint SET cursor = '{"program":"replies@1"}',
        run_id = (SELECT r.run_id FROM run r WHERE r.commit_no = checkpoint.commit_no)
    WHERE run_id IS NULL AND cursor IS NULL
    """,
    "ALTER TABLE run DROP COLUMN commit_no",
    "DROP INDEX checkpoint_run",
    "CREATE INDEX checkpoint_run ON checkpoint (run_id, commit_no)",
)


async def test_the_points_of_runs_from_before_are_found_by_the_commits_that_began_them(fresh: OurHarness) -> None:
    @program
    async def replies(turn: Turn) -> None:
        turn.append(f"re: {turn.text}")

    assert fresh.address
    async with open_store(fresh.address, **fresh.options) as store:
        runtime = await opened(store, [replies])
        await runtime.create("replies", {"mood": "calm"}, session_id="s")
        first = await runtime.send("s", "one")
        await runtime.send("s", "two")
        now = await store.dump()
    now["run"] = [{**run, "budget": None} for run in now["run"]]  # it was not kept then
    for statement in BEFORE_POINTS:
        await fresh.damage(statement)
    await go_back_to(fresh, 3)
    async with open_store(fresh.address, **fresh.options) as store:
        assert await store.dump() == now
        rewound = await (await opened(store, [replies])).session("s").rewind(str(first.run_id))
        assert (list(rewound.messages), dict(rewound.document)) == ([], {"mood": "calm"})


async def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="dry"):
        await migrate("memory://", "dry")
