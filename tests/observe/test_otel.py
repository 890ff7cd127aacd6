"""The trees of spans that runs leave."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import get_current_span

from tenuto.graph import END, Branch, GraphBuilder, SignalDescriptor
from tenuto.graph.engine.scope import Scope, set_invocation_metadata
from tenuto.graph.events.event_queue import subscription, trace_context
from tenuto.graph.events.node_event import InvocationEvent, NodeEvent
from tenuto.graph.middleware import FailureIsolation, Retry
from tenuto.observe.otel import OTelObserver
from tests.observe.graphs import Broken, Count, Many, around, double, fork, line, spread, up
from tests.observe.trees import Spans

NOW = Retry(max_attempts=3, classifier=lambda *_: True, backoff=lambda _: 0)


@pytest.fixture
def spans() -> Spans:
    return Spans()


def failing(times: int, error: Exception) -> Any:
    """Return a body that fails so often before it works."""
    left = [times]

    async def body(state: Any) -> dict[str, Any]:
        left[0] -= 1
        if left[0] >= 0:
            raise error
        return {}

    return body


async def test_every_node_has_a_span_below_the_invocations(spans: Spans) -> None:
    outcome = await line("a", "b").run(observers=[spans.observer], correlation_id="c-1", metadata={"tenant": "t-1"})
    root = spans.root()
    assert str(root) == "*(a b)"
    assert root.said("invocation_id") == outcome.invocation_id
    assert root.said("graph.entry_node") == "a"
    assert root.said("implementation.name") == "tenuto"
    b = root.find("b")
    assert (b.said("node.name"), b.said("node.namespace"), b.said("node.step")) == ("b", ("b",), 1)
    assert b.said("implementation.name") is None
    assert {(each.status, each.said("correlation_id"), each.said("user.tenant")) for each in root} == {
        ("OK", "c-1", "t-1")
    }
    assert {each.said("session_id") for each in root} == {None}
    assert {each.said("outcome") for each in root} == {None}


async def test_the_first_line_of_a_body_already_has_its_nodes_span_and_no_line_after_the_run_has_one(
    spans: Spans,
) -> None:
    seen = []

    async def body(state: Count) -> dict[str, Any]:
        seen.append(get_current_span().get_span_context().span_id)
        return {}

    before = get_current()
    await line("a", "b", body=body).run(observers=[spans.observer])
    assert seen == [spans.root().find("b").span.get_span_context().span_id]  # type: ignore[union-attr]
    assert get_current() == before


async def test_attempts_are_siblings_and_tell_what_was_raised(spans: Spans) -> None:
    body = failing(2, Broken("busy", "provider_rate_limit"))
    await line("a", body=body, middleware=[NOW]).run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(a a a)"
    assert root.status == "OK"
    told = [(a.said("node.attempt_index"), a.status, a.said("error.category"), len(a.exceptions)) for a in root.below]
    assert told == [(0, "ERROR", "provider_rate_limit", 1), (1, "ERROR", "provider_rate_limit", 1), (2, "OK", None, 0)]
    assert {a.said("node.step") for a in root.below} == {0}


async def test_an_error_is_on_its_node_and_on_all_that_it_ended(spans: Spans) -> None:
    inner = line("x", "y", body=failing(1, Broken("boom")), name="inner")
    outcome = await around("wrapper", inner).run(observers=[spans.observer])
    assert outcome.error is not None
    root = spans.root()
    assert str(root) == "*(wrapper(x y))"
    assert {each.span.name: (each.status, each.span.status.description) for each in root} == {
        "openarmature.invocation": ("ERROR", "node_exception"),
        "wrapper": ("ERROR", "node_exception"),
        "x": ("OK", None),
        "y": ("ERROR", "node_exception"),
    }
    assert all(each.exceptions for each in root if each.status == "ERROR")
    assert root.find("wrapper").said("subgraph.name") == "inner"


def wrong_edge(_: Any) -> str:
    raise Broken("no way")


@pytest.mark.parametrize(
    ("edge", "category"),
    [(wrong_edge, "edge_exception"), (lambda _: "nowhere", "routing_error")],
    ids=["raises", "misleads"],
)
@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_edges_error_is_on_the_node_before_it_also_if_that_is_a_graph(
    spans: Spans, edge: Any, category: str, wrapped: bool
) -> None:
    builder = GraphBuilder(Count)
    if wrapped:
        builder.add_subgraph_node("a", around("middle", line("x")))
    else:
        builder.add_node("a", up)
    await builder.add_conditional_edge("a", edge).set_entry("a").compile().run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == ("*(a(middle(x)))" if wrapped else "*(a)")
    assert {each.span.name: each.said("error.category") for each in root} == {
        "openarmature.invocation": category,
        "a": category,
        **({"middle": None, "x": None} if wrapped else {}),
    }


async def test_an_initial_state_that_does_not_fit_is_an_error_of_the_invocation(spans: Spans) -> None:
    await line("a").run({"n": "many"}, observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*"
    assert (root.status, root.said("error.category")) == ("ERROR", "state_validation_error")


async def test_a_graph_that_is_visited_again_has_another_span(spans: Spans) -> None:
    builder = GraphBuilder(Count).add_subgraph_node("sub", line("x"), inputs={"n": "n"})
    loop = builder.add_conditional_edge("sub", lambda s: END if s.n == 3 else "sub").set_entry("sub").compile()
    await loop.run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(sub(x) sub(x) sub(x))"
    assert {each.status for each in root} == {"OK"}
    for sub in root.below:
        assert sub.span.end_time >= sub.below[0].span.end_time  # type: ignore[operator]


async def test_instances_stand_between_their_fan_out_and_their_nodes(spans: Spans) -> None:
    await spread(concurrency=2).run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(all(all(work) all(work) all(work)))"
    (node,) = root.below
    assert [node.said(f"fan_out.{key}") for key in ("item_count", "concurrency", "error_policy")] == [3, 2, "fail_fast"]
    for index, instance in enumerate(node.below):
        assert instance.said("fan_out.parent_node_name") == "all"
        assert instance.said("node.fan_out_index") == instance.below[0].said("node.fan_out_index") == index
    assert node.said("node.fan_out_index") is None


async def test_attempts_at_an_instance_are_siblings_too(spans: Spans) -> None:
    await spread(failing(1, Broken("busy")), concurrency=1, instance_middleware=[NOW]).run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(all(all(work) all(work) all(work) all(work)))"
    told = [(i.said("node.fan_out_index"), i.said("node.attempt_index"), i.status) for i in root.below[0].below]
    assert told == [(0, 0, "ERROR"), (0, 1, "OK"), (1, 0, "OK"), (2, 0, "OK")]


async def test_a_failed_instance_is_an_error_though_its_fan_out_collects(spans: Spans) -> None:
    await spread(failing(1, Broken("boom")), concurrency=1, error_policy="collect").run(observers=[spans.observer])
    root = spans.root()
    assert (root.status, root.below[0].status) == ("OK", "OK")
    assert [instance.status for instance in root.below[0].below] == ["ERROR", "OK", "OK"]


async def test_a_branch_has_one_span_whether_it_is_a_graph_or_a_function(spans: Spans) -> None:
    async def call(state: Count) -> dict[str, Any]:
        return {"log": ["called"]}

    branches = {
        "called": Branch(call=call),
        "skipped": Branch(call=call, when=lambda _: False),
        "walked": Branch(subgraph=line("walked", "y"), outputs={}),
    }
    await fork(branches).run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(fork(called walked(walked y)))"
    (node,) = root.below
    assert node.said("parallel_branches.branch_count") == 2
    for branch in node.below:
        assert branch.said("node.branch_name") == branch.span.name
        assert branch.said("parallel_branches.parent_node_name") == "fork"
    assert root.find("y").said("node.branch_name") == "walked"
    assert root.find("y").said("parallel_branches.parent_node_name") is None


async def test_what_a_branch_raised_is_told_by_the_carrier_on_the_branch_and_its_dispatcher(spans: Spans) -> None:
    branches = {"called": Branch(call=failing(1, Broken("busy", "provider_rate_limit")))}
    await fork(branches, middleware=[NOW]).run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(fork(called) fork(called))"
    first, second = root.below
    assert {each.said("error.category") for each in first} == {"node_exception"}
    assert {(each.status, each.said("node.attempt_index")) for each in second} == {("OK", 1)}


async def test_a_detached_subgraph_has_a_trace_of_its_own_that_its_node_links_to() -> None:
    spans = Spans(detached={"long"})
    inner = line("x", "y", name="long")
    graph = (
        GraphBuilder(Count)
        .add_subgraph_node("dispatch", inner)
        .add_node("after", up)
        .add_edge("dispatch", "after")
        .add_edge("after", END)
        .set_entry("dispatch")
        .compile()
    )
    outcome = await graph.run(observers=[spans.observer], metadata={"tenant": "t"})
    parent, apart = spans.roots()
    assert (str(parent), str(apart)) == ("*(dispatch after)", "*(long(x y))")
    (link,) = parent.find("dispatch").span.links
    assert link.context == apart.span.get_span_context()
    assert parent.said("invocation_id") == apart.said("invocation_id") == outcome.invocation_id
    assert (parent.said("graph.entry_node"), apart.said("graph.entry_node")) == ("dispatch", "x")
    assert {each.said("user.tenant") for root in (parent, apart) for each in root} == {"t"}


async def test_a_detached_fan_out_has_a_trace_for_every_instance() -> None:
    spans = Spans(detached={"all"})
    await spread(failing(1, Broken("boom")), concurrency=1, error_policy="collect").run(observers=[spans.observer])
    parent, *apart = spans.roots()
    assert str(parent) == "*(all)"
    assert [str(each) for each in apart] == ["*(all(work))"] * 3
    assert [link.context for link in parent.below[0].span.links] == [each.span.get_span_context() for each in apart]
    assert [(each.status, each.below[0].status) for each in apart] == [("ERROR", "ERROR"), ("OK", "OK"), ("OK", "OK")]


@pytest.mark.parametrize("detached", [False, True])
async def test_an_instance_that_is_a_function_has_one_span(detached: bool) -> None:
    async def call(state: Many, item: int) -> int:
        return item * 2

    spans = Spans(detached={"all"} if detached else ())
    builder = GraphBuilder(Many).add_fan_out_node("all", call, items_field="items", target_field="results")
    await builder.add_edge("all", END).set_entry("all").compile().run(observers=[spans.observer])
    parent, *apart = spans.roots()
    if detached:
        assert (str(parent), [str(root) for root in apart]) == ("*(all)", ["*(all)"] * 3)
        instances = [root.below[0] for root in apart]
    else:
        assert (str(parent), apart) == ("*(all(all all all))", [])
        instances = parent.below[0].below
    told = [(each.said("node.fan_out_index"), each.said("fan_out.parent_node_name"), each.status) for each in instances]
    assert told == [(0, "all", "OK"), (1, "all", "OK"), (2, "all", "OK")]


async def test_detached_inside_detached_makes_three_traces_with_two_links() -> None:
    spans = Spans(detached={"outer", "inner"})
    inner = line("x", name="inner")
    outer = GraphBuilder(Count, "outer").add_subgraph_node("in", inner).add_edge("in", END).set_entry("in").compile()
    await around("out", outer).run(observers=[spans.observer])
    roots = spans.roots()
    assert [str(root) for root in roots] == ["*(out)", "*(outer(in))", "*(inner(x))"]
    assert roots[0].find("out").span.links[0].context == roots[1].span.get_span_context()
    assert roots[1].find("in").span.links[0].context == roots[2].span.get_span_context()


async def test_a_resumed_invocation_links_to_the_one_it_goes_on_from(spans: Spans) -> None:
    told = []

    async def body(state: Any) -> dict[str, Any]:
        told.append(trace_context([subscription(spans.observer)]))
        return {"result": 1}

    await spread(body, concurrency=1).run({"items": [1]}, observers=[spans.observer])
    root = spans.root()
    context = root.span.get_span_context()
    assert context is not None
    assert told == [f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"]
    scope = Scope(invocation_id="i", correlation_id="c", session_id=None, metadata={})
    for resumed_from in (told[0], "no such thing"):
        event = InvocationEvent("started", line("a"), scope, resumed_from=resumed_from)
        spans.observer(event)
        spans.observer(event._replace(phase="suspended"))
    _, linked, alone = spans.roots()
    assert [link.context.span_id for link in linked.span.links] == [context.span_id]
    assert not alone.span.links
    assert (linked.status, linked.said("outcome")) == ("OK", "suspended")


async def test_a_node_that_suspended_says_what_it_waits_for(spans: Spans) -> None:
    kept: list[NodeEvent] = []

    class First:
        inline = True

        def __call__(self, event: Any) -> None:
            if isinstance(event, NodeEvent) and event.phase == "started":
                kept.append(event)

    metadata: Any = {"kind": "approval", "limit": {"euro": 10, "note": None}, "pool": ["a", "b"], "mixed": [1, "x"]}

    async def body(state: Any) -> dict[str, Any]:
        spans.observer(kept[0].suspended(SignalDescriptor("s-1", metadata)))
        return {}

    await line("a", body=body).run(observers=[First(), spans.observer])
    node = spans.root().find("a")
    assert (node.status, node.said("outcome"), node.said("suspension.signal_id")) == ("OK", "suspended", "s-1")
    told = {
        name: node.said(f"suspension.metadata.{name}") for name in ("kind", "limit.euro", "limit.note", "pool", "mixed")
    }
    assert told == {"kind": "approval", "limit.euro": 10, "limit.note": None, "pool": ("a", "b"), "mixed": ("1", "x")}


async def test_a_session_is_named_on_every_span_if_there_is_one(spans: Spans) -> None:
    scope = Scope(invocation_id="i", correlation_id="c", session_id="s-1", metadata={})
    event = InvocationEvent("started", line("a"), scope)
    spans.observer(event)
    spans.observer(event._replace(phase="completed"))
    assert spans.root().said("session_id") == "s-1"
    assert (spans.root().span.attributes or {})["gen_ai.conversation.id"] == "s-1"


async def test_fifty_invocations_at_once_do_not_mix_their_trees(spans: Spans) -> None:
    async def wait(state: Any) -> dict[str, Any]:
        for _ in range(state.item % 7):
            await asyncio.sleep(0)
        return {"result": state.item}

    graph = spread(wait)
    graph.attach_observer(spans.observer)
    runs = [graph.run({"items": [n, n + 1, n + 2]}, correlation_id=f"c-{n}", metadata={"n": n}) for n in range(50)]
    outcomes = await asyncio.gather(*runs)
    roots = spans.roots()
    assert len(roots) == 50
    assert {root.said("invocation_id") for root in roots} == {outcome.invocation_id for outcome in outcomes}
    for root in roots:
        assert str(root) == "*(all(all(work) all(work) all(work)))"
        ((correlation, n),) = {(each.said("correlation_id"), each.said("user.n")) for each in root}
        assert correlation == f"c-{n}"
        assert sorted(each.said("node.fan_out_index") for each in root.below[0].below) == [0, 1, 2]


async def test_cancelling_a_run_ends_all_its_spans(spans: Spans) -> None:
    begun = asyncio.Event()

    async def forever(state: Any) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    running = asyncio.create_task(spread(forever).run(observers=[spans.observer]))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    root = spans.root()
    assert str(root) == "*(all(all(work) all(work) all(work)))"
    assert {(each.status, each.said("outcome")) for each in root} == {("UNSET", "cancelled")}


async def test_a_sibling_that_a_failure_cut_off_is_cancelled_not_wrong(spans: Spans) -> None:
    async def body(state: Any) -> dict[str, Any]:
        if state.item == 20:
            raise Broken("boom")
        await asyncio.Event().wait()
        return {}

    await spread(body).run(observers=[spans.observer])
    (node,) = spans.root().below
    told = [{(each.status, each.said("outcome")) for each in instance} for instance in node.below]
    assert told == [{("UNSET", "cancelled")}, {("ERROR", None)}, {("UNSET", "cancelled")}]
    assert node.status == "ERROR"


async def test_a_run_that_is_told_to_stop_says_so(spans: Spans) -> None:
    asked = [False, False, True]
    await around("sub", line("x", "y")).run(observers=[spans.observer], stop=lambda: asked.pop(0))
    root = spans.root()
    assert str(root) == "*(sub(x))"
    told = {each.span.name: (each.status, each.said("outcome")) for each in root}
    assert told == {"openarmature.invocation": ("OK", "interrupted"), "sub": ("OK", "interrupted"), "x": ("OK", None)}


async def test_a_middleware_may_run_a_node_in_a_task_of_its_own(spans: Spans) -> None:
    async def apart(state: Any, following: Any) -> Any:
        return await asyncio.create_task(following(state))

    seen = []

    async def body(state: Count) -> dict[str, Any]:
        seen.append(get_current_span().get_span_context().span_id)
        return {}

    before = get_current()
    graph = (
        GraphBuilder(Count)
        .add_node("a", body, middleware=[apart])
        .add_node("b", body)
        .add_edge("a", "b")
        .add_edge("b", END)
        .set_entry("a")
        .compile()
    )
    await graph.run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(a b)"
    assert seen == [each.span.get_span_context().span_id for each in root.below]  # type: ignore[union-attr]
    assert get_current() == before


async def test_an_isolated_failure_stays_on_its_node(spans: Spans) -> None:
    isolation = FailureIsolation({"n": 7}, "isolated")
    await line("a", body=failing(1, Broken("boom")), middleware=[isolation]).run(observers=[spans.observer])
    assert (spans.root().status, spans.root().find("a").status) == ("OK", "ERROR")


async def test_a_graph_run_by_a_nodes_code_is_below_that_nodes_span(spans: Spans) -> None:
    inner = line("x")

    async def body(state: Count) -> dict[str, Any]:
        await inner.run(observers=[spans.observer])
        return {}

    await line("a", body=body).run(observers=[spans.observer])
    assert str(spans.root()) == "*(a(*(x)))"


async def test_an_observer_attached_twice_makes_its_spans_once(spans: Spans) -> None:
    inner = line("x")
    inner.attach_observer(spans.observer)
    graph = around("sub", inner)
    graph.attach_observer(spans.observer)
    await graph.run(observers=[spans.observer])
    assert str(spans.root()) == "*(sub(x))"


async def test_an_observer_of_an_inner_graph_sees_only_that(spans: Spans) -> None:
    inner = line("x")
    inner.attach_observer(spans.observer)
    graph = (
        GraphBuilder(Count)
        .add_node("a", up)
        .add_subgraph_node("sub", inner)
        .add_edge("a", "sub")
        .add_edge("sub", END)
        .set_entry("a")
        .compile()
    )
    await graph.run()
    assert str(spans.root()) == "sub(x)"


async def test_two_observers_have_a_tree_each_and_leave_no_span_behind() -> None:
    first, second = Spans(), Spans()
    before = get_current()
    await around("sub", line("x")).run(observers=[first.observer, second.observer])
    assert str(first.root()) == str(second.root()) == "*(sub(x))"
    assert get_current() == before


async def test_metadata_goes_on_the_open_spans_of_its_own_line_of_execution(spans: Spans) -> None:
    async def note(state: Any) -> dict[str, Any]:
        set_invocation_metadata(item=state.item)
        return {"result": state.item}

    graph = (
        GraphBuilder(Count)
        .add_node("early", up)
        .add_subgraph_node("sub", line("note", body=noting))
        .add_node("late", up)
        .add_edge("early", "sub")
        .add_edge("sub", "late")
        .add_edge("late", END)
        .set_entry("early")
        .compile()
    )
    await graph.run(observers=[spans.observer])
    told = {each.span.name: each.said("user.noted") for each in spans.root()}
    assert told == {"openarmature.invocation": "yes", "early": None, "sub": "yes", "note": "yes", "late": "yes"}

    apart = Spans()
    await spread(note).run(observers=[apart.observer])
    root = apart.root()
    assert (root.said("user.item"), root.below[0].said("user.item")) == (None, None)
    assert [{each.said("user.item") for each in instance} for instance in root.below[0].below] == [{10}, {20}, {30}]


async def noting(state: Any) -> dict[str, Any]:
    set_invocation_metadata(noted="yes")
    return {}


async def test_metadata_of_an_instances_middleware_is_not_the_invocations(spans: Spans) -> None:
    async def note(state: Any, following: Any) -> Any:
        set_invocation_metadata(item=state.item)
        return await following(state)

    await spread(double, instance_middleware=[note]).run(observers=[spans.observer])
    root = spans.root()
    assert (root.said("user.item"), root.below[0].said("user.item")) == (None, None)
    assert [instance.said("user.item") for instance in root.below[0].below] == [10, 20, 30]


async def test_metadata_in_an_inner_instance_reaches_the_outer_instance_it_is_in_and_no_other(spans: Spans) -> None:
    async def note(state: Any) -> dict[str, Any]:
        set_invocation_metadata(item=state.item)
        return {"result": state.item}

    inner = spread(note)
    options: dict[str, Any] = {"items_field": None, "item_field": None, "count": 2, "collect_field": "results"}
    outer = spread(inner=inner, **options)
    await outer.run(observers=[spans.observer])
    root = spans.root()
    assert str(root) == "*(all(all(all(all(work) all(work) all(work))) all(all(all(work) all(work) all(work)))))"
    for instance in root.below[0].below:
        assert instance.said("user.item") in (10, 20, 30)
        assert instance.below[0].said("user.item") is None
    assert (root.said("user.item"), root.below[0].said("user.item")) == (None, None)


async def test_nothing_is_registered_globally_and_without_a_provider_nothing_is_made() -> None:
    spans, silent = Spans(), OTelObserver()
    outcome = await line("a").run(observers=[spans.observer, silent])
    assert outcome.completed
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert silent.trace_context() is None


async def test_nothing_is_kept_of_runs_that_have_ended(spans: Spans) -> None:
    graph = spread(failing(1, Broken("boom")))
    for _ in range(3):
        await graph.run(observers=[spans.observer])
    await around("sub", line("x")).run(observers=[spans.observer])
    assert spans.observer.open_count == 0


async def test_a_processor_that_raises_disturbs_neither_the_run_nor_the_context() -> None:
    class Broken(SpanProcessor):
        def on_end(self, span: Any) -> None:
            raise RuntimeError("exporter down")

    provider = TracerProvider()
    provider.add_span_processor(Broken())
    observer = OTelObserver(provider)
    before = get_current()
    with pytest.warns(RuntimeWarning, match="exporter down"):
        outcome = await around("sub", line("x", "y")).run(observers=[observer])
    assert outcome.completed
    assert observer.open_count == 0
    assert get_current() == before


def test_without_the_extra_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import tenuto.observe.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'tenuto[otel]'" in done.stderr
