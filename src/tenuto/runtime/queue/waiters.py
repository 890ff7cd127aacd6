"""The outcomes that tasks of this process wait for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenuto.runtime.session.outcome import Outcome


class Waiters(dict[str, list[asyncio.Future[Outcome[Any]]]]):
    """The waiting tasks of this process by input id, notified as soon as a turn ends here."""

    @contextmanager
    def outcome_of(self, input_id: str) -> Iterator[asyncio.Future[Outcome[Any]]]:
        """Wait for an input's outcome as long as the context lasts; a turn that ends in another process is not seen."""
        done: asyncio.Future[Outcome[Any]] = asyncio.get_running_loop().create_future()
        self.setdefault(input_id, []).append(done)
        try:
            yield done
        finally:
            self[input_id].remove(done)
            if not self[input_id]:
                del self[input_id]

    def notify(self, input_id: str, outcome: Outcome[Any]) -> None:
        """Report the outcome of an input's turn to all tasks that wait for it."""
        for done in self.get(input_id, ()):
            if not done.done():
                done.set_result(outcome)
