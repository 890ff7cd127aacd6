"""Parallel branches: different work on one state, at the same time, merged in the order of declaration."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenuto.errors import BranchFailed, GraphRunError, NodeException
from tenuto.graph.cause import category_of
from tenuto.graph.events import NodeEvent, ParallelBranchesConfig, started
from tenuto.graph.nodes import Middleware, Node, Update, through
from tenuto.graph.projection import Projection
from tenuto.graph.scope import scope_variable
from tenuto.graph.state import Series, State
from tenuto.graph.subgraph import project_out

if TYPE_CHECKING:
    from tenuto.graph.compiled import CompiledGraph
    from tenuto.graph.run import Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One branch: a graph with its projection, or an async function from the parent's state to an update of it."""

    subgraph: "CompiledGraph[Any] | None" = None
    call: Callable[[Any], Awaitable[Update]] | None = None
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    middleware: tuple[Middleware, ...] = ()
    when: Callable[[Any], bool] | None = None

    @property
    def projection(self) -> Projection:
        """How fields cross into the branch's graph and back."""
        return Projection(inputs=self.inputs, outputs=self.outputs)


class BranchesNode(Node):
    """Dispatches its branches together; a branch whose `when` says no is left out, without a trace."""

    def __init__(
        self,
        name: str,
        branches: Mapping[str, Branch],
        error_policy: str,
        errors_field: str | None,
        middleware: tuple[Middleware, ...],
    ) -> None:
        super().__init__(name, middleware)
        self.branches = dict(branches)
        self.error_policy = error_policy
        self.errors_field = errors_field

    def graphs(self) -> "list[CompiledGraph[Any]]":
        """See `Node.graphs`."""
        return [branch.subgraph for branch in self.branches.values() if branch.subgraph is not None]

    def describe(self, state: State) -> dict[str, Any]:
        """See `Node.describe`."""
        chosen = {name: branch for name, branch in self.branches.items() if branch.when is None or branch.when(state)}
        config = ParallelBranchesConfig(
            branch_names=tuple(self.branches),
            branch_count=len(chosen),
            error_policy=self.error_policy,
            parent_node_name=self.name,
        )
        return {"parallel_branches_config": config, "branches": chosen}

    async def execute(self, frame: "Frame", state: Any, described: dict[str, Any]) -> Update:
        """See `Node.execute`."""
        chosen: dict[str, Branch] = described["branches"]
        tasks = {n: asyncio.create_task(self._branch(frame, state, n, branch)) for n, branch in chosen.items()}
        if not tasks:
            return {}
        policy = asyncio.FIRST_EXCEPTION if self.error_policy == "fail_fast" else asyncio.ALL_COMPLETED
        try:
            await asyncio.wait(tasks.values(), return_when=policy)
        finally:
            for task in tasks.values():
                task.cancel()
            outcomes = dict(zip(tasks, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
        parts: list[Update] = []
        errors = []
        for name, outcome in outcomes.items():
            if not isinstance(outcome, BaseException):
                parts.append(outcome)
            elif not isinstance(outcome, Exception) and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
            elif isinstance(outcome, Exception):
                errors.append((name, outcome))
        if errors and self.error_policy == "fail_fast":
            name, error = errors[0]
            raise BranchFailed(
                f"Branch {name!r} of {self.name!r} failed: {error}",
                graph=frame.graph.name,
                node_name=self.name,
                recoverable_state=state,
                branch_name=name,
            ) from error
        if errors and self.errors_field:
            parts.append({self.errors_field: [_record(name, error) for name, error in errors]})
        return Series(parts)

    async def _branch(self, frame: "Frame", state: Any, name: str, branch: Branch) -> Update:
        if branch.subgraph is None:
            return await self._call(frame, state, name, branch)
        graph, projection = branch.subgraph, branch.projection
        inner = frame.inside(self.name, graph, state, branch=name)

        async def run(start: Any) -> Update:
            scope = scope_variable.get()
            again = frame.inside(self.name, graph, state, branch=name) if scope and scope.attempt_index else inner
            return dict((await again.execute(start)).__dict__)

        scope_variable.set(inner.scope)
        values = dict(await through(branch.middleware, run)(graph.schema.initial(projection.into(state))))
        return project_out(projection, frame.graph.schema, graph.schema, values)

    async def _call(self, frame: "Frame", state: Any, name: str, branch: Branch) -> Update:
        assert branch.call is not None
        inner = frame.inside(self.name, frame.graph, state, branch=name)
        scope_variable.set(inner.scope_at(name))
        work = branch.call

        async def run(start: Any) -> Update:
            event = _begin(inner, start)
            try:
                update = await work(start)
            except Exception as error:
                wrapped = NodeException(
                    f"Branch {name!r} raised {error!r}.",
                    node_name=name,
                    recoverable_state=state,
                    graph=frame.graph.name,
                )
                wrapped.__cause__ = error
                if event:
                    inner.emit(event.ended(error=wrapped))
                raise
            if event:
                inner.emit(event.ended(frame.graph.schema.merge(state, update, frame.graph.name, name)))
            return update

        return await through(branch.middleware, run)(state)


def _begin(frame: "Frame", state: Any) -> NodeEvent | None:
    scope = scope_variable.get()
    if frame.run.delivery is None or scope is None:
        return None
    event = started(scope, frame.run.next_step(), state, frame.parent_states)
    frame.emit(event)
    return event


def _record(name: str, error: Exception) -> dict[str, str]:
    category = category_of(error) if isinstance(error, GraphRunError) else NodeException.category
    return {"branch_name": name, "category": category or NodeException.category, "message": str(error)}
