"""A session in a store of the user's own."""

import asyncio
import json
import warnings
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from hashlib import sha256
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import (
    InvalidInput,
    LaneBusy,
    NotJson,
    SessionLoadFailed,
    SessionSaveFailed,
    TenutoError,
    VersionConflict,
)
from tenuto.graph.session.save_error import save_error, session_moved
from tenuto.graph.session.session_plan import LoadedSession, SessionPlan
from tenuto.model.session import SessionKey, SessionRecord
from tenuto.store.held_lanes import HeldLane, refuse_nested


class ForeignSession:
    """A session in a store of the user's own: a save is a separate write, beside the run's commits."""

    def __init__(self, plan: SessionPlan, key: SessionKey, loaded: LoadedSession) -> None:
        self.plan = plan
        self.key = key
        self.loaded = loaded
        self._version = loaded.base.version
        self._mark = _mark_of(loaded.record)

    def marks(self, state: Any) -> dict[str, JSON]:
        """Return what a pause keeps to find out later whether the session was saved with it, or changed since."""
        left = _mark_of(self._record(state).state) if self.plan.auto_save else self._mark
        return {"session_base": self._mark, "session_left": left}

    def _record(self, state: Any) -> SessionRecord:
        return self.plan.record(self.key.session_id, state, self._version + 1)

    async def save(self, state: Any) -> None:
        """Write the whole record; a conflict is the store's own error, anything else is `session_save_failed`."""
        try:
            record = self._record(state)
        except NotJson as error:
            raise save_error(error, self.key, "", state, None) from error
        options = {"expected_version": self._version} if self.plan.concurrency == "optimistic" else {}
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

        The pause is written first and the session after it. After a crash in between, the session still is what the
        run once loaded, and is written now. Anything else is a session that others changed.
        """
        if self._mark == marks.get("session_left"):
            return
        if self._mark == marks.get("session_base") or on_moved == "overwrite":
            await self.save(state)
            return
        if on_moved == "rebase":
            raise InvalidInput("on_moved='rebase' needs the session in Tenuto's own store; use 'overwrite', or cancel.")
        raise session_moved(self.key, None, self._version)


def _mark_of(record: JSON) -> str:
    """Return a hash that is equal for equal records."""
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


async def lock_foreign(plan: SessionPlan, key: SessionKey, stack: AsyncExitStack) -> None:
    """Take the lock of a user's own store until the stack is closed, if the graph works exclusively."""
    if plan.concurrency != "exclusive":
        return
    refuse_nested(plan.store, key)
    try:
        async with asyncio.timeout(plan.lane_wait):
            await plan.locks.acquire_lock(plan.address(key))
    except TenutoError:
        raise
    except TimeoutError as error:
        message = f"{key} was locked by others for {plan.lane_wait} s."
        raise LaneBusy(message, key=key, owner="", generation=0, expires_at=None) from error
    except Exception as error:
        raise SessionLoadFailed(f"{key} could not be locked: {error!r}", key=key) from error
    held = HeldLane()
    held.hold(plan.store, key)
    held.enter()
    stack.push_async_callback(_unlock, plan, key, held)


async def _unlock(plan: SessionPlan, key: SessionKey, held: HeldLane) -> None:
    held.release()
    try:
        await plan.locks.release_lock(plan.address(key))
    except Exception as error:
        # A failed unlock does not change the outcome, not even where warnings are errors.
        with suppress(RuntimeWarning):
            warnings.warn(f"{key} could not be unlocked: {error!r}", RuntimeWarning, stacklevel=2)
