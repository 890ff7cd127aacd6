"""Fan-out: one graph, or function, run once per item or so many times, its results collected in order."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenuto.errors import (
    CheckpointSaveFailed,
    FanOutEmpty,
    FanOutInvalidConcurrency,
    FanOutInvalidCount,
    GraphRunError,
    NodeException,
)
from tenuto.graph.cause import category_of
from tenuto.graph.events import FanOutConfig
from tenuto.graph.nodes import Middleware, Node, Update, through
from tenuto.graph.scope import scope_variable
from tenuto.graph.state import Series, State

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph
    from tenuto.graph.run import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOutPlan:
    """What a fan-out node does. Either items (`items_field`, `item_field`) or a `count` say how often."""

    graph: "CompiledGraph[Any]"
    items_field: str | None
    item_field: str | None
    count: int | Callable[[Any], int] | None
    collect_field: str
    target_field: str
    concurrency: int | Callable[[Any], int | None] | None
    error_policy: str
    on_empty: str
    count_field: str | None
    errors_field: str | None
    inputs: Mapping[str, str] = field(default_factory=dict)
    extra_outputs: Mapping[str, str] = field(default_factory=dict)
    instance_middleware: tuple[Middleware, ...] = ()


class FanOutNode(Node):
    """Starts instances in index order, a bounded number at a time, and merges what they leave once all are done."""

    def __init__(self, name: str, plan: FanOutPlan, middleware: tuple[Middleware, ...]) -> None:
        super().__init__(name, middleware)
        self.plan = plan

    def graphs(self) -> "list[CompiledGraph[Any]]":
        """See `Node.graphs`."""
        return [self.plan.graph]

    def describe(self, state: State) -> dict[str, Any]:
        """See `Node.describe`."""
        plan = self.plan
        items = list(state.__dict__[plan.items_field]) if plan.items_field else [None] * self._count(state)
        config = FanOutConfig(
            item_count=len(items),
            concurrency=self._concurrency(state),
            error_policy=plan.error_policy,
            parent_node_name=self.name,
        )
        return {"fan_out_config": config, "items": items}

    async def execute(self, frame: "Frame", state: Any, described: dict[str, Any]) -> Update:
        """See `Node.execute`."""
        plan, items = self.plan, described["items"]
        if not items and plan.on_empty == "raise":
            raise FanOutEmpty(f"Fan-out {self.name!r} has no items.", node_name=self.name)
        work = _Instances(self, frame, state, items, described["fan_out_config"].concurrency)
        if frame.durable and frame.run.journal:
            work.go_on(frame.run.journal.take_finished(frame, self.name, len(items)))
        await work.run()
        done = [(index, work.results[index]) for index in range(len(items)) if index in work.results]
        collected = {plan.target_field: plan.collect_field, **plan.extra_outputs}
        parts: list[Update] = [
            {parent: [result.get(child) for _, result in done]} for parent, child in collected.items()
        ]
        if plan.count_field:
            parts.append({plan.count_field: len(items)})
        if plan.errors_field and work.errors:
            parts.append({plan.errors_field: [work.errors[index] for index in sorted(work.errors)]})
        return Series(parts)

    async def instance(self, frame: "Frame", state: Any, index: int, item: Any) -> Update:
        """Run one instance and return the fields it ended with."""
        plan = self.plan
        inner = frame.inside(self.name, plan.graph, state, index=index)
        values = {child: state.__dict__[parent] for child, parent in plan.inputs.items()}
        if plan.item_field:
            values[plan.item_field] = item

        async def call(start: Any) -> Update:
            scope = scope_variable.get()
            again = frame.inside(self.name, plan.graph, state, index=index) if scope and scope.attempt_index else inner
            return dict((await again.execute(start)).__dict__)

        token = scope_variable.set(inner.scope)
        try:
            return await through(plan.instance_middleware, call)(plan.graph.schema.initial(values))
        finally:
            scope_variable.reset(token)

    def _count(self, state: Any) -> int:
        count = self.plan.count(state) if callable(self.plan.count) else self.plan.count
        if type(count) is not int or count < 0:
            raise FanOutInvalidCount(
                f"Fan-out {self.name!r} has the count {count!r}; it must be 0 or more.",
                node_name=self.name,
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


class _Instances:
    """The instances of one fan-out under way. A few workers take them in order, so ten thousand cost no more tasks."""

    def __init__(self, node: FanOutNode, frame: "Frame", state: Any, items: list[Any], concurrency: int | None) -> None:
        self.results: dict[int, Update] = {}
        self.errors: dict[int, dict[str, str]] = {}
        self._node = node
        self._frame = frame
        self._state = state
        self._waiting: Iterator[tuple[int, Any]] = iter(enumerate(items))
        self._workers = min(len(items), concurrency or len(items))

    def go_on(self, finished: dict[int, dict[str, Any]]) -> None:
        """Take over what instances of an earlier run left, and run only the others."""
        schema = self._node.plan.graph.schema
        for index, record in finished.items():
            if "error" in record:
                self.errors[index] = record["error"]
            else:
                self.results[index] = {name: schema.fields[name].check(v) for name, v in record["result"].items()}
        self._waiting = iter([(index, item) for index, item in self._waiting if index not in finished])

    async def _keep(self, index: int, **record: Any) -> None:
        if self._frame.durable and self._frame.run.journal:
            await self._frame.run.journal.instance_finished(self._frame, self._node.name, index, record)

    def _kept(self, result: Update) -> dict[str, Any]:
        """Return what of an instance's fields its fan-out needs, as plain data."""
        plan, fields = self._node.plan, self._node.plan.graph.schema.fields
        wanted = {plan.collect_field, *plan.extra_outputs.values()}
        return {name: fields[name].dump(result[name]) for name in sorted(wanted) if name in result}

    async def run(self) -> None:
        """Run them all; under fail_fast the first failure cancels the others, and their ends are awaited."""
        tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        failure = next((o for o in outcomes if isinstance(o, BaseException) and not _is_cancel(o)), None)
        if failure is None:
            return
        if not isinstance(failure, Exception) or isinstance(failure, CheckpointSaveFailed):
            raise failure
        raise NodeException(
            f"An instance of fan-out {self._node.name!r} failed: {failure}",
            graph=self._frame.graph.name,
            node_name=self._node.name,
            recoverable_state=self._state,
        ) from failure

    async def _work(self) -> None:
        for index, item in self._waiting:
            try:
                result = await self._node.instance(self._frame, self._state, index, item)
            except Exception as error:
                if self._node.plan.error_policy != "collect":
                    raise
                category = category_of(error) if isinstance(error, GraphRunError) else NodeException.category
                self.errors[index] = {
                    "fan_out_index": str(index),
                    "category": category or NodeException.category,
                    "message": str(error),
                }
                await self._keep(index, error=self.errors[index])
            else:
                self.results[index] = result
                await self._keep(index, result=self._kept(result))


def _is_cancel(outcome: BaseException) -> bool:
    return isinstance(outcome, asyncio.CancelledError)
