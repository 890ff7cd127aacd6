"""A session in the store its run is written to."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.model.session import SessionKey
from tenuto.writing.changes import Base, LogChange, Save


class OwnSession:
    """A session in the store the run itself is written to: a save is part of a commit.

    `removed` names stored fields that the next save removes.
    """

    def __init__(
        self, plan: SessionPlan, key: SessionKey, loaded: LoadedSession, removed: frozenset[str] = frozenset()
    ) -> None:
        self.plan = plan
        self.key = key
        self.loaded = loaded
        self._removed = removed
        self._values: Mapping[str, Any] = loaded.values
        self._size = loaded.size
        self._owner = None if loaded.owned else plan.owner

    @property
    def overwrites(self) -> bool:
        """Whether a save overwrites what others wrote meanwhile."""
        return self.plan.concurrency == "last_write_wins"

    def save_of(self, state: Any) -> Save:
        """Return what saving this state does to the head."""
        plan = self.plan
        return Save(
            document=plan.document(state, self._values),
            whole=lambda: plan.document(state),
            logs=plan.logs,
            schema_version=plan.schema_version,
            removed=self._removed,
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

    def migrated(self) -> None:
        """Note that the session is written as its migrations left it."""
        self.loaded = self.loaded._replace(rewrite=None)

    def migrate_with_save(self) -> None:
        """Let the next save remove what the migrations removed: others came first, and it overwrites theirs."""
        assert self.loaded.rewrite is not None
        self._removed = self.loaded.rewrite.removed

    def saved(self, life: int | None, base: Base, state: Any, added: Iterable[Any]) -> None:
        """Note that the session is stored as in this state, with these entries added to its logs."""
        values = self.plan.values(state)
        self._values = values
        self._owner = None
        self._removed = frozenset()
        self._size += sum(len(to_json(items)) for items in added if items)
        assert life is not None
        self.plan.remember(self.key, life, base, values, self._size)

    def forget(self) -> None:
        """Load the session from the store next time: a node that failed may have changed a value in place."""
        self.plan.cache.drop(self.key)
