"""One database for one test, on each backend; and the rules every test keeps to."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from hypothesis import settings

from tenuto import Store, open_store
from tenuto.testing.harness import Capability
from tests.conformance.adapter.loader import NOWHERE, conformance_root
from tests.sampling import seed
from tests.servers import MEMORY, SCHEMA, Postgres, running_postgres

pytest.register_assert_rewrite(
    "tenuto.testing.contract", "tenuto.testing.checks", "tenuto.testing.probes", "tenuto.testing.scenes"
)

# The same examples on every run, so that a change is judged by itself; `make soak` looks for new ones.
# An example has no deadline, since others may use the machine too; a test as a whole has a limit.
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.load_profile("steady")


FIXTURES = "tests/conformance/test_fixtures.py"
LONGEST = 10.0
"""The seconds a test may take; a longer one says why by its `long` marker, or belongs to a soak."""


def pytest_configure(config: pytest.Config) -> None:
    """Keep what tests write in memory, where there is such a folder: no test waits for a disk."""
    if config.option.basetemp is None and not hasattr(config, "workerinput") and MEMORY.is_dir():
        config.option.basetemp = tempfile.mkdtemp(prefix="tenuto-tests-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(config.option.basetemp, ignore_errors=True))


def pytest_report_header() -> str:
    """Say which part of the crash matrices this run takes."""
    return f"seed of the samples: {seed()} (TENUTO_SEED repeats it)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line if the fixtures of the specification were to be run, and were not there."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(report.nodeid.startswith(FIXTURES) for report in skipped) and conformance_root() is None:
        terminalreporter.section("conformance", sep="-")
        terminalreporter.line(NOWHERE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Iterator[None]:
    """Make a report's text fit to be sent; fail a test that passed, but took too long."""
    report: Any = yield
    # A log with half a character in it cannot be sent to the process that reports.
    report.sections = [(name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections]
    allowed = item.get_closest_marker("soak") or item.get_closest_marker("long")
    if report.when == "call" and report.passed and call.duration > LONGEST and not allowed:
        report.outcome = "failed"
        report.longrepr = f"It took {call.duration:.1f} s, and {LONGEST:g} s are allowed: split it, or mark it as long."
    return report  # type: ignore[no-any-return]


TRIGGERS = {
    "sqlite": (
        "CREATE TRIGGER broken AFTER INSERT ON {table} BEGIN SELECT RAISE(FAIL, 'injected'); END",
        "DROP TRIGGER broken",
    ),
    "postgres": (
        (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'injected'; END $$;"
            "CREATE TRIGGER broken AFTER INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
        "DROP TRIGGER broken ON {table}; DROP FUNCTION refuse",
    ),
}
"""What makes a table refuse every row, once it was written, and what undoes that."""

CAPABILITIES = {
    "sqlite": frozenset(Capability),
    "postgres": frozenset({Capability.PROBES, Capability.DAMAGE_SQL, Capability.TRIGGERS}),
}


class OurHarness:
    """A harness for one of our own backends."""

    def __init__(self, name: str, address: str, **options: Any) -> None:
        self.name = name
        self.address = address
        self.options = options
        self.capabilities = CAPABILITIES[name]
        self._opened: list[Store] = []

    async def open(self, **options: Any) -> Store:
        store = await open_store(self.address, **self.options, **options)
        self._opened.append(store)
        return store

    async def damage(self, sql: str) -> None:
        if self.name == "sqlite":
            path = self.address.removeprefix("sqlite:///")
            # Through the store's own SQLite: two libraries in one process undo each other's locks.
            file = apsw.Connection(path)
            file.set_busy_timeout(5000)
            try:
                file.execute(sql)
            finally:
                file.close()
        else:
            settings = {"search_path": self.options["schema"]}
            server = await asyncpg.connect(self.address, server_settings=settings)
            try:
                await server.execute(sql)
            finally:
                await server.close()

    async def refuse_inserts(self, table: str) -> None:
        await self.damage(TRIGGERS[self.name][0].format(table=table))

    async def accept_inserts(self, table: str) -> None:
        await self.damage(TRIGGERS[self.name][1].format(table=table))

    async def close(self) -> None:
        for store in self._opened:
            await store.aclose()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres(durable=False) as server:
        yield server


@pytest.fixture
def fresh_postgres(postgres: Postgres) -> Iterator[Callable[[], str]]:
    """Makes databases with empty tables in the schema `SCHEMA`; they go with the test."""
    made: list[str] = []

    def make() -> str:
        made.append(postgres.fresh())
        return made[-1]

    yield make
    for address in made:
        postgres.drop(address)


@pytest.fixture(params=["sqlite", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OurHarness]:
    name = request.param
    if name == "sqlite":
        found = OurHarness(name, f"sqlite:///{tmp_path}/test.db")
    else:
        found = OurHarness(name, request.getfixturevalue("fresh_postgres")(), schema=SCHEMA, pool_size=4)
    try:
        yield found
    finally:
        await found.close()


@pytest.fixture
async def store(harness: OurHarness) -> Store:
    return await harness.open()
