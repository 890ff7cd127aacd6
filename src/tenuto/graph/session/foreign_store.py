"""A user's own session store: four methods are enough, more of them enable what needs them."""

import inspect
from typing import Any, Protocol, runtime_checkable

from tenuto.errors import InvalidInput
from tenuto.model.session import SessionRecord
from tenuto.words import Concurrency

LOCKS = ("acquire_lock", "release_lock")


@runtime_checkable
class SessionStore(Protocol):
    """Keeps session records under their ids.

    A record has `session_id`, `state`, `schema_version`; a store that keeps versions sets `version` on what it loads
    and takes `expected_version` in `save`, raising `VersionConflict` where they differ. One that can lock has
    `acquire_lock(session_id)` and `release_lock(session_id)`.
    """

    async def load(self, session_id: str) -> SessionRecord | None:
        """Return the record, or None."""
        ...

    async def save(self, session_id: str, record: SessionRecord) -> Any:
        """Write the record, and replace the stored one."""
        ...

    async def delete(self, session_id: str) -> Any:
        """Remove the record; removing one that does not exist is fine."""
        ...

    async def list(self, filter: Any = None) -> Any:  # noqa: A002 - the protocol's own name
        """Return summaries without state."""
        ...


def default_concurrency(store: Any) -> Concurrency:
    """Return how a store of the user's own guards a session, if the graph does not say: as well as it can.

    One that can lock is `exclusive`, one that compares versions `optimistic`. For any other the runs of this process
    wait for each other (`ProcessLocks`), which is all that can be done without its help.
    """
    compares = "expected_version" in inspect.signature(store.save).parameters
    return "optimistic" if compares and not can_lock(store) else "exclusive"


def can_lock(store: Any) -> bool:
    """Return whether a store can lock a session."""
    return all(callable(getattr(store, name, None)) for name in LOCKS)


def check_session_store(store: Any, concurrency: Concurrency | None) -> None:
    """Refuse an object that lacks a method it needs, and name what is missing."""
    missing = [name for name in ("load", "save", "delete", "list") if not callable(getattr(store, name, None))]
    if missing:
        raise InvalidInput(
            f"{type(store).__name__} is not a session store: it has no {', no '.join(missing)}.", missing=missing
        )
    if concurrency == "exclusive":
        locks = [name for name in LOCKS if not callable(getattr(store, name, None))]
        if locks:
            raise InvalidInput(
                f"concurrency='exclusive' needs a store that can lock; {type(store).__name__} has no "
                f"{', no '.join(locks)}. Use Tenuto's own store, or another concurrency.",
                missing=locks,
            )
    if concurrency == "optimistic" and not _takes_version(store.save):
        raise InvalidInput(
            f"concurrency='optimistic' needs a save that takes expected_version; {type(store).__name__}.save does not.",
            missing=["expected_version"],
        )


def _takes_version(save: Any) -> bool:
    parameters = inspect.signature(save).parameters
    return "expected_version" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
