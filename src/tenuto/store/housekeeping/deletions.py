"""Deleting: a tombstone in one transaction, what it leaves in slices, and cascades that anybody can finish."""

from contextlib import suppress
from functools import partial

from tenuto.errors import StoredDataCorrupt
from tenuto.ids import new_id
from tenuto.model.report import DeleteReport
from tenuto.model.session import SessionKey
from tenuto.store.backend import session_lock
from tenuto.store.facets.damage import name_of, report
from tenuto.store.housekeeping.sweep import Sweep
from tenuto.store.rules.plan import Ask
from tenuto.store.rules.records import joined
from tenuto.store.rules.rows import DeletionRow
from tenuto.store.rules.verbs.deletion_rules import (
    Buried,
    decide_delete,
    decide_done,
    decide_target,
    gather_target,
    report_of,
    summed,
)
from tenuto.store.store_context import StoreContext, transact

_PAGE = 100


class Deletions:
    """Deletes sessions, and continues cascades that were cut off."""

    def __init__(self, store: StoreContext, sweep: Sweep) -> None:
        self._store = store
        self._sweep = sweep

    async def delete(self, key: SessionKey, *, cascade: bool) -> DeleteReport:
        """See `Store.delete`."""
        buried = await self.bury(key, cascade=cascade)
        if not cascade:
            return summed([buried.report, await self._swept(key)]) if buried.report.sessions else buried.report
        if not buried.sid:
            return buried.report
        await self.finish(buried.sid)
        rows = await self._store.backend.read("deletions_of", buried.sid, buried.life)
        reports = [DeletionRow(*row).report for row in rows]
        return summed(report_of(report) for report in reports if report is not None)

    async def bury(self, key: SessionKey, *, cascade: bool = False) -> Buried:
        """Write the tombstone of a delete and report what it ends; what that leaves is the sweep's, or gc's."""
        decide = partial(decide_delete, cascade, new_id())
        buried = await transact(self._store, Ask(key=key, relatives=True), decide)
        if buried.report.sessions:
            self._store.backend.announce(key)
        return buried

    async def finish(self, root: int | None = None) -> int:
        """Do what cascades, one root's or all, have left to do; return how many sessions were still to be ended."""
        done, damaged = 0, 0
        while len(rows := await self._store.backend.read("open_deletions", root, _PAGE + damaged)) > damaged:
            damaged = 0
            for row in rows:
                try:
                    deletion, key = joined(DeletionRow, row)
                    await self._end(key, deletion)
                    done += 1
                except StoredDataCorrupt as error:
                    report(name_of(row), error)
                    damaged += 1
        return done

    async def _end(self, key: SessionKey, deletion: DeletionRow) -> None:
        """End one target of a cascade in the life recorded; each step may be repeated."""
        read = partial(gather_target, key, deletion, self._store.now())
        await self._store.backend.transact(read, partial(decide_target, new_id()), session_lock(key))
        self._store.backend.announce(key)
        done = partial(decide_done, await self._swept(key))
        await self._store.backend.transact(read, done, session_lock(key))

    async def _swept(self, key: SessionKey) -> DeleteReport:
        with suppress(StoredDataCorrupt):  # of a fork that shares entries: what it reaches is unknown
            return await self._sweep.deleted(key)
        return DeleteReport()
