"""Reading checkpoints."""

from tenuto.model.checkpoint import Checkpoint
from tenuto.model.session import Key, SessionKey, as_key
from tenuto.store.backend import View, columns_of
from tenuto.store.facets.logs import read_document
from tenuto.store.rules.limits import check_count, check_limit, check_name
from tenuto.store.rules.records import checkpoint_of
from tenuto.store.rules.rows import CheckpointRow
from tenuto.store.store_context import StoreContext


class Checkpoints:
    """The checkpoints of sessions, ordered by commit number.

    The latest is the last written, whatever its step count.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def latest(self, key: Key, *, run_id: str | None = None) -> Checkpoint | None:
        """Return the last written checkpoint of a session, or of one of its runs."""
        return next(iter(await self.of_session(key, run_id=run_id, limit=1)), None)

    async def get(self, key: Key, commit_number: int) -> Checkpoint | None:
        """Return the checkpoint a commit wrote, or None."""
        number = check_count(commit_number, "commit_number")
        found = await self._read("checkpoints_of_session", as_key(key), number + 1, 1)
        return found[0] if found and found[0].commit_number == number else None

    async def of_session(
        self, key: Key, *, run_id: str | None = None, limit: int = 100, before: int | None = None
    ) -> list[Checkpoint]:
        """Return checkpoints, newest first; `before` continues below a commit number."""
        below = 2**53 if before is None else check_count(before, "before")
        most = check_limit(limit)
        if run_id is None:
            return await self._read("checkpoints_of_session", as_key(key), below, most)
        return await self._read("checkpoints_of_run", as_key(key), check_name(run_id, "run_id"), below, most)

    async def points(
        self, key: Key, *, before: int | None = None, after: int | None = None, limit: int = 100
    ) -> list[Checkpoint]:
        """Return the session's own checkpoints, which no run wrote for itself.

        Newest first, below the commit number `before` if that is given; with `after`, oldest first above it.
        """
        most = check_count(limit, "limit")
        if after is not None:
            return await self._read("points_after", as_key(key), check_count(after, "after"), most)
        below = 2**53 if before is None else check_count(before, "before")
        return await self._read("points_before", as_key(key), below, most)

    async def _read(self, query: str, key: SessionKey, *params: object) -> list[Checkpoint]:
        async with self._store.backend.view() as view:
            rows = await view.read(query, *columns_of(key), *params)
            return [await _checkpoint(view, key, CheckpointRow(*row)) for row in rows]


async def _checkpoint(view: View, key: SessionKey, row: CheckpointRow) -> Checkpoint:
    document = await read_document(view, key, row.document, row.held, f"checkpoint {row.commit_no} of {key}")
    return checkpoint_of(row, key, document)
