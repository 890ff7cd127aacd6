"""Building a graph, and the checks that compiling it makes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from tenuto.argument import check_word
from tenuto.errors import GraphCompileError, InvalidInput
from tenuto.graph.blueprint.compile_checks import (
    check_branches,
    check_edges,
    check_fan_out,
    check_reducers,
    check_subgraph,
)
from tenuto.graph.compiled_graph import CompiledGraph
from tenuto.graph.engine.choice import Choice
from tenuto.graph.engine.node import Middleware, Node, check_name
from tenuto.graph.graph_end import END, End
from tenuto.graph.nodes.branches import Branch, BranchesNode
from tenuto.graph.nodes.fan_out import FanOutNode, FanOutPlan
from tenuto.graph.nodes.function import FunctionNode
from tenuto.graph.nodes.subgraph import Projection, SubgraphNode
from tenuto.graph.session.foreign_store import SessionStore, check_session_store
from tenuto.graph.session.session_plan import SessionPlan
from tenuto.graph.state import Schema, SessionState, State, schema_of
from tenuto.migration import Migrate, MigrationRegistry
from tenuto.store.store import Store, check_whole_store
from tenuto.words import Concurrency, ErrorPolicy, OnEmpty
from tenuto.writing.lane_claim import DEFAULT_LANE_WAIT

S = TypeVar("S", bound=State)
T = TypeVar("T")


_UNDECLARED: dict[str, Any] = {
    "state": None,
    "mapping": None,
    "auto_save": True,
    "concurrency": None,
    "lane_wait": DEFAULT_LANE_WAIT,
}
"""What a session is if nobody said it."""


class GraphBuilder(Generic[S]):
    """Collects nodes and edges; `compile` checks them. Every method returns the builder."""

    def __init__(self, state: type[S], name: str | None = None) -> None:
        if not (isinstance(state, type) and issubclass(state, State)):
            raise InvalidInput(f"A graph needs a State class, got {state!r}.")
        self._kind = state
        self._name = state.__name__ if name is None else check_name(name, "A graph")
        self._nodes: dict[str, Node] = {}
        self._edges: list[tuple[str, Any]] = []
        self._entry: str | None = None
        self._middleware: list[Middleware] = []
        self._store: Store | None = None
        self._fan_out_batch = 1
        self._migrations = MigrationRegistry("checkpoint")
        self._session_migrations = MigrationRegistry("session")
        self._session = _UNDECLARED
        self._session_store: Any = None
        self._checkpoints = False

    def add_node(
        self,
        name: str,
        body: Callable[[S], Awaitable[Mapping[str, object]] | Mapping[str, object]],
        middleware: Iterable[Middleware] = (),
    ) -> Self:
        """Add a node whose work is a function from the state to a partial update; a plain one runs in a thread."""
        if not callable(body):
            raise InvalidInput(f"Node {name!r} needs a function of the state, got {body!r}.")
        return self._add(FunctionNode(name, tuple(middleware), body))

    def add_subgraph_node(
        self,
        name: str,
        graph: CompiledGraph[Any],
        *,
        inputs: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        projects_in: Iterable[str] | None = None,
        projects_out: Iterable[str] | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> Self:
        """Add a compiled graph as a node; see `Projection` for which fields it shares with this one."""
        if not isinstance(graph, CompiledGraph):
            raise InvalidInput(f"Subgraph node {name!r} needs a compiled graph, got {graph!r}.")
        into = None if projects_in is None else frozenset(projects_in)
        out = None if projects_out is None else frozenset(projects_out)
        projection = Projection(inputs=inputs, outputs=outputs, projects_in=into, projects_out=out)
        return self._add(SubgraphNode(name, tuple(middleware), graph, projection))

    @overload
    def add_fan_out_node(
        self,
        name: str,
        each: Callable[[S, T], object],
        *,
        items: Callable[[S], Sequence[T]],
        target_field: str,
        concurrency: int | Callable[[S], int | None] | None = 10,
        error_policy: ErrorPolicy = "fail_fast",
        on_empty: OnEmpty = "raise",
        count_field: str | None = None,
        errors_field: str | None = None,
        instance_middleware: Iterable[Middleware] = (),
        middleware: Iterable[Middleware] = (),
    ) -> Self: ...

    @overload
    def add_fan_out_node(
        self,
        name: str,
        each: Callable[[S, Any], object],
        *,
        target_field: str,
        items_field: str | None = None,
        count: int | Callable[[S], int] | None = None,
        concurrency: int | Callable[[S], int | None] | None = 10,
        error_policy: ErrorPolicy = "fail_fast",
        on_empty: OnEmpty = "raise",
        count_field: str | None = None,
        errors_field: str | None = None,
        instance_middleware: Iterable[Middleware] = (),
        middleware: Iterable[Middleware] = (),
    ) -> Self: ...

    @overload
    def add_fan_out_node(
        self,
        name: str,
        each: CompiledGraph[Any],
        *,
        target_field: str,
        collect_field: str,
        items: Callable[[S], Sequence[Any]] | None = None,
        items_field: str | None = None,
        item_field: str | None = None,
        count: int | Callable[[S], int] | None = None,
        inputs: Mapping[str, str] | None = None,
        extra_outputs: Mapping[str, str] | None = None,
        concurrency: int | Callable[[S], int | None] | None = 10,
        error_policy: ErrorPolicy = "fail_fast",
        on_empty: OnEmpty = "raise",
        count_field: str | None = None,
        errors_field: str | None = None,
        instance_middleware: Iterable[Middleware] = (),
        middleware: Iterable[Middleware] = (),
    ) -> Self: ...

    def add_fan_out_node(
        self,
        name: str,
        each: CompiledGraph[Any] | Callable[[S, Any], object],
        *,
        error_policy: ErrorPolicy = "fail_fast",
        on_empty: OnEmpty = "raise",
        inputs: Mapping[str, str] | None = None,
        extra_outputs: Mapping[str, str] | None = None,
        instance_middleware: Iterable[Middleware] = (),
        middleware: Iterable[Middleware] = (),
        **options: Any,
    ) -> Self:
        """Add a node that runs a graph once per item of a list, or `count` times, and collects a field of each.

        The list is a field of the state (`items_field`), or what a function of the state returns (`items`), which must
        be the same whenever it is asked of the same state. Instead of a graph, it may run a function of the state and
        the item, or with `count` the index; what it returns is collected, and a plain one runs in a thread.
        """
        if not isinstance(each, CompiledGraph) and not callable(each):
            raise InvalidInput(f"Fan-out {name!r} needs a compiled graph or a function, got {each!r}.")
        plan = FanOutPlan(
            graph=each if isinstance(each, CompiledGraph) else None,
            call=None if isinstance(each, CompiledGraph) else each,
            error_policy=check_word(error_policy, ErrorPolicy, f"The error_policy of fan-out {name!r}"),
            on_empty=check_word(on_empty, OnEmpty, f"on_empty of fan-out {name!r}"),
            inputs=dict(inputs or {}),
            extra_outputs=dict(extra_outputs or {}),
            instance_middleware=tuple(instance_middleware),
            **options,
        )
        return self._add(FanOutNode(name, tuple(middleware), plan))

    def add_parallel_branches_node(
        self,
        name: str,
        branches: Mapping[str, Branch[S]],
        *,
        error_policy: ErrorPolicy = "fail_fast",
        errors_field: str | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> Self:
        """Add a node that runs different branches on one state at the same time."""
        policy = check_word(error_policy, ErrorPolicy, f"The error_policy of branches {name!r}")
        if not isinstance(branches, Mapping) or not all(isinstance(each, Branch) for each in branches.values()):
            raise InvalidInput(f"Branches node {name!r} needs a mapping of names to Branch, got {branches!r}.")
        return self._add(BranchesNode(name, tuple(middleware), dict(branches), policy, errors_field))

    def add_edge(self, source: str, target: str | End) -> Self:
        """Let one node, or END, follow another."""
        check_name(source)
        if target is not END and not isinstance(target, str):
            raise InvalidInput(
                f"An edge leads to a node's name or END, got {target!r}; use add_conditional_edge for a choice."
            )
        self._edges.append((source, target))
        return self

    def add_conditional_edge(
        self, source: str, choose: Callable[[S], str | End], targets: Iterable[str | End] | None = None
    ) -> Self:
        """Let a function of the state after the node choose what follows: a node's name, or END.

        `targets` lists what it may choose; without it, the function's return type does if it is made of `Literal` names
        and `End`. They are checked by `compile`, any other choice is a `RoutingError`, and only they are drawn.
        """
        self._edges.append((check_name(source), Choice(source, choose, targets)))
        return self

    def add_middleware(self, middleware: Middleware) -> Self:
        """Put a middleware around every node, inside those added before."""
        if not callable(middleware):
            raise InvalidInput(f"A middleware must be a function, got {middleware!r}.")
        self._middleware.append(middleware)
        return self

    def with_checkpoints(self, *, fan_out_batch: int = 1) -> Self:
        """Write a checkpoint after every completed node, and after every finished instance of a fan-out, to the store
        the graph is bound to.

        With `fan_out_batch`, only after that many instances, and when the fan-out is done or the run stops; those not
        yet written when the process dies run again.
        """
        if type(fan_out_batch) is not int or fan_out_batch < 1:
            raise InvalidInput(f"fan_out_batch must be 1 or more, got {fan_out_batch!r}.")
        self._checkpoints, self._fan_out_batch = True, fan_out_batch
        return self

    def with_checkpointer(self, store: Store, *, fan_out_batch: int = 1) -> Self:
        """Write checkpoints, and keep them in this store; see `with_checkpoints`."""
        check_whole_store(store, "Checkpoints")
        self._store = store
        return self.with_checkpoints(fan_out_batch=fan_out_batch)

    def with_state_migration(self, from_version: str, to_version: str, migrate: Migrate) -> Self:
        """Register how stored state is migrated from one version to another; chains are found automatically."""
        self._migrations.add(from_version, to_version, migrate)
        return self

    def with_session_state(
        self,
        state: type[SessionState] | None = None,
        mapping: Mapping[str, str] | None = None,
        *,
        auto_save: bool = True,
        concurrency: Concurrency = "exclusive",
        lane_wait: float = DEFAULT_LANE_WAIT,
    ) -> Self:
        """Declare what a session keeps: `run(session_id=...)` on the bound graph loads one first and saves it at END.

        `state` names the fields that are kept, under the state's own names unless `mapping` (session field to state
        field) says otherwise; without it the whole state is. `concurrency` says what happens to invocations at the same
        time: each waits its turn, at most `lane_wait` seconds (`exclusive`, the default), every save but the first is
        refused (`optimistic`), or the last save wins (`last_write_wins`).
        """
        return self._declare(state, mapping, auto_save, concurrency, lane_wait)

    def with_session_store(
        self,
        store: Store | SessionStore,
        state: type[SessionState] | None = None,
        mapping: Mapping[str, str] | None = None,
        *,
        auto_save: bool = True,
        concurrency: Concurrency | None = None,
        lane_wait: float = DEFAULT_LANE_WAIT,
    ) -> Self:
        """Declare what a session keeps, and keep sessions in this store; see `with_session_state`.

        The store is Tenuto's, or any object with the four methods of `SessionStore`. By default the latter is used as
        `exclusive` if it can lock, else as `optimistic` if it compares versions; otherwise only runs of this process
        wait for each other, of which a warning says what is lost.
        """
        if not isinstance(store, Store):
            check_session_store(store, concurrency)
        self._session_store = store
        return self._declare(state, mapping, auto_save, concurrency, lane_wait)

    def with_session_migration(self, from_version: str, to_version: str, migrate: Migrate) -> Self:
        """Register how session records are migrated from one version to another; chains are found automatically."""
        self._session_migrations.add(from_version, to_version, migrate)
        return self

    def set_entry(self, name: str) -> Self:
        """Set the first node."""
        self._entry = check_name(name)
        return self

    def compile(self) -> CompiledGraph[S]:
        """Check the graph and return it ready to run, or raise `GraphCompileError` with the rule it breaks."""
        schema = schema_of(self._kind)
        check_reducers(schema)
        entry = check_edges(self._name, self._nodes, self._edges, self._entry)
        for node in self._nodes.values():
            match node:
                case SubgraphNode():
                    check_subgraph(node, schema)
                case FanOutNode():
                    check_fan_out(node, schema)
                case BranchesNode():
                    check_branches(node, schema)
        session = self._session_plan(schema)
        self._migrations.check(self._kind.schema_version)
        self._session_migrations.check(session.schema_version)
        return CompiledGraph(
            kind=self._kind,
            name=self._name,
            nodes=dict(self._nodes),
            edges=dict(self._edges),
            entry=entry,
            middleware=tuple(self._middleware),
            store=self._store,
            checkpoints=self._checkpoints,
            migrations=self._migrations,
            session=session,
            fan_out_batch=self._fan_out_batch,
        )

    def _declare(
        self,
        state: type[SessionState] | None,
        mapping: Mapping[str, str] | None,
        auto_save: bool,
        concurrency: Concurrency | None,
        lane_wait: float,
    ) -> Self:
        if concurrency is not None:
            check_word(concurrency, Concurrency, "concurrency")
        options = {"auto_save": auto_save, "concurrency": concurrency, "lane_wait": lane_wait}
        self._session = {"state": state, "mapping": mapping, **options}
        return self

    def _session_plan(self, schema: Schema) -> SessionPlan:
        plan = SessionPlan(
            self._session_store,
            schema,
            **self._session,
            declared=self._session is not _UNDECLARED,
            migrations=self._session_migrations,
            checkpoints=self._store,
            owner=self._name,
        )
        if plan.is_whole:
            # The session is the whole state, so both kinds of records change in the same way.
            self._session_migrations.borrow(self._migrations)
            self._migrations.borrow(self._session_migrations)
        return plan

    def _add(self, node: Node) -> Self:
        check_name(node.name)
        if odd := [each for each in node.middleware if not callable(each)]:
            raise InvalidInput(f"The middleware of node {node.name!r} must be functions, got {odd[0]!r}.")
        if node.name in self._nodes:
            raise GraphCompileError("duplicate_node", f"Graph {self._name!r} already has a node {node.name!r}.")
        self._nodes[node.name] = node
        return self
