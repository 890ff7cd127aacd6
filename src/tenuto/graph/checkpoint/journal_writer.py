"""What the journal writes a run with."""

from collections.abc import Mapping
from typing import Protocol

from tenuto.model.commit import EndRun, Receipt
from tenuto.model.wait import WaitStatus
from tenuto.writing.changes import LogChange, RunWrite, Save
from tenuto.writing.run_writer import RunWriter


class JournalWriter(Protocol):
    """The commits of one run: `RunWriter` for a graph that runs by itself, or those of the runtime's turn."""

    @property
    def run(self) -> RunWriter:
        """The run's own writer, which knows its identities and the session as its last save left it."""

    @property
    def begun(self) -> bool:
        """Whether the run has a row in the store."""

    @property
    def ended(self) -> bool:
        """Whether the run's end was written."""

    async def write(self, what: RunWrite, /) -> Receipt:
        """Write one commit; see `RunWriter.write`."""

    async def resolve(self) -> Receipt | None:
        """Return the receipt of the last commit if its reply was lost but it landed; see `RunWriter.resolve`."""

    async def settle(self, wait_id: str, status: WaitStatus, /) -> None:
        """Settle a wait of a run that is over."""

    async def repeat(
        self, operation_id: str, logs: Mapping[str, LogChange], save: Save, end: EndRun | None, /
    ) -> Receipt:
        """Write the save of a run that is over once more."""

    def release(self) -> None:
        """Stop renewing the run's lane."""
