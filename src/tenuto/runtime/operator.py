"""What an operator sees: the sessions of every tenant."""

from tenuto.model.session import ANY_TENANT, Page, SessionFilter, SessionSummary
from tenuto.model.session import SessionStatus as StoredStatus
from tenuto.runtime.lifetime import Lifetime
from tenuto.store.bounds import check_word
from tenuto.words import SessionStatus


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
