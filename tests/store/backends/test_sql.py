"""SQL kept as SQL: the same names on both sides, all of them used, and columns in the order of the rows."""

import ast
import re
from pathlib import Path

import pytest

from tenuto.store.backends.sql import migrations, queries
from tenuto.store.rules.plan import COUNTED
from tenuto.store.rules.rows import EffectRow, RunRow, SessionRow
from tenuto.store.session_record import DUMPED
from tests.conftest import OurHarness

STORE = Path(__file__).parents[3] / "src" / "tenuto" / "store"
UNCOUNTED = {"usage", "outgoing"}
LOCKS = {"lock_session", "lock_family", "lock_run", "lock_outgoing"}


def words_in_code() -> set[str]:
    found: set[str] = set()
    for path in STORE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    tables = (*COUNTED, "profiles", "entries", "branches", "events", "holdings")
    return found | {f"delete_{table}_of" for table in tables}


def test_both_dialects_have_the_same_names_but_for_the_locks_of_one() -> None:
    assert queries("postgres").keys() - queries("sqlite").keys() == LOCKS
    assert queries("sqlite").keys() <= queries("postgres").keys()


def test_every_named_statement_is_used() -> None:
    assert not queries("postgres").keys() - words_in_code()


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("move_session", SessionRow._fields[SessionRow._fields.index("life") :]),
        ("update_runs", RunRow._fields[RunRow._fields.index("attempt") :]),
        ("restart_effects", EffectRow._fields[EffectRow._fields.index("request") :]),
    ],
)
def test_an_update_sets_the_columns_that_its_row_gives_it_in_their_order(name: str, sets: tuple[str, ...]) -> None:
    for backend in ("sqlite", "postgres"):
        changes = queries(backend)[name].partition(" SET")[2].partition("WHERE")[0]
        found = [column for column in re.findall(r"(?:^|,)\s*(\w+) = ", changes) if column in sets]
        assert tuple(found) == sets, backend


@pytest.mark.parametrize("table", sorted(DUMPED.keys() - {"deletion", "content", "holding", "profile", "session"}))
def test_an_insert_takes_every_column(table: str) -> None:
    plural = {"branch": "branches", "entry": "entries"}.get(table, table if table in UNCOUNTED else f"{table}s")
    assert queries("sqlite")[f"insert_{plural}"].count("?") == len(DUMPED[table])


def test_every_block_has_a_sentence_and_a_statement() -> None:
    for backend in ("sqlite", "postgres"):
        for name, text in queries(backend).items():
            assert re.match(r"(SELECT|INSERT|UPDATE|DELETE|WITH)\b", text), (backend, name)


def test_migrations_are_numbered_and_the_same_on_both_sides() -> None:
    assert [step.name for step in migrations("sqlite")] == [step.name for step in migrations("postgres")]


@pytest.mark.parametrize("harness", ["sqlite", "postgres"], indirect=True)
async def test_columns_stand_in_the_order_of_the_rows(harness: OurHarness) -> None:
    store = await harness.open()
    for table, columns in DUMPED.items():
        if harness.name == "sqlite":
            rows = list(store.backend._database.writer.execute(f"PRAGMA table_info({table})"))  # type: ignore[attr-defined]
            found = tuple(row[1] for row in rows)
        else:
            query = """
                SELECT column_name FROM information_schema.columns
                WHERE table_schema = $1 AND table_name = $2 ORDER BY ordinal_position
            """
            rows = await store.backend._pool.fetch(query, harness.options["schema"], table)  # type: ignore[attr-defined]
            found = tuple(row[0] for row in rows)
        assert found == columns, table
