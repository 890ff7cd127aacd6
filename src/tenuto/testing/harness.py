"""How the contract reaches the backend under test, and what it may ask of it."""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Protocol

import pytest

from tenuto.store.store import Store

Test = Callable[..., Awaitable[None]]


class Capability(StrEnum):
    """What a backend or its harness can do beyond what every store must; a test that needs it is skipped without."""

    PROBES = "probes"
    """The backend has a `probe`, as `tenuto.testing.probes.Probed` says."""

    DAMAGE_SQL = "damage_sql"
    """`Harness.damage` runs SQL on tables that have our names and columns."""

    TRIGGERS = "triggers"
    """`Harness.refuse_inserts` makes the database itself refuse rows."""

    LOOSE_COLUMN_TYPES = "loose_column_types"
    """A column for numbers takes text too, if `Harness.damage` puts it there."""

    VACUUM = "vacuum"
    """The backend gives free pages back; without this its `vacuum` has to raise `Unsupported`."""


class Harness(Protocol):
    """One empty database for one test.

    Every `open` leads to the same database, so a test reopens a store by opening it again. `address`, where there is
    one, opens it from another process with `open_store(address, **options)`; where it is None, tests about processes
    use two stores in one. `capabilities` says which of the tests that not every backend can pass are to run.
    """

    name: str
    address: str | None
    options: dict[str, Any]
    capabilities: frozenset[Capability]

    async def open(self, **options: Any) -> Store:
        """Open the database; `clock` goes to `Store`, and the harness closes what the test leaves open."""
        ...

    async def damage(self, sql: str) -> None:
        """Run a statement on the tables behind the store's back, in the words both SQL dialects share.

        Only called with `Capability.DAMAGE_SQL`.
        """
        ...

    async def refuse_inserts(self, table: str) -> None:
        """Make the database refuse every row for this table, once it was written. Only called with `TRIGGERS`."""
        ...

    async def accept_inserts(self, table: str) -> None:
        """Undo `refuse_inserts`."""
        ...


def needs(*capabilities: Capability) -> Callable[[Test], Test]:
    """Skip a test on a harness that lacks one of these capabilities, with a sentence that names it."""

    def decorate(test: Test) -> Test:
        taken = signature(test)
        has_harness = "harness" in taken.parameters

        @wraps(test)
        async def checked(*, harness: Harness, **given: Any) -> None:
            for each in capabilities:
                if each not in harness.capabilities:
                    pytest.skip(
                        f"The harness of {harness.name} lacks the capability {each.name}, which this test needs."
                    )
            await test(**given, **({"harness": harness} if has_harness else {}))

        if not has_harness:
            # pytest gives a test the fixtures that its signature names.
            asked = Parameter("harness", Parameter.KEYWORD_ONLY, annotation=Harness)
            checked.__signature__ = taken.replace(parameters=[*taken.parameters.values(), asked])  # type: ignore[attr-defined]
        return checked

    return decorate
