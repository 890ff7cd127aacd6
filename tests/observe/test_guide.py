"""The guide tells the truth: its example prints what it says, and its tables name all there is and nothing else."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tenuto import Turn, program
from tenuto.graph import Branch, SignalDescriptor, current_turn, suspend
from tenuto.observe import log_fields
from tenuto.runtime.stream.moments import TurnBegan, TurnOver
from tenuto.testing import FakeClock, memory_runtime
from tenuto.writing.run_ids import RunIds
from tests.docs.pages import MODULES, ROOT, environment
from tests.graph import desk
from tests.observe.graphs import Broken, around, fork, line, spread
from tests.observe.test_turn_metrics import metrics
from tests.observe.test_turn_spans import agent
from tests.observe.trees import Spans

GUIDE = (ROOT / "docs" / "observe.md").read_text()
OURS = re.compile(r"`((?:openarmature|tenuto|gen_ai|error)\.[a-z_.]+(?:<key>)?)`")
MODULES_OF_OURS = re.compile(r"tenuto\.(observe|runtime|graph|testing)")


def test_the_guides_example_prints_a_line_that_names_the_span_it_was_written_in(tmp_path: Path) -> None:
    example = next(module for module in MODULES if module.page == "docs/observe.md" and "price" in module.code)
    (tmp_path / "example.py").write_text(example.code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    node, invocation = map(json.loads, done.stdout.replace("}\n{", "}\x00{").split("\x00"))
    assert (node["name"], invocation["name"]) == ("price", "openarmature.invocation")
    assert done.stderr == f"pricing, tenant acme, span {node['context']['span_id'].removeprefix('0x')}\n"


async def everything(spans: Spans) -> None:
    """Do what makes every kind of span, event and metric."""
    await graphs(spans)
    await turns(spans)
    ids = RunIds("s", "", "r", "i", "c", 2, "p@1")
    spans.observer(TurnBegan(ids=ids, origin_id="o"))  # as after a takeover
    spans.observer(TurnOver(ids=ids, status="lost"))


async def graphs(spans: Spans) -> None:
    async def fails(state: Any) -> dict[str, Any]:
        raise Broken("boom")

    branches = {"one": Branch(subgraph=line("x")), "two": Branch(subgraph=line("y"))}
    for graph in (spread(), fork(branches), around("sub", line("a")), line("b", body=fails)):
        await graph.run(observers=[spans.observer], metadata={"customer": "acme"})


async def turns(spans: Spans) -> None:
    left = [1]

    async def flaky() -> str:
        turn = current_turn()
        assert turn is not None
        turn.record_usage("m", input=1, output=1, cache_read=1, cache_write=1, reasoning=1)
        left[0] -= 1
        if left[0] >= 0:
            raise ConnectionError
        return "fine"

    async def node(state: Any) -> dict[str, Any]:
        turn = current_turn()
        assert turn is not None
        await turn.model(flaky, retries=1, backoff=0.0)
        await suspend(SignalDescriptor("approval", metadata={"of": "refund"}))

    @program
    async def waits(turn: Turn) -> None:
        async def one() -> int:
            return 1

        await turn.effect("one", one, kind="other")
        await turn.wait("go", timeout=60)

    clock = FakeClock()
    async with memory_runtime(
        [agent, waits, desk.line(node, desk.answers).as_program()], listeners=[spans.observer], clock=clock
    ) as runtime:
        sessions = runtime.for_tenant("acme")
        for each in (agent, waits, "desk"):
            session = await sessions.create(each)
            await session.enqueue("hi")
        await runtime.drain()
        clock.advance(61)
        await runtime.drain()


async def test_its_tables_name_every_attribute_event_and_metric_there_is_and_no_other() -> None:
    spans = Spans()
    await everything(spans)
    assert spans.observer.open_count == 0
    found, points = set[str](), metrics(spans)
    for span in spans.finished:
        found |= (span.attributes or {}).keys()
        for event in span.events:
            found |= {event.name, *(event.attributes or {})}
    found |= points.keys() | {name for each in points.values() for point in each for name in point.attributes}
    found = {name for name in found if not name.startswith("exception")}
    found = {re.sub(r"(openarmature\.(?:user|suspension\.metadata)\.).*", r"\1<key>", name) for name in found}
    named = {name for name in OURS.findall(GUIDE) if not MODULES_OF_OURS.match(name)}
    assert found - named == set(), "not in the guide"
    assert named - found - {"openarmature.invocation"} == set(), "not in the code"


def test_its_table_of_log_fields_is_whole() -> None:
    table = GUIDE[GUIDE.index("| attribute of the record |") : GUIDE.index("`install` sets a log record factory")]
    named = set(re.findall(r"`([a-z_]+)`", table))
    assert named == {*RunIds._fields, "trace_id", "span_id"}
    assert log_fields.fields_here() == {}
