"""Bringing stored state from the version it was written under to the one the code declares."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tenuto.errors import StateMigrationError

Migrate = Callable[[dict[str, Any]], Mapping[str, Any]]


class MigrationRegistry:
    """Migrations by the versions they lead from and to; `prefix` tells those of checkpoints and sessions apart."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._steps: dict[tuple[str, str], Migrate] = {}

    def add(self, source: str, target: str, migrate: Migrate) -> None:
        """Register a migration; a second one for the same pair is refused."""
        if (source, target) in self._steps:
            raise StateMigrationError(
                f"{self._prefix}_state_migration_chain_ambiguous",
                f"There are two migrations from {source!r} to {target!r}; keep one.",
                from_version=source,
                to_version=target,
            )
        self._steps[source, target] = migrate

    def borrow(self, other: "MigrationRegistry") -> None:
        """Take over the migrations of another registry for pairs this one has none for."""
        self._steps = {**other._steps, **self._steps}

    def chain(self, source: str, target: str) -> list[tuple[str, str]]:
        """Return the one shortest way between two versions; none, or more than one, is an error."""
        ways: list[list[tuple[str, str]]] = []
        queue: deque[list[tuple[str, str]]] = deque([[]])
        while queue:
            way = queue.popleft()
            if ways and len(way) >= len(ways[0]):
                break
            at = way[-1][1] if way else source
            for pair in self._steps:
                if pair[0] != at or any(pair[1] in (source, step[1]) for step in way):
                    continue
                longer = [*way, pair]
                if pair[1] == target:
                    ways.append(longer)
                else:
                    queue.append(longer)
        shortest = [way for way in ways if len(way) == len(ways[0])] if ways else []
        if len(shortest) == 1:
            return shortest[0]
        details = {
            "from_version": source,
            "to_version": target,
            "registered_migrations_count": len(self._steps),
            "registry_description": ", ".join(f"{a!r} -> {b!r}" for a, b in self._steps) or "no migrations",
        }
        if shortest:
            raise StateMigrationError(
                f"{self._prefix}_state_migration_chain_ambiguous",
                f"There are {len(shortest)} shortest ways from {source!r} to {target!r}; remove one.",
                **details,
            )
        raise StateMigrationError(
            f"{self._prefix}_state_migration_missing",
            f"No way leads from {source!r} to {target!r} ({details['registry_description']}); register a migration.",
            **details,
        )

    def apply(self, source: str, target: str, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Bring states along the chain; equal versions are left alone without a look at the registry."""
        if source == target:
            return states
        for pair in self.chain(source, target):
            try:
                states = [dict(self._steps[pair](dict(state))) for state in states]
            except Exception as error:
                raise StateMigrationError(
                    f"{self._prefix}_state_migration_failed",
                    f"The migration from {pair[0]!r} to {pair[1]!r} raised {error!r}; the chain stopped there.",
                    from_version=pair[0],
                    to_version=pair[1],
                ) from error
        return states
