"""How a run keeps its session: in its own commits, or, in a store of the user's own, beside them."""

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from pydantic_core import to_json

from tenuto.codec import JSON
from tenuto.errors import (
    InvalidHistory,
    InvalidInput,
    InvocationExists,
    LaneLost,
    NotJson,
    RunNotLive,
    SessionDeleted,
    SessionMoved,
    SessionSaveFailed,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.session.session_plan import Concurrency, Loaded, SessionPlan
from tenuto.model.session import SessionKey, SessionRecord
from tenuto.writing.changes import Base, LogChange, Save


class OwnSession:
    """A session in the store the run itself is written to: a save is part of a commit."""

    def __init__(self, plan: SessionPlan, key: SessionKey, loaded: Loaded) -> None:
        self.plan = plan
        self.key = key
        self.loaded = loaded
        self.removed: frozenset[str] = frozenset()
        self._values: Mapping[str, Any] = loaded.values
        self._size = loaded.size
        self._owner = None if loaded.owned else plan.owner

    @property
    def overwrites(self) -> bool:
        """Whether a session that moved on is written over."""
        return self.plan.concurrency is Concurrency.LAST_WRITE_WINS

    def save_of(self, state: Any) -> Save:
        """Return what saving this state does to the head."""
        plan = self.plan
        return Save(
            document=plan.document(state, self._values),
            whole=lambda: plan.document(state),
            logs=plan.logs,
            schema_version=plan.schema_version,
            removed=self.removed,
            overwrites=self.overwrites,
            owner=self._owner,
        )

    def migration(self) -> tuple[dict[str, LogChange], Save]:
        """Return what writes the session as its migrations left it."""
        plan, loaded = self.plan, self.loaded
        assert loaded.rewrite is not None
        document = plan.plain(loaded.values)
        logs = {
            name: LogChange(items=plan.plain_log(name, loaded.values)[kept:], anew=True, kept=kept)
            for name, kept in loaded.rewrite.logs.items()
        }
        save = Save(
            document=document,
            whole=lambda: document,
            logs=plan.logs,
            schema_version=plan.schema_version,
            removed=loaded.rewrite.removed,
            carries=True,
            owner=self._owner,
        )
        return logs, save

    def saved(self, turn: Any, state: Any, added: int) -> None:
        """Note that the session now is as in this state."""
        values = self.plan.values(state)
        self._values = values
        self._owner = None
        self.removed = frozenset()
        self._size += added
        assert turn.life is not None
        self.plan.remember(self.key, turn.life, turn.base, values, self._size)

    def forget(self) -> None:
        """Load the session anew next time: a node that failed may have changed a value in place."""
        self.plan.warm.drop(self.key)


class ForeignSession:
    """A session in a store of the user's own: its save is a write of its own."""

    def __init__(self, plan: SessionPlan, key: SessionKey, loaded: Loaded) -> None:
        self.plan = plan
        self.key = key
        self.loaded = loaded
        self._version = loaded.base.version
        self._mark = _mark_of(loaded.record)

    def marks(self, state: Any) -> dict[str, JSON]:
        """Return what a pause keeps to tell later whether the session was saved with it, or moved on."""
        left = _mark_of(self._record(state).state) if self.plan.auto_save else self._mark
        return {"session_base": self._mark, "session_left": left}

    def _record(self, state: Any) -> SessionRecord:
        return self.plan.record(self.key.session_id, state, self._version + 1)

    async def save(self, state: Any) -> None:
        """Write the whole record; a conflict is the store's own word, anything else is `session_save_failed`."""
        try:
            record = self._record(state)
        except NotJson as error:
            raise save_error(error, self.key, "", state, None) from error
        options = {"expected_version": self._version} if self.plan.concurrency is Concurrency.OPTIMISTIC else {}
        try:
            result = await self.plan.store.save(self.plan.address(self.key), record, **options)
        except VersionConflict as error:
            raise save_error(error, self.key, "", state, None) from error
        except Exception as error:
            raise SessionSaveFailed(
                f"{self.key} could not be saved: {error}",
                key=self.key,
                operation_id="",
                final_state=state,
                repeat=partial(self.save, state),
            ) from error
        self._mark = _mark_of(record.state)
        version = getattr(result, "version", result)
        self._version = version if type(version) is int else self._version + 1

    async def repair(self, state: Any, marks: Mapping[str, JSON], on_moved: str | None) -> None:
        """Bring the session of a pause up to date before it is resumed.

        The pause is written first and the session after it; a crash in between is found here, because the session still
        is what the run once loaded, and is made good by writing it now. Anything else is a session that moved on.
        """
        if self._mark == marks.get("session_left"):
            return
        if self._mark == marks.get("session_base") or on_moved == "overwrite":
            await self.save(state)
            return
        if on_moved == "rebase":
            raise InvalidInput("on_moved='rebase' needs the session in Tenuto's own store; use 'overwrite', or cancel.")
        raise moved(self.key, None, self._version)


def _mark_of(record: JSON) -> str:
    """Return what tells one record of a session from another."""
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def moved(key: SessionKey, expected: int | None, found: int | None) -> SessionMoved:
    """Say that the session is not what the invocation left."""
    return SessionMoved(
        f"{key} was changed by other turns since this invocation stopped (version {expected}, now {found}); "
        "nothing ran. Resume with on_moved='rebase' or on_moved='overwrite', or cancel it.",
        key=key,
        expected=expected,
        found=found,
    )


def size_of(items: Any) -> int:
    """Return about how much text entries are."""
    return len(to_json(items)) if items else 0


def base_of(run: Any) -> Base:
    """Return where a stored run stands to its session."""
    return Base(version=run.base_version or 0, ends=run.base_ends)


def path_of(error: TenutoError) -> dict[str, str]:
    """Return the path of a value that could not be kept, for the error that reports it."""
    path = error.details().get("path")
    return {} if path is None else {"path": path}


def save_error(error: TenutoError, key: SessionKey, operation_id: str, state: Any, repeat: Any) -> TenutoError:
    """Return what a failed save is to the caller: a conflict stays one, and whatever it is carries the final state."""
    if isinstance(error, LaneLost | RunNotLive | InvalidHistory):
        return error  # another runner goes on with it, or it never will be right; there is nothing to repeat
    if isinstance(error, VersionConflict | SessionDeleted | InvocationExists):  # repeating will not help
        return type(error)(error.message, **error.details(), final_state=state, operation_id=operation_id)
    then = "repeat only the save, with save_again." if error.retryable else "to repeat the save would not help."
    return SessionSaveFailed(
        f"{key} could not be saved: {error.message} The run itself is done; {then}",
        key=key,
        **path_of(error),
        operation_id=operation_id,
        final_state=state,
        repeat=repeat,
    )
