"""Parallel branches: different work on one state at the same time, merged in the order of declaration."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from typing_extensions import TypeVar

from tenuto.errors import BranchFailed
from tenuto.graph.engine.cause import NOT_THE_NODES
from tenuto.graph.engine.graph_frame import GraphFrame
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.node import Middleware, Node, Update, through
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.events.node_event import ParallelBranchesConfig
from tenuto.graph.nodes.error_policy import collected_error, outcomes_of
from tenuto.graph.nodes.function import FunctionCall
from tenuto.graph.nodes.subgraph import Projection, run_inside
from tenuto.graph.state import Series, State, place_of
from tenuto.words import ErrorPolicy

S = TypeVar("S", bound=State, contravariant=True, default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Generic[S]):
    """One branch: a graph with its projection, or a function from the parent's state to an update of it."""

    subgraph: GraphPlan[Any] | None = None
    call: Callable[[S], Awaitable[Mapping[str, object]] | Mapping[str, object]] | None = None
    inputs: Mapping[str, str] | None = None
    outputs: Mapping[str, str] | None = None
    middleware: tuple[Middleware, ...] = ()
    when: Callable[[S], bool] | None = None

    @property
    def projection(self) -> Projection:
        """How fields cross into the branch's graph and back."""
        return Projection(inputs=self.inputs, outputs=self.outputs)


@dataclass(eq=False, repr=False)
class BranchesNode(Node):
    """Runs its branches at the same time; one whose `when` returns False is left out, without a trace."""

    branches: Mapping[str, Branch[Any]]
    error_policy: ErrorPolicy
    errors_field: str | None

    def graphs(self) -> list[GraphPlan[Any]]:
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

    async def execute(self, frame: GraphFrame, state: Any, described: dict[str, Any]) -> Update:
        """See `Node.execute`."""
        chosen: dict[str, Branch[Any]] = described["branches"]
        tasks = {n: asyncio.create_task(self._branch(frame, state, n, branch)) for n, branch in chosen.items()}
        if not tasks:
            return {}
        policy = asyncio.FIRST_EXCEPTION if self.error_policy == "fail_fast" else asyncio.ALL_COMPLETED
        parts: list[Update] = []
        errors = []
        for name, outcome in zip(tasks, await outcomes_of(tasks.values(), policy), strict=True):
            if not isinstance(outcome, BaseException):
                parts.append(outcome)
            elif isinstance(outcome, NOT_THE_NODES) or not isinstance(outcome, Exception | asyncio.CancelledError):
                raise outcome
            elif isinstance(outcome, Exception):
                errors.append((name, outcome))
        if errors and self.error_policy == "fail_fast":
            name, error = errors[0]
            raise BranchFailed(
                f"Branch {name!r} of {self.name!r} failed: {error}",
                **place_of(frame.graph.name, self.name, state),
                branch_name=name,
            ) from error
        if errors and self.errors_field:
            parts.append({self.errors_field: [collected_error(error, branch_name=name) for name, error in errors]})
        return Series(parts)

    async def _branch(self, frame: GraphFrame, state: Any, name: str, branch: Branch[Any]) -> Update:
        try:
            if branch.subgraph is None:
                return await self._call(frame, state, name, branch)
            return await self._graph(frame, state, name, branch, branch.subgraph)
        except Suspending as signal:
            signal.annotate(branch_name=name)
            raise

    async def _graph(
        self, frame: GraphFrame, state: Any, name: str, branch: Branch[Any], graph: GraphPlan[Any]
    ) -> Update:
        projection, start = branch.projection, graph.schema.initial(branch.projection.into(state))
        values = await run_inside(partial(self._inside, frame, graph, state, name), start, branch.middleware)
        return projection.out_of(values, frame.graph.schema, graph.schema)

    async def _call(self, frame: GraphFrame, state: Any, name: str, branch: Branch[Any]) -> Update:
        assert branch.call is not None
        inner = self._inside(frame, frame.graph, state, name)
        scope_variable.set(inner.scope_at(name))
        call = FunctionCall(inner, name, f"Branch {name!r}", branch.call, lambda update: update)
        return await through(branch.middleware, call)(state)

    def _inside(self, frame: GraphFrame, graph: GraphPlan[Any], state: Any, name: str) -> GraphFrame:
        collecting = f"branches {self.name!r}, which collect errors" if self.error_policy == "collect" else None
        return frame.inside(self.name, graph, state, branch=name, collecting=collecting)
