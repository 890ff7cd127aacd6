"""How the contract suite reaches the backend under test."""

from typing import Any, Protocol

from tenuto.store.store import Store


class Harness(Protocol):
    """One empty database for one test.

    Every `open` leads to the same database, so a test reopens a store by opening it again. `address`, where there is
    one, opens it from another process with `open_store(address, **options)`.
    """

    name: str
    address: str | None
    options: dict[str, Any]

    async def open(self, **options: Any) -> Store:
        """Open the database; the harness closes what the test leaves open."""
        ...

    async def damage(self, sql: str) -> None:
        """Run a statement on the tables behind the store's back, in the words both SQL dialects share."""
        ...
