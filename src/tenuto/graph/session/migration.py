"""Bringing stored state from the version it was written under to the one the code declares."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tenuto.errors import InvalidInput, StateMigrationError

Migrate = Callable[[dict[str, Any]], Mapping[str, Any]]


class _Way(NamedTuple):
    """The shortest way from a version: how long it is, how many are as short, and the version that follows."""

    length: int
    ways: int
    following: str


class MigrationRegistry:
    """Migrations by the versions they lead from and to; `prefix` tells those of checkpoints and sessions apart."""

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
        """Take over the migrations of another registry for pairs this one has none for."""
        self._steps = {**other._steps, **self._steps}

    def chain(self, source: str, target: str) -> list[tuple[str, str]]:
        """Return the one shortest way between two versions; none, or more than one, is an error."""
        way = self._ways_to(target).get(source)
        if way is not None and way.ways == 1:
            return self._steps_of(source, target)
        details = {
            "from_version": source,
            "to_version": target,
            "registered_migrations_count": len(self._steps),
            "registry_description": ", ".join(f"{a!r} -> {b!r}" for a, b in self._steps) or "no migrations",
        }
        if way is not None:
            raise StateMigrationError(
                f"{self._prefix}_state_migration_chain_ambiguous",
                f"There are {way.ways} shortest ways from {source!r} to {target!r}, of {way.length} migrations each; "
                "remove one.",
                **details,
            )
        raise StateMigrationError(
            f"{self._prefix}_state_migration_missing",
            f"No way leads from {source!r} to {target!r} ({details['registry_description']}); register a migration.",
            **details,
        )

    def check(self, target: str) -> None:
        """Refuse a registry in which some version has more than one shortest way to `target`."""
        for source, way in self._ways_to(target).items():
            if way.ways > 1:
                self.chain(source, target)

    def _steps_of(self, source: str, target: str) -> list[tuple[str, str]]:
        ways, steps, at = self._ways_to(target), [], source
        while at != target:
            steps.append((at, ways[at].following))
            at = ways[at].following
        return steps

    def _ways_to(self, target: str) -> dict[str, "_Way"]:
        """Return the shortest way from each version that leads to the target, found from its end."""
        leading: dict[str, list[str]] = {}
        for source, following in self._steps:
            leading.setdefault(following, []).append(source)
        ways = {target: _Way(0, 1, target)}
        queue = deque([target])
        while queue:
            at = queue.popleft()
            for source in leading.get(at, ()):
                known = ways.get(source)
                if known is None:
                    ways[source] = _Way(ways[at].length + 1, ways[at].ways, at)
                    queue.append(source)
                elif known.length == ways[at].length + 1:
                    ways[source] = known._replace(ways=known.ways + ways[at].ways)
        del ways[target]
        return ways

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
