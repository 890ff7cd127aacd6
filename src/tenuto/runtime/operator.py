"""What an operator sees: the sessions of every tenant."""

from datetime import datetime

from tenuto.model.schedule import Schedule
from tenuto.model.session import ANY_TENANT, Page, SessionFilter, SessionSummary
from tenuto.model.session import SessionStatus as StoredStatus
from tenuto.model.wait import Wait
from tenuto.model.wait import WaitKind as StoredWaitKind
from tenuto.runtime.lifetime import Lifetime
from tenuto.store.bounds import check_word
from tenuto.words import SessionStatus, WaitKind


class Operator:
    """Looks across tenants; what it finds is acted on through `for_tenant`."""

    def __init__(self, lifetime: Lifetime) -> None:
        self._lifetime = lifetime

    async def list(
        self,
        *,
        program: str | None = None,
        status: SessionStatus | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[SessionSummary]:
        """Return a page of the sessions of all tenants, newest first."""
        wanted = SessionFilter(
            tenant=ANY_TENANT,
            agent=program,
            status=None if status is None else StoredStatus(check_word(status, StoredStatus, "status")),
        )
        return await self._lifetime.parts().store.list(wanted, limit=limit, after=after)

    async def waits(
        self,
        *,
        kind: WaitKind | None = None,
        user_id: str | None = None,
        opened_before: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Wait]:
        """Return a page of what the sessions and graphs of all tenants wait for, in the order it was asked for."""
        return await self._lifetime.parts().store.waits.open(
            tenant=ANY_TENANT,
            kind=None if kind is None else check_word(kind, StoredWaitKind, "kind"),
            user_id=user_id,
            opened_before=opened_before,
            limit=limit,
            after=after,
        )

    async def schedules(
        self, *, paused: bool | None = None, limit: int = 50, after: str | None = None
    ) -> Page[Schedule]:
        """Return a page of the schedules of all tenants' sessions, the oldest session first; see `Sessions`."""
        return await self._lifetime.parts().store.schedules.list(
            tenant=ANY_TENANT, paused=paused, limit=limit, after=after
        )
