"""Log records that name their invocation."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

from tenuto.graph.engine.scope import set_invocation_metadata
from tenuto.observe.log_records import InvocationLogs
from tests.observe.graphs import Count, around, line, spread
from tests.observe.trees import Branch, Spans

logger = logging.getLogger("tests.observe")


class Kept(logging.Handler):
    """Keeps records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(dict(record.__dict__))


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    handler.addFilter(InvocationLogs())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)


def ids(branch: Branch) -> tuple[str, str]:
    context = branch.span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


async def talk(state: Any) -> dict[str, Any]:
    logger.info("first line")
    return {}


async def test_a_nodes_first_line_has_its_span_and_the_invocations_ids(kept: Kept) -> None:
    spans = Spans()
    graph = line("a", body=talk)
    await graph.run(observers=[spans.observer], correlation_id="c-1", metadata={"tenant": "t-1"})
    (record,) = kept.records
    assert (record["trace_id"], record["span_id"]) == ids(spans.root().find("a"))
    assert record["openarmature.correlation_id"] == "c-1"
    assert record["openarmature.user.tenant"] == "t-1"
    assert "openarmature.session_id" not in record


async def test_a_line_outside_any_invocation_is_left_as_it_is(kept: Kept) -> None:
    logger.info("outside")
    (record,) = kept.records
    assert not [name for name in record if name.startswith("openarmature.") or name in ("trace_id", "span_id")]


async def test_without_an_observer_the_ids_of_the_invocation_are_there_all_the_same(kept: Kept) -> None:
    await line("a", body=talk).run(correlation_id="c-2")
    assert kept.records[0]["openarmature.correlation_id"] == "c-2"
    assert "trace_id" not in kept.records[0]


async def test_the_session_is_named_if_there_is_one(kept: Kept) -> None:
    await line("a", body=talk).run(session_id="s-1")
    assert kept.records[0]["openarmature.session_id"] == "s-1"


async def test_metadata_is_that_of_the_line_of_execution_at_that_moment(kept: Kept) -> None:
    async def body(state: Any) -> dict[str, Any]:
        logger.info("before")
        set_invocation_metadata(item=state.item)
        logger.info("after")
        return {"result": 1}

    await spread(body, concurrency=1).run(metadata={"item": 0})
    told = [(record["msg"], record["openarmature.user.item"]) for record in kept.records]
    assert told == [("before", 0), ("after", 10), ("before", 0), ("after", 20), ("before", 0), ("after", 30)]


async def test_a_line_in_a_detached_graph_is_of_its_trace(kept: Kept) -> None:
    spans = Spans(detached={"long"})
    await around("sub", line("x", body=talk, name="long")).run(observers=[spans.observer], correlation_id="c-1")
    _, apart = spans.roots()
    assert (kept.records[0]["trace_id"], kept.records[0]["span_id"]) == ids(apart.find("x"))
    assert kept.records[0]["openarmature.correlation_id"] == "c-1"


async def test_a_formatter_finds_the_values() -> None:
    class Json(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            named = {key: value for key, value in vars(record).items() if key.startswith("openarmature.")}
            return json.dumps({"message": record.getMessage(), **named})

    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(Json())
    handler.addFilter(InvocationLogs())
    logger.addHandler(handler)
    try:
        outcome = await line("a", body=talk).run(correlation_id="c-3", metadata={"tags": ["x", "y"]})
    finally:
        logger.removeHandler(handler)
    assert json.loads(written.getvalue()) == {
        "message": "first line",
        "openarmature.invocation_id": outcome.invocation_id,
        "openarmature.correlation_id": "c-3",
        "openarmature.user.tags": ["x", "y"],
    }


async def test_the_bridge_to_opentelemetry_takes_them_along() -> None:
    exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider, spans = LoggerProvider(), Spans()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    with pytest.warns(DeprecationWarning, match="LoggingHandler"):
        handler = LoggingHandler(logger_provider=provider)
    handler.addFilter(InvocationLogs())
    logger.addHandler(handler)
    try:
        await line("a", body=talk).run(Count(), observers=[spans.observer], correlation_id="c-4")
    finally:
        logger.removeHandler(handler)
    (found,) = exporter.get_finished_logs()
    assert (found.log_record.attributes or {})["openarmature.correlation_id"] == "c-4"
    said = f"{found.log_record.trace_id:032x}", f"{found.log_record.span_id:016x}"
    assert said == ids(spans.root().find("a"))


def test_logs_do_not_need_the_extra() -> None:
    code = """
import sys, logging
sys.modules['opentelemetry'] = None
from tenuto.observe.log_records import InvocationLogs
record = logging.LogRecord('n', 20, 'p', 1, 'm', None, None)
assert InvocationLogs().filter(record)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
