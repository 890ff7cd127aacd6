"""Compiled graphs from a case: its subgraphs first, each compiled once."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenuto.graph import Branch, CompiledGraph, GraphBuilder, State
from tenuto.graph.engine.scope import set_invocation_metadata
from tenuto.graph.warnings import GraphCompileWarning
from tests.conformance.adapter.bodies import body_of, directives, run_all
from tests.conformance.adapter.edges import add_edges
from tests.conformance.adapter.middlewares import Clock, Middleware, Middlewares, Next, marker_retry
from tests.conformance.adapter.migrations import migrations_of
from tests.conformance.adapter.mocks import Place
from tests.conformance.adapter.records import OUTER, Record
from tests.conformance.adapter.states import state_class
from tests.conformance.adapter.suspensions import suspends_in
from tests.conformance.adapter.vocabulary import DirectiveUnknown, FixtureProblem, known, mapping, only

GRAPH_KEYS = ("name", "description", "state", "entry", "nodes", "edges", "middleware")
COMPOSITES = ("subgraph", "fan_out", "parallel_branches")
PROJECTIONS = ("inputs", "outputs", "mapping", "projects_in", "projects_out")
AROUND = ("middleware", "wrap_with_middleware", "retry_middleware")
FAN_OUT_KEYS = (
    "subgraph",
    "inner_subgraph",
    "items_field",
    "item_field",
    "count",
    "collect_field",
    "target_field",
    "extra_outputs",
    "inputs",
    "mapping",
    "error_policy",
    "errors_field",
    "concurrency",
    "concurrent_mode",
    "on_empty",
    "count_field",
    "instance_middleware",
    "augment_metadata_from_field",
    "abort_after_instance",
)
ITEM = "fan_out_item"
CAPTURE = "capture_invocation_metadata_into"


@dataclass(slots=True)
class Built:
    """What compiling a case gave."""

    outer: CompiledGraph[Any]
    inner: dict[str, CompiledGraph[Any]]
    warnings: list[str] = field(default_factory=list)


def build(case: dict[str, Any], record: Record) -> Built:
    """Compile a case's graphs; what the compiler says against them is raised, or kept if it is a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = Builder(case, record).build()
    for each in caught:
        if isinstance(each.message, GraphCompileWarning):
            built.warnings.append(each.message.category)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    return built


class Builder:
    """Builds the graphs of one case."""

    def __init__(self, case: dict[str, Any], record: Record) -> None:
        nested = case.get("graph")
        self._case = case
        self._graph = mapping(nested, "graph") if nested is not None else case
        self._record = record
        self._middlewares = Middlewares(record, Clock(case["clock_stub"]) if "clock_stub" in case else None)
        self._definitions = _definitions(case) | (_definitions(nested) if nested else {})
        self._compiled: dict[str, CompiledGraph[Any]] = {}
        self._states: dict[str, type[State]] = {}
        self._reduced: dict[str, str] = {}
        self._probed = "concurrency_invariant" in (case.get("expected") or {})

    def build(self) -> Built:
        """Compile the outer graph, and with it the subgraphs it uses."""
        spec = {
            key: value for key, value in self._graph.items() if key in GRAPH_KEYS and key not in ("name", "description")
        }
        self._record.structure.outer_nodes = set(spec.get("nodes") or {})
        outer = self._compile(OUTER, spec)
        return Built(outer=outer, inner=self._compiled)

    def _compile(self, name: str, spec: Any) -> CompiledGraph[Any]:
        given = known(spec, GRAPH_KEYS, f"graph {name}")
        kind = self._state(name, given)
        builder = GraphBuilder(kind, name=name)
        middleware = known(given.get("middleware") or {}, ("per_graph", "per_node"), f"middleware of {name}")
        for each in self._middlewares.all_of(middleware.get("per_graph"), f"per_graph of {name}"):
            builder.add_middleware(each)
        nodes = mapping(given.get("nodes") or {}, f"nodes of {name}")
        around = mapping(middleware.get("per_node") or {}, f"per_node of {name}")
        if strangers := sorted(set(around) - set(nodes)):
            raise FixtureProblem(f"per_node of {name} names no node: {strangers}")
        structure = self._record.structure
        structure.fields[name] = list(kind.model_fields)
        structure.entries[name] = str(given.get("entry"))
        if suspends_in(nodes):
            structure.suspending.add(name)
        for node, node_spec in nodes.items():
            self._add_node(builder, kind, name, node, mapping(node_spec, f"node {name}.{node}"), around.get(node))
        add_edges(builder, given.get("edges"), name)
        if given.get("entry") is not None:
            builder.set_entry(given["entry"])
        if name == OUTER:
            self._store(builder, kind)
        return builder.compile()

    def _store(self, builder: GraphBuilder[Any], kind: type[State]) -> None:
        """Give the outermost graph the stores that the case has, or needs to be paused in."""
        record = self._record
        if record.checkpoints is not None:
            builder.with_checkpointer(record.checkpoints.store, fan_out_batch=record.checkpoints.batch)
        elif record.pauses is not None:
            builder.with_checkpointer(record.pauses)
        for source, target, migrate in migrations_of(self._case.get("migrations"), record):
            builder.with_state_migration(source, target, migrate)
        if record.sessions is not None:
            record.sessions.register(builder, kind)

    def _state(self, name: str, given: dict[str, Any]) -> type[State]:
        """Return a graph's state class; a subgraph without a schema has its parent's fields."""
        spec = given.get("state", self._graph.get("state") or {"fields": {}})
        extra = _given_by_callers(self._case) if name == OUTER else ()
        if name in self._reduced:
            # An instance holds its item and what it reads; the parent's field of that name is the list of them.
            extra = (ITEM, self._reduced[name])
            spec = {"fields": {key: value for key, value in spec["fields"].items() if key != self._reduced[name]}}
        self._states[name] = state_class(name, spec, extra)
        return self._states[name]

    def _subgraph(self, name: str) -> CompiledGraph[Any]:
        if name not in self._compiled:
            if name not in self._definitions:
                raise FixtureProblem(f"there is no subgraph {name}")
            self._compiled[name] = self._compile(name, self._definitions[name])
        return self._compiled[name]

    def _add_node(
        self, builder: GraphBuilder[Any], kind: type[State], graph: str, node: str, spec: dict[str, Any], per_node: Any
    ) -> None:
        structure = self._record.structure
        structure.nodes.add(node)
        place = Place(graph=graph, node=node, kind=kind, record=self._record)
        middleware = self._middlewares.all_of(per_node, f"per_node of {place}")
        for key in ("middleware", "wrap_with_middleware"):
            middleware += self._middlewares.all_of(spec.get(key), f"{key} of {place}")
        if "retry_middleware" in spec:
            middleware.append(marker_retry(spec["retry_middleware"], str(place)))
        inside = {key: value for key, value in spec.items() if key not in (*AROUND, "description")}
        composites = [key for key in COMPOSITES if key in inside]
        structure.kinds[graph, node] = composites[0] if composites else "plain"
        if not composites:
            builder.add_node(node, body_of(inside, place), middleware=middleware)
            return
        composite, _ = only(dict.fromkeys(composites), f"node {place}")
        rest = {key: value for key, value in inside.items() if key not in (composite, *PROJECTIONS)}
        middleware.append(_entering(rest, place))
        match composite:
            case "subgraph":
                structure.wrappers.add(node)
                projection = _projection(inside, str(place))
                builder.add_subgraph_node(node, self._subgraph(inside["subgraph"]), **projection, middleware=middleware)
            case "fan_out":
                structure.fan_outs.add(node)
                subgraph, options = self._fan_out(inside["fan_out"], str(place))
                structure.collect_fields[node] = options["collect_field"]
                if "abort_after_instance" in inside["fan_out"]:
                    structure.aborts[node] = inside["fan_out"]["abort_after_instance"]
                builder.add_fan_out_node(node, subgraph, **options, middleware=middleware)
            case "parallel_branches":
                branches, options = self._branches(inside["parallel_branches"], place)
                builder.add_parallel_branches_node(node, branches, **options, middleware=middleware)

    def _fan_out(self, spec: Any, place: str) -> tuple[CompiledGraph[Any], dict[str, Any]]:
        given = known(spec, FAN_OUT_KEYS, f"fan_out of {place}")
        if "inner_subgraph" in given:
            given = self._whole(given, place)
        name = str(given["subgraph"])
        subgraph = self._subgraph(name)
        copied = ("items_field", "collect_field", "target_field", "extra_outputs", "inputs", "error_policy")
        plain_keys = (*copied, "errors_field", "on_empty", "count_field")
        options = {key: given[key] for key in plain_keys if key in given}
        item_field = given.get("item_field")
        if "mapping" in given:
            item_field, options["target_field"], options["collect_field"] = _fan_out_mapping(given["mapping"], place)
        if item_field is not None:
            self._record.structure.item_fields[name] = item_field
            options["item_field"] = item_field
        if "errors_field" in given:
            self._record.structure.errors_fields.add(given["errors_field"])
        # One that names no field to collect expects nothing of what is collected: any declared field will do.
        options.setdefault("collect_field", next(iter(self._states[name].model_fields), None))
        for key in ("count", "concurrency"):
            if key in given:
                options[key] = _number(given[key], f"{key} of {place}")
        if given.get("concurrent_mode") == "serial":
            options["concurrency"] = 1
        elif given.get("concurrent_mode", "concurrent") != "concurrent":
            raise DirectiveUnknown(f"concurrent_mode {given['concurrent_mode']} at {place}")
        around = self._middlewares.all_of(given.get("instance_middleware"), f"instance_middleware of {place}")
        if "augment_metadata_from_field" in given:
            around.append(_augmenting(mapping(given["augment_metadata_from_field"], place), item_field))
        options["instance_middleware"] = [self._record.instance_probe, *around] if self._probed else around
        return subgraph, options

    def _whole(self, spec: dict[str, Any], place: str) -> dict[str, Any]:
        """Return a reduced fan-out, which names no fields, as one that collects what its instances capture."""
        given = dict(spec)
        name = str(given.pop("inner_subgraph"))
        nodes = mapping(mapping(self._definitions.get(name), f"subgraph {name}").get("nodes"), f"nodes of {name}")
        captured = {node[CAPTURE] for node in nodes.values() if CAPTURE in node}
        if len(captured) != 1:
            raise FixtureProblem(
                f"the instances of {place} capture {sorted(captured)}; there must be one field to collect"
            )
        field_name = captured.pop()
        self._reduced[name] = field_name
        named = {"item_field": ITEM, "collect_field": field_name, "target_field": field_name}
        return named | given | {"subgraph": name}

    def _branches(self, spec: Any, place: Place) -> tuple[dict[str, Branch], dict[str, Any]]:
        given = known(spec, ("branches", "error_policy", "errors_field"), f"parallel_branches of {place}")
        declared = given["branches"]
        if isinstance(declared, list):
            declared = {name: {"subgraph": name} for name in declared}
        declared = mapping(declared, f"branches of {place}")
        self._record.structure.dispatchers[place.node] = declared
        branches = {name: self._branch(name, entry, place) for name, entry in declared.items()}
        if "errors_field" in given:
            self._record.structure.errors_fields.add(given["errors_field"])
        return branches, {key: given[key] for key in ("error_policy", "errors_field") if key in given}

    def _branch(self, name: str, spec: Any, place: Place) -> Branch:
        where = f"branch {name} of {place}"
        given = known(spec, ("subgraph", "call", "inputs", "outputs", "middleware", "when"), where)
        options: dict[str, Any] = {key: given[key] for key in ("inputs", "outputs") if key in given}
        if "subgraph" in given:
            options["subgraph"] = self._subgraph(given["subgraph"])
        if "call" in given:
            inside = Place(graph=f"{place}.call", node=name, kind=place.kind, record=place.record)
            options["call"] = body_of(known(given["call"], ("update", "flaky"), f"call of {where}"), inside)
        if "when" in given:
            options["when"] = _truthy(known(given["when"], ("field",), f"when of {where}")["field"])
        return Branch(**options, middleware=tuple(self._middlewares.all_of(given.get("middleware"), where)))


def _given_by_callers(case: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields that a case, or one of its invocations, sets from outside."""
    entries = case.get("invocations")
    blocks = [case, *(entries if isinstance(entries, list) else [])]
    return tuple(name for block in blocks for name in block.get("initial_state") or {})


def _definitions(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in ("subgraphs", "inner_subgraphs"):
        found |= mapping(spec.get(key) or {}, key)
    for key in ("subgraph", "subgraph_with_idx"):
        if key in spec:
            found[mapping(spec[key], key)["name"]] = spec[key]
    return found


def _entering(spec: dict[str, Any], place: Place) -> Middleware:
    """Return the innermost middleware of a composite node, which writes down that the node was entered.

    What else stands on the node, such as a log line, is done there too, before the dispatch.
    """
    steps = directives(known(spec, ("emits_log", "augment_metadata"), f"node {place}"), place)

    async def entering(state: Any, following: Next) -> Mapping[str, Any]:
        place.record.enter(place.graph, place.node, state)
        await run_all(steps, state)
        return await following(state)

    return entering


def _augmenting(fields: dict[str, Any], item_field: str | None) -> Middleware:
    """Return an instance middleware that sets metadata from attributes of the item."""

    async def augmenting(state: Any, following: Next) -> Mapping[str, Any]:
        item = getattr(state, str(item_field))
        set_invocation_metadata(**{key: item[name] if isinstance(item, dict) else item for key, name in fields.items()})
        return await following(state)

    return augmenting


def _projection(spec: dict[str, Any], place: str) -> dict[str, Any]:
    found = {key: spec[key] for key in ("inputs", "outputs", "projects_in", "projects_out") if key in spec}
    return found | known(spec.get("mapping") or {}, ("inputs", "outputs"), f"mapping of {place}")


def _fan_out_mapping(spec: Any, place: str) -> tuple[str, str, str]:
    given = known(spec, ("inputs", "outputs"), f"mapping of {place}")
    item_field, source = only(mapping(given["inputs"], place), f"mapping.inputs of {place}")
    if source != "<fan_out_item>":
        raise FixtureProblem(f"mapping.inputs of {place} must take <fan_out_item>")
    target, collect = only(mapping(given["outputs"], place), f"mapping.outputs of {place}")
    return item_field, target, collect


def _number(spec: Any, place: str) -> Any:
    if spec is None or isinstance(spec, int):
        return spec
    given = known(spec, ("callable", "field", "chunk_size"), place)
    match given["callable"]:
        case "state_field_read":
            return lambda state: getattr(state, given["field"])
        case "queue_chunk":
            return lambda state: max(1, len(getattr(state, given["field"])) // given["chunk_size"])
    raise DirectiveUnknown(f"callable {given['callable']} at {place}")


def _truthy(name: str) -> Any:
    return lambda state: bool(getattr(state, name))
