"""A consistent look at the file, on its own connection."""

import asyncio
from contextlib import suppress
from functools import partial

import apsw

from tenuto.store.backends.home import Home
from tenuto.store.backends.sqlite.connection import patiently
from tenuto.store.backends.sqlite.database import Settings
from tenuto.store.backends.sqlite.execution import Execution
from tenuto.store.backends.sqlite.faults import shown
from tenuto.store.backends.threads import Threads
from tenuto.store.rules.plan import Row


class SqliteView:
    """A read transaction; its reads are made by a thread."""

    def __init__(
        self, home: Home, settings: Settings, execution: Execution, threads: Threads, connection: apsw.Connection
    ) -> None:
        self._home = home
        self._settings = settings
        self._execution = execution
        self._threads = threads
        self._connection = connection

    async def read(self, name: str, *params: object) -> list[Row]:
        """See `View.read`."""
        self._home.check()
        work = self._threads.run(partial(self._read, name, params))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # The thread still uses the connection: nobody else may have it before it is done.
            while not work.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({work})
            if not work.cancelled():
                work.exception()
            raise

    def end(self) -> bool:
        """End the view; return whether the connection is of use for another. What was read stands in any case."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
        except apsw.Error:
            return False
        return True

    def _read(self, name: str, params: Row) -> list[Row]:
        try:
            self._execution.begins(name)
            # A reader waits only while another process recovers the WAL or switches a new file to it.
            return patiently(partial(self._fetch, name, params), self._settings.lock_timeout)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise shown(error, self._settings.path) from error

    def _fetch(self, name: str, params: Row) -> list[Row]:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")
        return self._execution.rows(self._connection, name, params)
