"""Migrating stored state from the version it was written under to the one the code declares."""

from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from inspect import isawaitable, iscoroutine
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput, StateMigrationError

Migrate = Callable[[dict[str, Any]], Mapping[str, Any]]


class _Path(NamedTuple):
    """The shortest path from a version: its length, how many are as short, and the next version on it."""

    length: int
    ways: int
    following: str


class MigrationRegistry:
    """Migrations by the versions they lead from and to; `prefix` distinguishes those of checkpoints and sessions."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._steps: dict[tuple[str, str], Migrate] = {}

    def add(self, source: str, target: str, migrate: Migrate) -> None:
        """Register a migration; a second one for the same pair is refused."""
        if not (isinstance(source, str) and isinstance(target, str) and callable(migrate)):
            raise InvalidInput(
                f"A migration leads from a version to a version by a function, got {source!r}, {target!r}."
            )
        if (source, target) in self._steps:
            raise StateMigrationError(
                f"{self._prefix}_state_migration_chain_ambiguous",
                f"There are two migrations from {source!r} to {target!r}; keep one.",
                from_version=source,
                to_version=target,
            )
        self._steps[source, target] = migrate

    def borrow(self, other: "MigrationRegistry") -> None:
        """Add the migrations of another registry for pairs this one has none for."""
        self._steps = {**other._steps, **self._steps}

    def chain(self, source: str, target: str) -> list[tuple[str, str]]:
        """Return the one shortest path between two versions; none, or more than one, is an error."""
        paths, steps, at = self._paths_to(target), list[tuple[str, str]](), source
        way = paths.get(source)
        if way is not None and way.ways == 1:
            while at != target:
                steps.append((at, paths[at].following))
                at = paths[at].following
            return steps
        details = {
            "from_version": source,
            "to_version": target,
            "registered_migrations_count": len(self._steps),
            "registry_description": ", ".join(f"{a!r} -> {b!r}" for a, b in self._steps) or "no migrations",
        }
        if way is not None:
            raise StateMigrationError(
                f"{self._prefix}_state_migration_chain_ambiguous",
                f"There are {way.ways} shortest paths from {source!r} to {target!r}, of {way.length} migrations each; "
                "remove one.",
                **details,
            )
        raise StateMigrationError(
            f"{self._prefix}_state_migration_missing",
            f"No migration path from {source!r} to {target!r} ({details['registry_description']}); register one.",
            **details,
        )

    def check(self, target: str) -> None:
        """Refuse a registry in which some version has more than one shortest path to `target`."""
        for source, way in self._paths_to(target).items():
            if way.ways > 1:
                self.chain(source, target)

    def _paths_to(self, target: str) -> dict[str, _Path]:
        """Return the shortest path from each version that leads to the target, found from its end."""
        leading: dict[str, list[str]] = {}
        for source, following in self._steps:
            leading.setdefault(following, []).append(source)
        ways = {target: _Path(0, 1, target)}
        queue = deque([target])
        while queue:
            at = queue.popleft()
            for source in leading.get(at, ()):
                known = ways.get(source)
                if known is None:
                    ways[source] = _Path(ways[at].length + 1, ways[at].ways, at)
                    queue.append(source)
                elif known.length == ways[at].length + 1:
                    ways[source] = known._replace(ways=known.ways + ways[at].ways)
        del ways[target]
        return ways

    def apply(self, source: str, target: str, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Migrate copies of states along the chain; equal versions need no migration."""
        if source == target:
            return states
        chain, states = self.chain(source, target), deepcopy(states)
        for pair in chain:
            try:
                states = [_mapping(self._steps[pair](dict(state))) for state in states]
            except Exception as error:
                raise StateMigrationError(
                    f"{self._prefix}_state_migration_failed",
                    f"The migration from {pair[0]!r} to {pair[1]!r} raised {error!r}; the chain stopped there.",
                    from_version=pair[0],
                    to_version=pair[1],
                ) from error
        return states


def _mapping(result: Any) -> dict[str, Any]:
    """Return what a migration returned; raise `TypeError` for anything but the fields of a state."""
    if isinstance(result, Mapping) and all(isinstance(name, str) for name in result):
        return dict(result)
    if iscoroutine(result):
        result.close()
    awaited = ": declare it with `def`" if isawaitable(result) else ""
    raise TypeError(f"a migration returns a mapping of fields, got {type(result).__name__}{awaited}")
