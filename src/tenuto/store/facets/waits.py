"""Reading waits."""

from functools import partial

from tenuto.model.session import Key, Tenant, as_key
from tenuto.model.wait import Wait, WaitStatus
from tenuto.store.backend import columns_of
from tenuto.store.facets.damage import read_sound
from tenuto.store.rules.limits import check_limit, check_name, check_text, check_word, within
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import joined, wait_of
from tenuto.store.rules.rows import WaitRow
from tenuto.store.store_context import StoreContext


class Waits:
    """The waits of sessions."""

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def get(self, wait_id: str, *, tenant: Tenant = "") -> Wait | None:
        """Return a tenant's wait by its minted id, or None; another tenant's is unknown."""
        named = (check_name(wait_id, "wait_id"), within(tenant))
        return next(iter(await self._read("wait_with_session", *named)), None)

    async def of_session(
        self, key: Key, *, run_id: str | None = None, status: WaitStatus | None = WaitStatus.OPEN
    ) -> list[Wait]:
        """Return a session's waits in the order they were opened; `status=None` means all."""
        of_run = None if run_id is None else check_name(run_id, "run_id")
        return await self._read("waits_of_session", *columns_of(as_key(key)), of_run, _status(status))

    async def of_invocation(self, key: Key, origin_id: str) -> list[Wait]:
        """Return the waits of all runs of a session that go back to this invocation, open or settled.

        They come in the order they were opened; a pruned run's went with it.
        """
        return await self._read("waits_of_origin", *columns_of(as_key(key)), check_name(origin_id, "origin_id"))

    async def open(self, *, tenant: Tenant = "", limit: int = 100, after: str = "") -> list[Wait]:
        """Return a tenant's open waits, in the order they were opened; `after` continues behind an id.

        One that cannot be read is passed over and reported; `get` says what is wrong with it.
        """
        place = (within(tenant), check_text(after, "after"))
        return await read_sound(partial(self._store.backend.read, "open_waits", *place), check_limit(limit), _wait)

    async def for_signal(
        self, signal_id: str, *, tenant: Tenant = "", status: WaitStatus | None = WaitStatus.OPEN
    ) -> list[Wait]:
        """Return the waits of a tenant for the program's own signal id, in the order they were opened."""
        named = (within(tenant), check_text(signal_id, "signal_id"))
        return await self._read("waits_for_signal", *named, _status(status))

    async def _read(self, query: str, *params: object) -> list[Wait]:
        rows = await self._store.backend.read(query, *params)
        return list(map(_wait, rows))


def _wait(row: Row) -> Wait:
    return wait_of(*joined(WaitRow, row))


def _status(given: WaitStatus | None) -> str | None:
    return None if given is None else check_word(given, WaitStatus, "status")
