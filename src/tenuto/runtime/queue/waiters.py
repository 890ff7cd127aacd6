"""The outcomes that somebody in this process waits for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenuto.runtime.session.outcome import Outcome


class Waiters(dict[str, list[asyncio.Future[Outcome]]]):
    """Who waits here for which input, to be notified as soon as its turn has ended here."""

    @contextmanager
    def outcome_of(self, input_id: str) -> Iterator[asyncio.Future[Outcome]]:
        """Wait for an input's outcome as long as the context lasts; a turn that ends elsewhere is not noticed here."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.setdefault(input_id, []).append(done)
        try:
            yield done
        finally:
            self[input_id].remove(done)
            if not self[input_id]:
                del self[input_id]

    def notify(self, input_id: str, outcome: Outcome) -> None:
        """Report to all who wait for an input how its turn went."""
        for done in self.get(input_id, ()):
            if not done.done():
                done.set_result(outcome)
