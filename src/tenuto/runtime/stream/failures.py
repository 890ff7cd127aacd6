"""Failures of stages: each is one notice, to listeners and to the log, and to the session's stream where that helps."""

import logging
from contextlib import suppress
from typing import Any

from tenuto.errors import Bucket, LaneBusy, OperationConflict, SessionNotFound, StoreError, TenutoError, bucket_of
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.session import SessionKey
from tenuto.runtime.stream.notices import ActionFailed, HookFailed, Listeners, LoadFailed, Notice, SaveFailed, failure
from tenuto.store.store import Store
from tenuto.writing.error_record import category_of, shown, text_of

_log = logging.getLogger("tenuto.runtime")

_REPORTED = "_tenuto_reported"
"""The mark of an error that a stage has reported, so that the verb around the stage does not report it again."""

_BEFORE_ANY_STAGE = (LaneBusy, OperationConflict)


class Failures:
    """Reports failures: stages report their own, and a verb the rest, such as a load or an unknown run."""

    def __init__(self, store: Store, listeners: Listeners) -> None:
        self._store = store
        self._listeners = listeners

    async def load(self, key: SessionKey, error: Exception, stage: str = "load", *, streams: bool = True) -> None:
        """Report that a session could not be loaded, or that a hook refused it then."""
        await self.report(LoadFailed(key=key, stage=stage, **failure(error)), error, streams=streams)

    async def save(self, key: SessionKey, error: Exception, stage: str = "save", *, streams: bool = True) -> None:
        """Report that the changes of a session could not be saved, or that a hook refused them."""
        await self.report(SaveFailed(key=key, stage=stage, **failure(error)), error, streams=streams)

    async def hook(self, key: SessionKey, error: Exception, stage: str) -> None:
        """Report that a hook failed after the commit."""
        await self.report(HookFailed(key=key, stage=stage, error=shown(error)), error)

    async def verb(self, key: SessionKey, action: str, error: Exception, *, streams: bool = True) -> None:
        """Report what a verb raised, unless a stage has reported it, or the verb came to no stage."""
        if isinstance(error, _BEFORE_ANY_STAGE) or error.__dict__.get(_REPORTED):
            return
        if isinstance(error, SessionNotFound | StoreError):
            await self.load(key, error, streams=streams)
        else:
            notice = ActionFailed(key=key, stage="action", action=action, **failure(error))
            await self.report(notice, error, streams=streams)

    async def report(self, notice: Notice, error: Exception, *, streams: bool = True) -> None:
        """Report the failure of a stage; with `streams`, in the session's stream too, where it can be written.

        A refusal that the caller can correct writes nothing, as every refusal of input.
        """
        error.__dict__[_REPORTED] = True
        correctable = isinstance(error, TenutoError) and bucket_of(error) is Bucket.USER_CORRECTABLE
        level = logging.INFO if correctable else logging.WARNING
        key, data = notice.key, notice.data()
        extra = {"session_id": key.session_id, "tenant": key.tenant, "stage": data.get("stage")}
        what = (key, data.get("stage"), category_of(error), text_of(error))
        _log.log(level, "%s: the stage %s failed: %s: %s", *what, extra=extra)
        if streams and not correctable and not (isinstance(error, StoreError) and error.retryable):
            await self._write(notice)
        await self._listeners.tell(notice)

    async def _write(self, notice: Notice) -> None:
        """Write a failure to the stream of its session; one that is gone, or whose store fails, has none."""
        with suppress(TenutoError):
            stamp: Any = await self._store.stamp(notice.key)
            if stamp is not None:
                events = (notice.event(),)
                await self._store.commit(Commit(key=notice.key, operation_id=new_id(), life=stamp.life, events=events))
