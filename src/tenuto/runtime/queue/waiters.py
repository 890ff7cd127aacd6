"""The outcomes that somebody in this process waits for."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tenuto.runtime.session.outcome import Outcome


class Waiters:
    """Who waits here for which input, to be told as soon as its turn has ended here."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[Outcome]]] = {}

    @contextmanager
    def outcome_of(self, input_id: str) -> Iterator[asyncio.Future[Outcome]]:
        """Wait for an input's outcome as long as the context lasts; one that comes about elsewhere is not told here."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(input_id, []).append(done)
        try:
            yield done
        finally:
            self._waiting[input_id].remove(done)
            if not self._waiting[input_id]:
                del self._waiting[input_id]

    def tell(self, input_id: str, outcome: Outcome) -> None:
        """Tell all who wait for an input how its turn went."""
        for done in self._waiting.get(input_id, ()):
            if not done.done():
                done.set_result(outcome)
