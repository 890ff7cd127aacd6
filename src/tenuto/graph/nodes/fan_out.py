"""Fan-out: one graph, or function, run once per item or a number of times, its results collected in order."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tenuto.codec import JSON, is_json
from tenuto.errors import (
    CheckpointRecordInvalid,
    FanOutEmpty,
    FanOutInvalidConcurrency,
    FanOutInvalidCount,
    NodeException,
    NotJson,
)
from tenuto.graph.checkpoint.fan_out_progress import FanOutRun
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.node import Middleware, Node, Update, through
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.node_event import FanOutConfig
from tenuto.graph.nodes.error_policy import collected_error, outcomes_of
from tenuto.graph.nodes.function import FunctionCall
from tenuto.graph.nodes.subgraph import run_inside
from tenuto.graph.state import Field, Series, State, place_of
from tenuto.plain_data import difference, plain
from tenuto.words import ErrorPolicy, OnEmpty

Call = Callable[[Any, Any], Any]
"""A function as an instance, async or plain: from the parent's state and the item, or the index, to the result."""

_dump_anything = partial(TypeAdapter(Any).dump_python, mode="json")


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutPlan:
    """What a fan-out node does. Items (in `items_field`, or what `items` returns) or a `count` say how often.

    An instance is a `graph`, of which `collect_field` is collected, or a `call`. What a call returns is collected
    itself; to the middleware around it, it is an update of `target_field`.
    """

    graph: GraphPlan[Any] | None
    call: Call | None
    target_field: str
    error_policy: ErrorPolicy
    on_empty: OnEmpty
    items: Callable[[Any], Any] | None = None
    items_field: str | None = None
    item_field: str | None = None
    count: int | Callable[[Any], int] | None = None
    collect_field: str | None = None
    concurrency: int | Callable[[Any], int | None] | None = 10
    count_field: str | None = None
    errors_field: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    extra_outputs: Mapping[str, str] = field(default_factory=dict)
    instance_middleware: tuple[Middleware, ...] = ()

    @property
    def collected(self) -> dict[str, str]:
        """The parent's fields that results are collected into, and the field of an instance each of them collects."""
        return {self.target_field: self.collect_field or self.target_field, **self.extra_outputs}

    def dumped(self, result: Update, target: Field, prior: Any) -> dict[str, Any]:
        """Return the fields of an instance that the fan-out needs, as plain data.

        What a call returned has no declared type: read again, it must be the same in the parent's field, `target`.
        """
        wanted = sorted(name for name in set(self.collected.values()) if name in result)
        if self.graph is None:

            def merged(item: Any) -> Any:
                return target.reducer.reduce(prior, [item], target.check)

            return {name: _plain_result(result[name], merged, self.target_field) for name in wanted}
        return {name: self.graph.schema.fields[name].dump(result[name]) for name in wanted}

    def loaded(self, dumped: Mapping[str, Any]) -> Update:
        """Return what an instance of an earlier run left; the result of a call is checked where it is merged."""
        if self.graph is None:
            return dumped
        try:
            return {name: self.graph.schema.fields[name].check(value) for name, value in dumped.items()}
        except (KeyError, ValidationError) as error:
            raise CheckpointRecordInvalid(
                f"What an instance of {self.graph.name!r} left no longer fits it: {error}"
            ) from error


def _plain_result(value: Any, merged: Callable[[Any], Any], where: str) -> JSON:
    if is_json(value):
        return value
    data = plain(value, _dump_anything, lambda _: value, where)
    try:
        meant = merged(value)
    except Exception:
        return data  # the node's own merge reports what is wrong with it
    try:
        lost = difference(meant, merged(data), where)
    except Exception as error:
        raise NotJson(f"{where} cannot take a result as it is read again: {error}", path=where) from error
    if lost:
        raise NotJson(lost[1], path=lost[0])
    return data


@dataclass(eq=False, repr=False)
class FanOutNode(Node):
    """Starts instances in index order, a bounded number at a time, and merges their results once all are done."""

    plan: FanOutPlan

    def graphs(self) -> list[GraphPlan[Any]]:
        """See `Node.graphs`."""
        return [] if self.plan.graph is None else [self.plan.graph]

    def describe(self, state: State) -> dict[str, Any]:
        """See `Node.describe`."""
        plan = self.plan
        items = self._items(state)
        config = FanOutConfig(
            item_count=len(items),
            concurrency=self._concurrency(state),
            error_policy=plan.error_policy,
            parent_node_name=self.name,
        )
        return {"fan_out_config": config, "items": items}

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:
        """See `Node.execute`."""
        plan, items = self.plan, described["items"]
        if not items and plan.on_empty == "raise":
            raise FanOutEmpty(f"Fan-out {self.name!r} has no items.", node_name=self.name)
        kept = frame.fan_out(self.name, len(items))
        work = _Instances(self, frame, state, items, described["fan_out_config"].concurrency, kept)
        await work.run()
        done = [(index, work.results[index]) for index in range(len(items)) if index in work.results]
        parts: list[Update] = [
            {parent: [result.get(child) for _, result in done]} for parent, child in plan.collected.items()
        ]
        if plan.count_field:
            parts.append({plan.count_field: len(items)})
        if plan.errors_field and work.errors:
            parts.append({plan.errors_field: [work.errors[index] for index in sorted(work.errors)]})
        return Series(parts)

    async def graph_instance(
        self, frame: GraphFrame, graph: GraphPlan[Any], state: Any, index: int, item: Any, again: Callable[[], None]
    ) -> Update:
        """Run one instance of a graph and return its final fields; `again` is called before another attempt."""
        plan = self.plan
        values = {child: state.__dict__[parent] for child, parent in plan.inputs.items()}
        if plan.item_field:
            values[plan.item_field] = item
        inside = partial(self._inside, frame, graph, state, index)
        return await run_inside(inside, graph.schema.initial(values), plan.instance_middleware, again)

    async def call_instance(self, frame: GraphFrame, work: Call, state: Any, index: int, item: Any) -> Update:
        """Run one instance that is a function."""
        target = self.plan.target_field
        inner = self._inside(frame, frame.graph, state, index)
        call = FunctionCall(
            inner, self.name, f"An instance of fan-out {self.name!r}", work, lambda r: {target: [r]}, (item,)
        )

        async def result(start: Any) -> Update:
            return {target: await call(start)}

        token = scope_variable.set(inner.scope_at(self.name))
        try:
            return await through(self.plan.instance_middleware, result)(state)
        finally:
            scope_variable.reset(token)

    def _inside(self, frame: GraphFrame, graph: GraphPlan[Any], state: Any, index: int) -> GraphFrame:
        collecting = f"fan-out {self.name!r}, which collects errors" if self.plan.error_policy == "collect" else None
        return frame.inside(self.name, graph, state, index=index, collecting=collecting)

    def _items(self, state: Any) -> list[Any]:
        """Return what the instances are for, one each: an item, or with a count the index."""
        plan = self.plan
        if plan.items_field:
            return list(state.__dict__[plan.items_field])
        if plan.items is None:
            return list(range(self._count(state)))
        found = plan.items(state)
        if not isinstance(found, Sequence) or isinstance(found, str | bytes):
            raise TypeError(f"the items of fan-out {self.name!r} must be a list, got {type(found).__name__}")
        return list(found)

    def _count(self, state: Any) -> int:
        count = self.plan.count(state) if callable(self.plan.count) else self.plan.count
        if type(count) is not int or count < 0:
            raise FanOutInvalidCount(
                f"Fan-out {self.name!r} has the count {count!r}; it must be 0 or more.", node_name=self.name
            )
        return count

    def _concurrency(self, state: Any) -> int | None:
        given = self.plan.concurrency(state) if callable(self.plan.concurrency) else self.plan.concurrency
        if given is not None and (type(given) is not int or given < 1):
            raise FanOutInvalidConcurrency(
                f"Fan-out {self.name!r} has the concurrency {given!r}; it must be 1 or more, or None.",
                node_name=self.name,
            )
        return given


@dataclass(slots=True, eq=False, repr=False)
class _Instances:
    """The instances of one running fan-out. A few workers take them in order, so ten thousand need no more tasks."""

    node: FanOutNode
    frame: GraphFrame
    state: Any
    items: list[Any]
    concurrency: int | None
    kept: FanOutRun | None
    results: dict[int, Update] = field(default_factory=dict)
    errors: dict[int, dict[str, str]] = field(default_factory=dict)
    waiting: Iterator[tuple[int, Any]] = field(init=False)

    def __post_init__(self) -> None:
        done = self.kept.done if self.kept else {}
        for index, record in done.items():
            if "error" in record:
                self.errors[index] = record["error"]
            else:
                self.results[index] = self.node.plan.loaded(record["result"])
        self.waiting = ((index, item) for index, item in enumerate(self.items) if index not in done)

    async def run(self) -> None:
        """Run them all; under fail_fast the first failure cancels the others and waits for them to end."""
        left = len(self.items) - len(self.results) - len(self.errors)
        tasks = [asyncio.create_task(self._work()) for _ in range(min(left, self.concurrency or left))]
        if not tasks:
            return
        outcomes = await outcomes_of(tasks, asyncio.FIRST_EXCEPTION)
        failure = next((o for o in outcomes if isinstance(o, BaseException) and not _is_cancel(o)), None)
        if failure is None:
            if self.kept:
                await self.kept.close()
            return
        if not isinstance(failure, Exception) or isinstance(failure, NOT_THE_NODES):
            raise failure
        raise NodeException(
            f"An instance of fan-out {self.node.name!r} failed: {failure}",
            **place_of(self.frame.graph.name, self.node.name, self.state),
        ) from failure

    async def _work(self) -> None:
        for index, item in self.waiting:
            try:
                result = await self._instance(index, item)
            except Suspending as signal:
                signal.annotate(fan_out_index=index)
                raise
            except NOT_THE_NODES:
                raise
            except Exception as error:
                if self.node.plan.error_policy != "collect":
                    raise
                self.errors[index] = collected_error(error, fan_out_index=str(index))
                if self.kept:
                    await self.kept.keep(index, {"error": self.errors[index]})
            else:
                self.results[index] = result
                if self.kept:
                    await self.kept.keep(index, {"result": self._dumped(result)})

    def _instance(self, index: int, item: Any) -> Awaitable[Update]:
        node, plan = self.node, self.node.plan
        if plan.graph is None:
            assert plan.call is not None
            return node.call_instance(self.frame, plan.call, self.state, index, item)
        return node.graph_instance(self.frame, plan.graph, self.state, index, item, lambda: self._again(index))

    def _dumped(self, result: Update) -> JSON:
        name = self.node.plan.target_field
        return self.node.plan.dumped(result, self.frame.graph.schema.fields[name], self.state.__dict__[name])

    def _again(self, index: int) -> None:
        if self.kept:
            self.kept.try_again(index)


def _is_cancel(outcome: BaseException) -> bool:
    return isinstance(outcome, asyncio.CancelledError)
