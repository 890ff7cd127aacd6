"""When instances that are done are written: one by one or in batches, and what a failed or cancelled write leaves."""

import asyncio
from collections import Counter
from typing import Annotated, Any

import pytest

from tenuto import Store
from tenuto.errors import CheckpointSaveFailed, InvalidInput, StoreUnavailable
from tenuto.graph import END, CompiledGraph, GraphBuilder, State, append
from tenuto.model.commit import BeginRun, Reset


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is finished."""


class Cell(State):
    item: int = 0
    result: int = 0


class Table(State):
    items: list[int] = []
    round: int = 0
    results: Annotated[list[int], append] = []


class Work:
    """The cells' work: counts which were done, and lets some of them raise, once."""

    def __init__(self, **raises: BaseException) -> None:
        self.raises = {int(name.removeprefix("at_")): error for name, error in raises.items()}
        self.done: Counter[int] = Counter()

    async def cell(self, state: Cell) -> dict[str, int]:
        await asyncio.sleep(0)
        if error := self.raises.pop(state.item, None):
            raise error
        self.done[state.item] += 1
        return {"result": state.item * 10}

    def graph(self, store: Store, batch: int, concurrency: int = 1) -> CompiledGraph[Table]:
        cell = GraphBuilder(Cell).add_node("cell", self.cell).add_edge("cell", END).set_entry("cell").compile()
        return (
            GraphBuilder(Table)
            .with_checkpointer(store, fan_out_batch=batch)
            .add_fan_out_node(
                "fan",
                cell,
                items_field="items",
                item_field="item",
                collect_field="result",
                target_field="results",
                concurrency=concurrency,
            )
            .add_edge("fan", END)
            .set_entry("fan")
            .compile()
        )


def watched(store: Store) -> list[list[int]]:
    """Return a list that grows with every checkpoint: the instances it says are done; an empty one is a node's own."""
    real, seen = store.commit, []

    async def kept(commit: Any) -> Any:
        receipt = await real(commit)
        if commit.checkpoint is not None and not isinstance(commit.run, BeginRun):
            entries = [item for name, log in commit.logs.items() if name.endswith("*") for item in log.items]
            seen.append([entry["index"] for entry in entries])
        return receipt

    store.commit = kept  # type: ignore[method-assign]
    return seen


SEVEN = {"items": [1, 2, 3, 4, 5, 6, 7]}


async def test_instances_are_written_one_by_one_unless_batches_are_asked_for(store: Store) -> None:
    seen = watched(store)
    await Work().graph(store, 1).invoke(SEVEN)
    assert seen == [[0], [1], [2], [3], [4], [5], [6], []]


async def test_a_batch_is_one_commit_and_the_rest_is_written_before_the_node_itself(store: Store) -> None:
    seen = watched(store)
    assert (await Work().graph(store, 3).invoke(SEVEN)).results == [10, 20, 30, 40, 50, 60, 70]
    assert seen == [[0, 1, 2], [3, 4, 5], [6], []]


async def test_a_failure_writes_the_half_full_batch_so_nothing_done_runs_again(store: Store) -> None:
    work = Work(at_6=ValueError("not yet"))
    graph = work.graph(store, 4)
    seen = watched(store)
    assert (await graph.run(SEVEN, invocation_id="failed")).error is not None
    assert seen == [[0, 1, 2, 3], [4]]
    assert (await graph.invoke(resume_invocation="failed")).results == [10, 20, 30, 40, 50, 60, 70]
    assert work.done == dict.fromkeys(range(1, 8), 1)


async def test_a_stop_writes_the_half_full_batch(store: Store) -> None:
    work = Work()
    graph = work.graph(store, 4)
    outcome = await graph.run(SEVEN, invocation_id="stopped", stop=lambda: len(work.done) == 6)
    assert outcome.status == "interrupted"
    assert (await graph.invoke(resume_invocation="stopped")).results == [10, 20, 30, 40, 50, 60, 70]
    assert work.done == dict.fromkeys(range(1, 8), 1)


async def test_a_run_broken_off_writes_the_batch_that_was_not_full(store: Store) -> None:
    work = Work(at_6=Crash())
    graph = work.graph(store, 4)
    with pytest.raises(Crash):
        await graph.run(SEVEN, invocation_id="crashed")
    assert (await graph.invoke(resume_invocation="crashed")).results == [10, 20, 30, 40, 50, 60, 70]
    assert work.done == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}


async def test_instances_inside_instances_fill_the_same_batches(store: Store) -> None:
    work = Work()
    row = work.graph(store, 1)
    assert row.store is not None  # its own store counts for nothing inside another graph

    class Rows(State):
        rows: list[list[int]] = []
        results: Annotated[list[list[int]], append] = []

    graph = (
        GraphBuilder(Rows)
        .with_checkpointer(store, fan_out_batch=4)
        .add_fan_out_node(
            "rows",
            row,
            items_field="rows",
            item_field="items",
            collect_field="results",
            target_field="results",
            concurrency=1,
        )
        .add_edge("rows", END)
        .set_entry("rows")
        .compile()
    )
    seen = watched(store)
    work.raises = {5: Crash()}
    with pytest.raises(Crash):
        await graph.run({"rows": [[1, 2], [3, 4, 5]]}, invocation_id="nested")
    assert seen == [[0, 1, 0, 0], [1]]  # what was done when the run broke off goes too
    final = await graph.invoke(resume_invocation="nested")
    assert final.results == [[10, 20], [30, 40, 50]]
    assert work.done == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize("batch", [0, -1, True, 2.0, "3"])
async def test_a_batch_that_is_no_number_is_refused(batch: Any, store: Store) -> None:
    with pytest.raises(InvalidInput, match="fan_out_batch"):
        GraphBuilder(Table).with_checkpointer(store, fan_out_batch=batch)


def two_rounds(work: Work, store: Store, concurrency: int) -> CompiledGraph[Table]:
    cell = GraphBuilder(Cell).add_node("cell", work.cell).add_edge("cell", END).set_entry("cell").compile()

    async def turn(state: Table) -> dict[str, Any]:
        return {"round": state.round + 1, "items": [100 * state.round + n for n in range(4)]}

    return (
        GraphBuilder(Table)
        .with_checkpointer(store)
        .add_node("turn", turn)
        .add_fan_out_node(
            "fan",
            cell,
            items_field="items",
            item_field="item",
            collect_field="result",
            target_field="results",
            concurrency=concurrency,
        )
        .add_edge("turn", "fan")
        .add_conditional_edge("fan", lambda s: END if s.round == 2 else "turn")
        .set_entry("turn")
        .compile()
    )


BOTH_ROUNDS = [0, 10, 20, 30, 1000, 1010, 1020, 1030]


async def test_a_round_that_fails_before_any_instance_is_done_does_not_take_over_the_round_before(store: Store) -> None:
    work = Work(at_100=Crash())
    graph = two_rounds(work, store, 1)
    with pytest.raises(Crash):
        await graph.run(invocation_id="first")
    work.raises = {100: ValueError("not yet")}
    second = await graph.run(resume_invocation="first")
    assert second.error is not None
    assert (await graph.invoke(resume_invocation=second.invocation_id)).results == BOTH_ROUNDS


async def test_what_follows_a_failed_write_does_not_land_in_the_round_before(store: Store) -> None:
    """The log of the second round begins anew; if that write is lost, no later one may add to the first round's."""
    graph = two_rounds(Work(), store, 4)
    real, begun = store.commit, 0

    async def failing(commit: Any) -> Any:
        nonlocal begun
        if any(name.endswith("*") and isinstance(log, Reset) for name, log in commit.logs.items()):
            begun += 1
            if begun == 2:
                await asyncio.sleep(0)
                raise StoreUnavailable("no answer, this once")
        return await real(commit)

    store.commit = failing  # type: ignore[method-assign]
    outcome = await graph.run(invocation_id="cut")
    assert isinstance(outcome.error, CheckpointSaveFailed)
    final = await graph.invoke(resume_invocation="cut")
    assert final.results == BOTH_ROUNDS


async def test_a_write_that_a_failing_sibling_cancels_is_made_up_for(store: Store) -> None:
    """It was the run's first, so the run could not be resumed without it."""
    writing = asyncio.Event()

    class FailsWhileTheOtherIsWritten(Work):
        async def cell(self, state: Cell) -> dict[str, int]:
            if state.item == 2 and not writing.is_set():
                await writing.wait()
                raise ValueError("not yet")
            return await super().cell(state)

    work = FailsWhileTheOtherIsWritten()
    graph = work.graph(store, 1, concurrency=2)
    real = store.commit

    async def held(commit: Any) -> Any:
        if any(name.endswith("*") for name in commit.logs) and not writing.is_set():
            writing.set()
            await asyncio.Event().wait()
        return await real(commit)

    store.commit = held  # type: ignore[method-assign]
    outcome = await graph.run({"items": [1, 2], "results": [0]}, invocation_id="cancelled")
    assert outcome.error is not None
    assert (await graph.invoke(resume_invocation="cancelled")).results == [0, 10, 20]
    assert work.done == {1: 1, 2: 1}
