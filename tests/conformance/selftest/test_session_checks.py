"""The adapter's checks of sessions: they must not pass what is wrong."""

from pathlib import Path

import pytest

from tests.conformance.selftest.trials import report_of

TURNS = """
state:
  fields:
    history: {type: list, reducer: append, default: []}
    summary: {type: str, default: ""}
    scratch: {type: str, default: clean}
session_state: {fields: [history, summary]}
entry: talk
nodes:
  talk: {update: {history: [x], summary: short, scratch: used}}
edges: [{from: talk, to: END}]
session_store: in_memory
invocations:
  - session_id: s
    initial_state: {}
    loaded_session_state: null
    expected_final_state: {history: [x], summary: short, scratch: used}
    saved_session_assertions: {state: {history: [x], summary: short}, excludes_fields: [scratch]}
  - session_id: s
    initial_state: {history: [y]}
    loaded_session_state: {history: [x], summary: short}
    loaded_invoke_state_for_scratch: clean
    expected:
      final_state: {history: [x, y, x], summary: short, scratch: used}
      store_after: {load_returns_for_session_id: s, loaded_state: {history: [x, y, x], summary: short}}
    invariants: {no_inner_session_load_or_save: false}
invariants:
  second_invoke_loads_first_invoke_state: true
  saved_record_overwrites_prior: true
  scratch_field_never_persisted: true
  projected_field_persists_across_invokes: true
  node_event_does_not_carry_session_id_field: true
"""

SAVED = """
state: {fields: {step: {type: str, default: ""}}}
entry: a
nodes:
  a: {update: {step: a}, explicit_save_session: true}
  b: {raises: {category: broken}}
edges: [{from: a, to: b}, {from: b, to: END}]
session_store: in_memory
session_id: s
expected_error: {category: node_exception, raised_from: b}
expected:
  store_after: {load_returns_for_session_id: s, loaded_state: {step: a}, loaded_schema_version: ""}
  no_auto_save_on_end: true
  saved_session_assertions: {state: {step: a}}
invariants: {mid_invoke_save_survives_subsequent_crash: true}
"""

ALONE = """
state: {fields: {x: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {x: 1}}
edges: [{from: a, to: END}]
initial_state: {}
session_store: in_memory
expected:
  final_state: {x: 1}
  no_session_load: true
  no_session_save: true
  store_untouched: true
  store_after: {load_returns_none_for_session_id: s}
"""

MIGRATED = """
state: {schema_version: v2, fields: {value: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {}}
edges: [{from: a, to: END}]
session_store: in_memory
session_id: s
seeded_session: {schema_version: v1, state: {value: 1}}
session_migrations: [{from_version: v1, to_version: v2, migrate: add_ten_to_value}]
expected:
  migrations_run: [v1->v2]
  final_state: {value: 11}
  loaded_session_state: {value: 1}
  saved_session_assertions: {schema_version: v2, state: {value: 11}}
invariants: {single_migration_invocation: true, migration_runs_before_projection_merge: true}
"""

MISSING = """
state: {schema_version: v3, fields: {value: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {}}
edges: [{from: a, to: END}]
session_store: in_memory
session_id: s
seeded_session: {schema_version: v1, state: {value: 1}}
session_migrations: [{from_version: v1, to_version: v2, migrate: should_not_run}]
expected_error:
  category: session_state_migration_missing
  carries:
    {from_version: v1, to_version: v3, registered_migrations_count: 1, registry_description_present: true,
     registry_description_mentions: [v1, v2]}
expected:
  store_after: {load_returns_for_session_id: s, loaded_state: {value: 1}, loaded_schema_version: v1}
  no_session_save: true
invariants: {node_never_invoked: true, error_category_not: [session_load_failed]}
"""

AMBIGUOUS = """
state: {schema_version: v2, fields: {value: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {}}
edges: [{from: a, to: END}]
session_store: in_memory
session_migrations:
  - {from_version: v1, to_version: v2, migrate: add_ten_to_value}
  - {from_version: v1, to_version: v2, migrate: multiply_value_by_two}
expected_error:
  category: session_state_migration_chain_ambiguous
  raised_at: registration
  carries: {from_version: v1, to_version: v2}
invariants: {no_invoke_attempted: true}
"""

INSIDE = """
subgraph:
  name: cell
  state: {fields: {item: {type: str, default: ""}, done: {type: str, default: ""}}}
  entry: work
  nodes:
    work: {update_pure: {done: item}}
  edges: [{from: work, to: END}]
state:
  fields:
    inputs: {type: list<str>, default: []}
    outputs: {type: list<str>, reducer: append, default: []}
entry: fan
nodes:
  fan:
    fan_out:
      subgraph: cell
      items_field: inputs
      mapping: {inputs: {item: <fan_out_item>}, outputs: {outputs: done}}
edges: [{from: fan, to: END}]
session_store: in_memory
session_id: s
seeded_session: {state: {inputs: [a, b]}}
expected:
  inner_pre_state: {item: a, done: ""}
  instance_pre_states: [{item: a, done: ""}, {item: b, done: ""}]
  final_state: {inputs: [a, b], outputs: [a, b]}
  saved_session_assertions: {state: {inputs: [a, b], outputs: [a, b]}}
invariants:
  fan_out_instance_state_fields_match_subgraph_schema: true
  fan_out_instances_do_not_see_session_state_directly: true
  no_per_instance_session_load_or_save: true
  subgraph_state_fields_match_subgraph_schema: true
"""

BROKEN = """
state: {fields: {x: {type: int, default: 0}}}
entry: a
nodes:
  a: {update: {x: 1}}
edges: [{from: a, to: END}]
session_store: {type: in_memory, behavior: {load_raises: session_load_failed}}
session_id: s
expected_error: {category: session_load_failed}
expected: {no_session_save: true, no_session_load: false}
invariants: {node_never_invoked: true}
"""

GOOD = {
    "turns": TURNS,
    "saved": SAVED,
    "alone": ALONE,
    "migrated": MIGRATED,
    "missing": MISSING,
    "ambiguous": AMBIGUOUS,
    "inside": INSIDE,
    "broken": BROKEN,
}


@pytest.mark.parametrize("name", GOOD)
async def test_sessions_that_hold_pass(name: str, tmp_path: Path) -> None:
    assert (await report_of(GOOD[name], tmp_path)).problems == []


@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("turns", "loaded_session_state: null", "loaded_session_state: {}"),
        ("turns", "loaded_session_state: {history: [x], summary", "loaded_session_state: {history: [], summary"),
        ("turns", "loaded_session_state: {history: [x], summary: short}", "loaded_session_state: null"),
        ("turns", "expected_final_state: {history: [x]", "expected_final_state: {history: [x, x]"),
        ("turns", "{state: {history: [x], summary", "{state: {history: [], summary"),
        ("turns", "excludes_fields: [scratch]", "excludes_fields: [summary]"),
        ("turns", "loaded_invoke_state_for_scratch: clean", "loaded_invoke_state_for_scratch: used"),
        ("turns", "final_state: {history: [x, y, x]", "final_state: {history: [x, x]"),
        ("turns", "loaded_state: {history: [x, y, x]", "loaded_state: {history: [x]"),
        ("turns", "load_returns_for_session_id: s,", "load_returns_for_session_id: other,"),
        ("turns", "no_inner_session_load_or_save: false", "no_inner_session_load_or_save: true"),
        ("turns", "invoke_state: true", "invoke_state: false"),
        ("turns", "overwrites_prior: true", "overwrites_prior: false"),
        ("turns", "never_persisted: true", "never_persisted: false"),
        ("turns", "across_invokes: true", "across_invokes: false"),
        ("turns", "session_id_field: true", "session_id_field: false"),
        ("turns", "session_state: {fields: [history, summary]}", ""),
        ("turns", "session_state: {fields: [history, summary]}", "session_state: {fields: [history]}"),
        ("turns", "  - session_id: s\n    initial_state: {history", "  - session_id: t\n    initial_state: {history"),
        ("turns", "session_store: in_memory", ""),
        ("turns", "    initial_state: {}\n", "    initial_state: {}\n    hovercraft: 1\n"),
        ("turns", "invariants:\n  second", "invariants:\n  no_per_instance_session_load_or_save: true\n  second"),
        ("saved", "raised_from: b", "raised_from: a"),
        ("saved", "loaded_state: {step: a}", "loaded_state: {step: b}"),
        ("saved", 'loaded_schema_version: ""', "loaded_schema_version: v1"),
        ("saved", "no_auto_save_on_end: true", "no_auto_save_on_end: false"),
        ("saved", "  no_auto_save_on_end: true", "  no_session_save: true"),
        ("saved", "crash: true", "crash: false"),
        ("saved", ", explicit_save_session: true", ""),
        ("saved", "explicit_save_session: true", "explicit_save_session: 1"),
        ("saved", "b: {raises: {category: broken}}", "b: {update: {step: b}}"),
        ("alone", "no_session_load: true", "no_session_load: false"),
        ("alone", "no_session_save: true", "no_session_save: false"),
        ("alone", "store_untouched: true", "store_untouched: false"),
        ("alone", "session_store: in_memory", "session_store: in_memory\nsession_id: s"),
        ("alone", "session_store: in_memory", "session_store: in_memory\nauto_save: false\nsession_id: t"),
        ("alone", "session_store: in_memory", "session_store: hovercraft"),
        ("alone", "session_store: in_memory", "session_store: {type: in_memory, behavior: {hovercraft: 1}}"),
        ("alone", "session_store: in_memory", "auto_save: false"),
        ("alone", "load_returns_none_for_session_id: s", "load_returns_for_session_id: s"),
        ("alone", "store_after: {load", "store_after: {hovercraft: 1, load"),
        ("migrated", "migrations_run: [v1->v2]", "migrations_run: []"),
        ("migrated", "final_state: {value: 11}", "final_state: {value: 1}"),
        ("migrated", "loaded_session_state: {value: 1}", "loaded_session_state: {value: 11}"),
        ("migrated", "assertions: {schema_version: v2", "assertions: {schema_version: v1"),
        ("migrated", "merge: true", "merge: false"),
        ("migrated", "migrate: add_ten_to_value", "migrate: hovercraft"),
        ("migrated", "migrate: add_ten_to_value", "migrate: raises_keyerror"),
        ("migrated", "session_id: s", ""),
        ("missing", "category: session_state_migration_missing", "category: session_state_migration_failed"),
        ("missing", "to_version: v3,", "to_version: v2,"),
        ("missing", "count: 1", "count: 2"),
        ("missing", "description_present: true", "description_present: false"),
        ("missing", "mentions: [v1, v2]", "mentions: [v1, v9]"),
        ("missing", "registry_description_present", "hovercraft_present"),
        ("missing", "loaded_schema_version: v1", "loaded_schema_version: v3"),
        ("missing", "node_never_invoked: true", "node_never_invoked: false"),
        ("missing", "not: [session_load_failed]", "not: [session_state_migration_missing]"),
        ("missing", "v2, migrate: should_not_run", "v3, migrate: add_ten_to_value"),
        ("missing", "v2, migrate: should_not_run", "v3, migrate: irrelevant"),
        ("ambiguous", "category: session_state_migration_chain_ambiguous", "category: session_load_failed"),
        ("ambiguous", "raised_at: registration", "raised_at: invoke"),
        ("ambiguous", "carries: {from_version: v1", "carries: {from_version: v2"),
        ("ambiguous", "no_invoke_attempted: true", "no_invoke_attempted: false"),
        ("ambiguous", "  - {from_version: v1, to_version: v2, migrate: multiply_value_by_two}\n", ""),
        ("inside", "inner_pre_state: {item: a,", "inner_pre_state: {item: b,"),
        ("inside", '[{item: a, done: ""}, {item: b, done: ""}]', '[{item: b, done: ""}, {item: a, done: ""}]'),
        ("inside", '[{item: a, done: ""}, {item: b, done: ""}]', '[{item: a, done: ""}]'),
        ("inside", "match_subgraph_schema: true\n  fan", "match_subgraph_schema: false\n  fan"),
        ("inside", "directly: true", "directly: false"),
        ("inside", "load_or_save: true", "load_or_save: false"),
        ("inside", "session_id: s", ""),
        ("broken", "behavior: {load_raises: session_load_failed}", "behavior: {}"),
        ("broken", "no_session_load: false", "no_session_load: true"),
        ("broken", "no_session_save: true", "no_session_save: false"),
    ],
)
async def test_sessions_that_do_not_hold_fail(name: str, true: str, false: str, tmp_path: Path) -> None:
    assert true in GOOD[name]
    assert (await report_of(GOOD[name].replace(true, false, 1), tmp_path)).problems


async def test_an_error_that_a_registration_raises_is_not_passed_over(tmp_path: Path) -> None:
    text = AMBIGUOUS[: AMBIGUOUS.index("expected_error")]
    assert any("chain_ambiguous" in problem for problem in (await report_of(text, tmp_path)).problems)


async def test_an_id_without_a_store_loads_and_saves_nothing(tmp_path: Path) -> None:
    text = ALONE.replace("session_store: in_memory", "session_id: s").split("  store_untouched")[0]
    assert (await report_of(text, tmp_path)).problems == []
