"""A fan-out whose instances are a function: of the state and the item, to the result."""

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from tenuto import Store
from tenuto.errors import GraphCompileError, InvalidInput, NodeException, StateValidationError
from tenuto.graph import END, Branch, CompiledGraph, GraphBuilder, State, append, concat_flatten
from tenuto.graph.engine.scope import current_scope, get_invocation_metadata, set_invocation_metadata
from tenuto.graph.middleware import FailureIsolation, Retry


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


class Page(BaseModel):
    url: str
    read_at: datetime


class Work(State):
    factor: int = 10
    items: list[int] = []
    results: Annotated[list[int | None], append] = []
    flat: Annotated[list[int], concat_flatten] = []
    pages: Annotated[list[Page], append] = []
    errors: Annotated[list[dict[str, str]], append] = []
    number: int = 0


async def times(state: Work, item: int) -> int:
    # Later ones are done earlier.
    for _ in range(5 - item):
        await asyncio.sleep(0)
    return state.factor * item


def graph_of(call: Any, store: Store | None = None, **options: Any) -> CompiledGraph[Work]:
    builder = GraphBuilder(Work)
    if store is not None:
        builder.with_checkpointer(store)
    counted = {} if "count" in options else {"items_field": "items"}
    options = {"target_field": "results"} | counted | options
    return builder.add_fan_out_node("fan", call, **options).add_edge("fan", END).set_entry("fan").compile()


async def test_results_are_collected_in_the_order_of_the_items() -> None:
    final = await graph_of(times, count_field="number").invoke({"items": [1, 2, 3]})
    assert (final.results, final.number) == ([10, 20, 30], 3)


async def test_with_a_count_the_function_gets_the_index() -> None:
    assert (await graph_of(times, count=3).invoke()).results == [0, 10, 20]


async def test_results_go_through_the_reducer_of_their_field() -> None:
    async def twice(_: Work, item: int) -> list[int]:
        return [item, item]

    assert (await graph_of(twice, target_field="flat").invoke({"items": [1, 2]})).flat == [1, 1, 2, 2]


async def test_no_more_run_at_once_than_the_concurrency_allows() -> None:
    running, most = 0, 0

    async def work(_: Work, item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return item

    await graph_of(work, concurrency=3).invoke({"items": list(range(9))})
    assert most == 3


async def odd(_: Work, item: int) -> int:
    if item % 2 == 0:
        raise ValueError(f"{item} is even")
    return item


async def test_the_first_failure_ends_the_node_with_the_error_as_its_cause() -> None:
    outcome = await graph_of(odd).run({"items": [1, 2, 3]})
    assert isinstance(outcome.error, NodeException)
    assert outcome.error.node_name == "fan"
    assert isinstance(outcome.error.__cause__, ValueError)


async def test_failures_are_collected_and_their_places_left_out() -> None:
    graph = graph_of(odd, error_policy="collect", errors_field="errors")
    final = await graph.invoke({"items": [1, 2, 3, 4]})
    assert final.results == [1, 3]
    assert [(error["fan_out_index"], error["category"]) for error in final.errors] == [
        ("1", "node_exception"),
        ("3", "node_exception"),
    ]


async def test_middleware_around_an_instance_sees_the_state_and_the_result_as_an_update() -> None:
    seen = []

    async def watching(state: Work, following: Any) -> Any:
        update = await following(state)
        seen.append((type(state), dict(update)))
        return {"results": update["results"] + 1}

    final = await graph_of(times, instance_middleware=[watching], concurrency=1).invoke({"items": [1, 2]})
    assert seen == [(Work, {"results": 10}), (Work, {"results": 20})]
    assert final.results == [11, 21]


async def test_an_instance_can_be_tried_again_and_isolated() -> None:
    calls: Counter[int] = Counter()

    async def flaky(_: Work, item: int) -> int:
        calls[item] += 1
        if calls[item] == 1 or item == 3:
            raise ValueError("again")
        return item

    retry = Retry(max_attempts=2, classifier=lambda *_: True, backoff=lambda _: 0.0)
    isolation = FailureIsolation({"results": None}, event_name="isolated")
    final = await graph_of(flaky, instance_middleware=[isolation, retry]).invoke({"items": [1, 2, 3]})
    assert final.results == [1, 2, None]
    assert calls == {1: 2, 2: 2, 3: 2}


async def test_every_attempt_at_an_instance_is_one_pair_of_events() -> None:
    failed = False

    async def once(_: Work, item: int) -> int:
        nonlocal failed
        set_invocation_metadata(mine=item)
        await asyncio.sleep(0)
        assert get_invocation_metadata()["mine"] == item
        scope = current_scope()
        assert scope is not None
        assert scope.namespace == ("fan", "fan")
        if item == 2 and not failed:
            failed = True
            raise ValueError("again")
        return item

    events: list[Any] = []

    async def observer(event: Any) -> None:
        events.append(event)

    retry = Retry(max_attempts=2, classifier=lambda *_: True, backoff=lambda _: 0.0)
    graph = graph_of(once, instance_middleware=[retry], concurrency=1)
    graph.attach_observer(observer, phases=["started", "completed"])
    await graph.invoke({"items": [1, 2], "results": [0]})
    await graph.drain()
    pairs = [event for event in events if hasattr(event, "phase")]
    left = [event.post_state.results if event.post_state else None for event in pairs]
    told = [
        (str(event.phase), event.namespace, event.fan_out_index, event.attempt_index, results, bool(event.error))
        for event, results in zip(pairs, left, strict=True)
    ]
    assert told == [
        ("started", ("fan",), None, 0, None, False),
        ("started", ("fan", "fan"), 0, 0, None, False),
        ("completed", ("fan", "fan"), 0, 0, [0, 1], False),
        ("started", ("fan", "fan"), 1, 0, None, False),
        ("completed", ("fan", "fan"), 1, 0, None, True),
        ("started", ("fan", "fan"), 1, 1, None, False),
        ("completed", ("fan", "fan"), 1, 1, [0, 2], False),
        ("completed", ("fan",), None, 0, [0, 1, 2], False),
    ]
    inner = [event for event in pairs if event.namespace == ("fan", "fan")]
    assert all(event.parent_states == (event.pre_state,) for event in inner)


async def test_an_observer_of_the_graph_is_told_once_of_a_function_that_is_a_branch() -> None:
    async def branch(_: Work) -> dict[str, int]:
        return {"number": 1}

    told: list[tuple[str, ...]] = []

    async def observer(event: Any) -> None:
        told.append((str(event.phase), *event.namespace))

    graph = (
        GraphBuilder(Work)
        .add_parallel_branches_node("both", {"left": Branch(call=branch)})
        .add_edge("both", END)
        .set_entry("both")
        .compile()
    )
    graph.attach_observer(observer)
    await graph.invoke()
    await graph.drain()
    assert told == [
        ("started", "both"),
        ("started", "both", "left"),
        ("completed", "both", "left"),
        ("completed", "both"),
    ]


@pytest.mark.parametrize("observed", [True, False])
async def test_a_result_that_does_not_fit_fails_the_node_whoever_looks(observed: bool) -> None:
    async def text(_: Work, item: int) -> str:
        return f"not a number: {item}"

    async def observer(_: Any) -> None:
        pass

    graph = graph_of(text, error_policy="collect", errors_field="errors")
    outcome = await graph.run({"items": [1]}, observers=[observer] if observed else [])
    assert isinstance(outcome.error, StateValidationError)


async def test_a_crash_anywhere_repeats_no_instance_that_was_done(store: Store) -> None:
    for at in (2, 3, 5):
        done: Counter[int] = Counter()
        calls = 0

        async def read(_: Work, item: int, at: int = at, done: Counter[int] = done) -> Page:
            nonlocal calls
            calls += 1
            if calls == at:
                raise Crash
            if item == 1:
                raise ValueError("gone")
            done[item] += 1
            return Page(url=f"/{item}", read_at=datetime(2026, 1, item, tzinfo=UTC))

        graph = graph_of(
            read, store, target_field="pages", error_policy="collect", errors_field="errors", concurrency=1
        )
        with pytest.raises(Crash):
            await graph.run({"items": [1, 2, 3, 4, 5]}, invocation_id=f"crashed-{at}")
        final = await graph.invoke(resume_invocation=f"crashed-{at}")
        assert final.pages == [Page(url=f"/{day}", read_at=datetime(2026, 1, day, tzinfo=UTC)) for day in (2, 3, 4, 5)]
        assert [error["fan_out_index"] for error in final.errors] == ["0"]
        assert (done, calls) == ({2: 1, 3: 1, 4: 1, 5: 1}, 6)


async def test_a_plain_function_is_called_in_a_thread() -> None:
    threads = set()

    def read(_: Any, item: int) -> int:
        threads.add(threading.current_thread())
        return item * 2

    outcome = await graph_of(read).run({"items": [1, 2]})
    assert outcome.result().results == [2, 4]
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    "options",
    [
        {"item_field": "number"},
        {"collect_field": "number"},
        {"inputs": {"number": "number"}},
        {"extra_outputs": {"number": "number"}},
    ],
)
def test_what_only_a_graph_has_is_refused_for_a_function(options: dict[str, Any]) -> None:
    with pytest.raises(GraphCompileError, match=next(iter(options))) as refused:
        graph_of(times, **options)
    assert refused.value.category == "fan_out_invalid_instance_spec"


def test_the_rules_of_every_fan_out_hold_for_functions_too() -> None:
    def category(call: Any, **options: Any) -> str:
        with pytest.raises(GraphCompileError) as refused:
            graph_of(call, **options)
        return refused.value.category

    graph = graph_of(times)
    assert category(times, count=2, items_field="items") == "fan_out_count_mode_ambiguous"
    assert category(times, items_field=None) == "fan_out_count_mode_ambiguous"
    assert category(times, items_field="number") == "fan_out_field_not_list"
    assert category(graph, item_field="number") == "fan_out_invalid_instance_spec"
    lacking = FailureIsolation({"number": 1}, event_name="isolated")
    assert category(times, instance_middleware=[lacking]) == "fan_out_degraded_update_missing_collect_field"
    with pytest.raises(InvalidInput, match="a compiled graph or a function"):
        graph_of("times")


def test_a_function_is_drawn_as_one_box() -> None:
    assert '    n_fan["fan (each of items)"]\n' in graph_of(times).to_mermaid()
    assert '    n_fan["fan (many times)"]\n' in graph_of(times, count=3).to_mermaid()
