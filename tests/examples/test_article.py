"""The article is begun in one process and finished in another, on one file."""

from pathlib import Path

from article import elsewhere, first, graph, press
from tenuto import open_store


async def test_what_one_store_paused_another_one_resumes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/articles.db"
    async with open_store(url) as here:
        await first(here)
    async with open_store(url) as there:
        assert await elsewhere(there) == ["note on tides", "note on moons"]
        assert await graph.bind(there).waiting() == ()
        record = await there.load("tides")
        assert record is not None
        assert record.state == {"notes": ["note on tides", "note on moons"]}


async def test_what_waits_is_open_while_both_stores_are(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/articles.db"
    async with open_store(url) as here, open_store(url) as there:
        await first(here)
        (wait,) = await graph.bind(there).waiting()
        assert (wait.signal_id, wait.metadata) == ("publish?", {"notes": 2})
        assert wait.deadline is not None
        assert await elsewhere(there) == ["note on tides", "note on moons"]
        assert await graph.bind(here).waiting() == ()


def test_the_same_graph_is_a_program() -> None:
    assert (press.name, press.version, press.declares.input_log) == ("article", "1", "notes")
