"""A graph that reads its stored sessions and runs."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from tenuto.errors import (
    CheckpointNotFound,
    InvalidInput,
    SessionDeleted,
    SessionLoadFailed,
    StoreContended,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.checkpoint.stored_run import stored_run
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.invocation.restore import restore
from tenuto.graph.session.own_session import OwnSession
from tenuto.graph.session.session_plan import LoadedSession
from tenuto.graph.session.state_cache import StateCache
from tenuto.ids import new_id
from tenuto.model.checkpoint import Checkpoint
from tenuto.model.commit import EndRun
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import SessionKey
from tenuto.states.state_reader import TRIES
from tenuto.store.store import Store
from tenuto.writing.changes import RunWrite
from tenuto.writing.run_writer import RunWriter


class GraphReader:
    """A graph, on this store, whatever store it was built with."""

    def __init__(self, graph: GraphPlan[Any], store: Store, *, owner: str, name: str | None = None) -> None:
        self.name = graph.name if name is None else name
        self._store = store
        self._plan = graph.session.bound_to(store, cache=StateCache(limit=0), owner=owner)
        self.graph = replace(graph, session=self._plan, store=store)

    @property
    def target(self) -> str:
        """See `StateReader.target`."""
        return self._plan.schema_version

    @property
    def run_target(self) -> str:
        """See `StateReader.run_target`."""
        version: str = self.graph.kind.schema_version
        return version

    def blocked(self, version: str) -> TenutoError | None:
        """See `StateReader.blocked`."""
        if version != self.target:
            try:
                self._plan.migrations.chain(version, self.target)
            except TenutoError as error:
                return error
        return None

    async def check(self, key: SessionKey) -> frozenset[str] | None:
        """See `StateReader.check`."""
        loaded = await self._load(key)
        if loaded.rewrite is not None:
            OwnSession(self._plan, key, loaded).migration()
        return loaded.unnamed if loaded.existed else None

    async def migrate(self, key: SessionKey) -> bool:
        """See `StateReader.migrate`."""
        tries = 0
        while True:
            loaded = await self._load(key)
            if loaded.rewrite is None:
                return False
            try:
                await _write(self._store, OwnSession(self._plan, key, loaded))
                return True
            except (SessionDeleted, StoreContended, VersionConflict):
                tries += 1
                if tries == TRIES:
                    raise

    async def check_run(self, run: Run, checkpoint: Checkpoint | None) -> str:
        """See `StateReader.check_run`."""
        if checkpoint is None:
            raise CheckpointNotFound("The run has no record left to resume from.", invocation_id=run.invocation_id)
        restore(await stored_run(self._store, run, checkpoint), self.graph)
        return checkpoint.schema_version

    async def _load(self, key: SessionKey) -> LoadedSession:
        loaded = await self._plan.load(key)
        if loaded.rewrite is not None:
            fields = self.graph.kind.model_fields
            absent = [n for n, f in self._plan.fields.items() if f not in loaded.values and fields[f].is_required()]
            if absent:
                raise SessionLoadFailed(
                    f"{key} lacks {', '.join(absent)} after its migrations, which {self.graph.kind.__name__} requires; "
                    "let a migration add it, or give it a default.",
                    key=key,
                    fields=absent,
                )
        return loaded


def check_declared(graph: GraphPlan[Any]) -> None:
    """Refuse a graph that does not say what its sessions keep, or keeps them in a store of the user's own."""
    plan = graph.session
    if not plan.declared:
        raise InvalidInput(f"Graph {graph.name!r} does not say what its sessions keep; give it with_session_state.")
    if plan.store is not None and not isinstance(plan.store, Store):
        raise InvalidInput(
            f"Graph {graph.name!r} keeps its sessions in a {type(plan.store).__name__}, which only its own tools can "
            "list; this works on Tenuto's stores."
        )


async def _write(store: Store, session: OwnSession) -> None:
    """Write a session as its migrations left it; long logs are written in slices that the last commit shows."""
    turn = RunWriter(store, session.key, session.loaded.life)
    turn.stand(session.loaded.base)
    invocation_id = f"migration-{new_id()}"
    turn.begins(invocation_id=invocation_id, correlation_id=invocation_id)
    logs, save = session.migration()
    try:
        await turn.write(RunWrite(logs=logs, save=save, end=EndRun(status=RunStatus.COMPLETED)))
    except TenutoError:
        if turn.begun:
            with suppress(TenutoError):
                await turn.write(RunWrite(end=EndRun(status=RunStatus.FAILED)))
        raise
    finally:
        turn.release()
