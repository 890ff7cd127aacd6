"""What the journal writes a run with."""

from collections.abc import Mapping
from typing import Protocol

from tenuto.errors import TenutoError
from tenuto.model.commit import EndRun, OpenWait, Receipt, SettleWait
from tenuto.model.session import SessionKey
from tenuto.model.wait import WaitStatus
from tenuto.writing.changes import Base, CheckpointDraft, LogChange, Save


class JournalWriter(Protocol):
    """The commits of one run: `RunWriter` for a graph that runs by itself, or those of the runtime's turn."""

    @property
    def key(self) -> SessionKey:
        """The session, or the invocation, the run belongs to."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def life(self) -> int | None:
        """The session's life."""

    @property
    def base(self) -> Base:
        """The session as its last save left it."""

    @property
    def lost(self) -> TenutoError | None:
        """Why the run was lost, if it was."""

    @property
    def operation_id(self) -> str:
        """The last commit's id."""

    @property
    def begun(self) -> bool:
        """Whether the run has a row in the store."""

    @property
    def ended(self) -> bool:
        """Whether the run's end was written."""

    async def write(
        self,
        *,
        point: CheckpointDraft | None = None,
        logs: Mapping[str, LogChange] | None = None,
        save: Save | None = None,
        end: EndRun | None = None,
        waits: tuple[OpenWait, ...] = (),
        settled: tuple[SettleWait, ...] = (),
    ) -> Receipt:
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
