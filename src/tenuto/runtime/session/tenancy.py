"""In which tenant a runtime's verbs ask and create."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.ids import check_tenant
from tenuto.model.session import ANY_TENANT, Key, SessionFilter, SessionKey, Tenant, session_key
from tenuto.store.store import Store


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The tenant of plain ids, and of ids of runs, waits and inputs; a `bound` one takes no key of another."""

    tenant: Tenant = ""
    bound: bool = False

    @property
    def home(self) -> str:
        """Return the tenant of plain and minted ids; asked across tenants it is the default one."""
        return "" if self.tenant is ANY_TENANT else str(self.tenant)

    def narrowed(self, tenant: Tenant) -> "Tenancy":
        """Return the tenancy of a view; whoever is bound to a tenant stays in it."""
        if self.bound and tenant != self.tenant:
            raise InvalidInput(
                f"This runtime is for tenant {self.tenant!r} alone; take the view of the runtime itself."
            )
        if tenant is ANY_TENANT:
            return Tenancy(ANY_TENANT)
        return Tenancy(check_tenant(tenant), bound=True)

    def key(self, given: Key) -> SessionKey:
        """Return the full key of a session; one of a tenant that is not asked in is refused, whether or not it is."""
        if type(given) is str:
            return session_key(given, self.home)
        if not isinstance(given, SessionKey):
            return SessionKey(given, tenant=self.home)
        if self.bound and given.tenant != self.tenant:
            raise InvalidInput(
                f"The {given} is of another tenant than {self.tenant!r}, where it is asked for.", key=given
            )
        return given

    def filter(self, given: Any) -> Any:
        """Return what a list is to show: what is asked for within the tenant."""
        given = {} if given is None else given
        if not isinstance(given, SessionFilter | Mapping):
            raise InvalidInput(f"A filter is a SessionFilter or a mapping, got {type(given).__name__}.")
        tenant = given.tenant if isinstance(given, SessionFilter) else given.get("tenant", "")
        if tenant == "":
            tenant = self.tenant
        elif self.bound and tenant != self.tenant:
            raise InvalidInput(f"This runtime lists the sessions of tenant {self.tenant!r} alone.")
        if isinstance(given, SessionFilter):
            return replace(given, tenant=tenant)
        return {**given, "tenant": tenant}

    def check_everywhere(self, verb: str) -> None:
        """Refuse a worker's verb where only one tenant is asked in."""
        if self.bound:
            raise InvalidInput(f"`{verb}` does what is due in every tenant; call it on the runtime itself.")


async def stands_above(store: Store, above: SessionKey, key: SessionKey) -> bool:
    """Tell whether a session is another's ancestor: its parent, its parent's parent, and so on up to the root."""
    seen: set[SessionKey] = set()
    while above.tenant == key.tenant and key not in seen:
        seen.add(key)
        head = await store.head(key)
        if head is None or head.profile.parent is None:
            return False
        if above.session_id in (head.profile.parent, head.profile.root):
            return above.kind == key.kind
        key = replace(key, session_id=head.profile.parent)
    return False
