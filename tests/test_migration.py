"""The registry of migrations: which chain leads from one version to another."""

from typing import Any

import pytest

from tenuto.errors import StateMigrationError
from tenuto.migration import Migrate, MigrationRegistry


def registry(*pairs: tuple[str, str]) -> MigrationRegistry:
    made = MigrationRegistry("session")
    for source, target in pairs:
        made.add(source, target, _step(f"{source}>{target}"))
    return made


def _step(name: str, ran: list[str] | None = None) -> Migrate:
    def migrate(state: dict[str, Any]) -> dict[str, Any]:
        if ran is not None:
            ran.append(name)
        return {"way": [*state.get("way", []), name]}

    return migrate


def way(made: MigrationRegistry, source: str, target: str) -> Any:
    return made.apply(source, target, [{}])[0].get("way", [])


def test_the_shortest_chain_is_taken() -> None:
    made = registry(("1", "2"), ("2", "3"), ("3", "4"), ("2", "4"), ("4", "1"))
    assert way(made, "1", "4") == ["1>2", "2>4"]
    assert way(made, "3", "2") == ["3>4", "4>1", "1>2"]


def test_two_migrations_of_one_pair_are_refused_when_the_second_is_registered() -> None:
    made = registry(("1", "2"))
    with pytest.raises(StateMigrationError) as raised:
        made.add("1", "2", dict)
    assert raised.value.category == "session_state_migration_chain_ambiguous"
    assert raised.value.details()["from_version"] == "1"


def test_two_shortest_chains_are_refused_at_load_and_a_longer_one_does_not_count() -> None:
    with pytest.raises(StateMigrationError) as raised:
        registry(("1", "a"), ("a", "3"), ("1", "b"), ("b", "3")).apply("1", "3", [{}])
    assert raised.value.category == "session_state_migration_chain_ambiguous"
    assert way(registry(("1", "a"), ("a", "3"), ("1", "b"), ("b", "c"), ("c", "3")), "1", "3") == ["1>a", "a>3"]


def test_a_missing_chain_says_what_is_registered() -> None:
    with pytest.raises(StateMigrationError) as raised:
        registry(("1", "2"), ("3", "4")).apply("1", "4", [{}])
    details = raised.value.details()
    assert raised.value.category == "session_state_migration_missing"
    assert (details["from_version"], details["to_version"], details["registered_migrations_count"]) == ("1", "4", 2)
    assert "'1' -> '2'" in details["registry_description"]


def test_a_migration_that_raises_stops_the_chain_and_keeps_the_cause() -> None:
    ran: list[str] = []
    made = MigrationRegistry("checkpoint")
    fault = KeyError("gone")

    def breaks(_: dict[str, Any]) -> dict[str, Any]:
        raise fault

    made.add("1", "2", _step("1>2", ran))
    made.add("2", "3", breaks)
    made.add("3", "4", _step("3>4", ran))
    with pytest.raises(StateMigrationError) as raised:
        made.apply("1", "4", [{}])
    assert raised.value.category == "checkpoint_state_migration_failed"
    assert (raised.value.__cause__, ran, raised.value.details()["from_version"]) == (fault, ["1>2"], "2")


def test_equal_versions_do_not_consult_the_registry() -> None:
    made = registry(("1", "1"), ("1", "2"))
    state = {"n": 1}
    assert made.apply("1", "1", [state])[0] is state
    assert made.apply("unknown", "unknown", [state])[0] is state


def test_a_migration_cannot_change_what_was_given_to_it_from_outside() -> None:
    made = MigrationRegistry("session")
    made.add("1", "2", lambda state: state.pop("a") and state)
    given = {"a": 1, "b": 2}
    assert made.apply("1", "2", [given]) == [{"b": 2}]
    assert given == {"a": 1, "b": 2}


def test_borrowed_migrations_fill_gaps_only() -> None:
    mine, other = registry(("1", "2")), registry(("2", "3"))
    other.add("1", "2", lambda _: {"way": ["wrong"]})
    mine.borrow(other)
    assert way(mine, "1", "3") == ["1>2", "2>3"]
