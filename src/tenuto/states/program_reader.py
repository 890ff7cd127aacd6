"""A program that reads its stored sessions by the state it declares; one that declares none accepts all."""

from tenuto.errors import (
    InvalidInput,
    SessionDeleted,
    SessionLoadFailed,
    StateMigrationError,
    StoreContended,
    TenutoError,
    VersionConflict,
)
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import Commit
from tenuto.model.run import Run
from tenuto.model.session import SessionKey, SessionRecord
from tenuto.runtime.session.state_shape import StateShape
from tenuto.states.state_reader import TRIES
from tenuto.store.store import Store


class ProgramReader:
    """A program that is not a graph, by the shape of its state."""

    def __init__(self, name: str, shape: StateShape | None, store: Store) -> None:
        self.name = name
        self._shape = shape
        self._store = store

    @property
    def target(self) -> str:
        """See `StateReader.target`."""
        return "" if self._shape is None else self._shape.version

    @property
    def run_target(self) -> str:
        """See `StateReader.run_target`."""
        return self.target

    def blocked(self, version: str) -> TenutoError | None:
        """See `StateReader.blocked`."""
        try:
            if self._shape is not None:
                self._shape.check_version(version)
        except StateMigrationError as error:
            return error
        return None

    async def check(self, key: SessionKey) -> frozenset[str] | None:
        """See `StateReader.check`."""
        record = await self._store.load(key)
        if record is None:
            return None
        document = self._read(key, record)
        return frozenset() if self._shape is None else frozenset(self._shape.unnamed(document))

    async def migrate(self, key: SessionKey) -> bool:
        """See `StateReader.migrate`."""
        tries = 0
        while True:
            record = await self._store.load(key)
            if record is None or record.head is None or self._shape is None or record.schema_version == self.target:
                return False
            document, stored = self._read(key, record), _document_of(record)
            missing = object()
            try:
                await self._store.commit(
                    Commit(
                        key=record.head.key,
                        operation_id=new_id(),
                        life=record.head.life,
                        expected_version=record.version,
                        save=True,
                        carries=True,
                        document={n: v for n, v in document.items() if stored.get(n, missing) != v},
                        removed=frozenset(stored.keys() - document.keys()),
                        schema_version=self.target,
                    )
                )
                return True
            except (SessionDeleted, StoreContended, VersionConflict):
                tries += 1
                if tries == TRIES:
                    raise

    async def check_run(self, run: Run, checkpoint: Checkpoint | None) -> str:  # noqa: ARG002 - it has none that it needs
        """See `StateReader.check_run`."""
        record = await self._store.load(run.key)
        if record is None:
            return self.target
        self._read(run.key, record)
        return record.schema_version

    def _read(self, key: SessionKey, record: SessionRecord) -> dict[str, object]:
        """Return a record's document as its program reads it."""
        document, shape = _document_of(record), self._shape
        if shape is None:
            return document
        shape.check_logs(record.logs)
        try:
            if record.schema_version != shape.version:
                return shape.migrate(document, record.schema_version)
            shape.read(document)
        except InvalidInput as error:
            raise SessionLoadFailed(f"{key} has a state that does not fit: {error.message}", key=key) from error
        return document


def _document_of(record: SessionRecord) -> dict[str, object]:
    return {name: value for name, value in record.state.items() if name not in record.logs}
