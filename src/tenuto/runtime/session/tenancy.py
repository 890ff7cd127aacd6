"""The tenant in which a runtime's verbs read and write."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.ids import check_tenant
from tenuto.model.session import ANY_TENANT, Key, SessionFilter, SessionKey, Tenant, session_key
from tenuto.store.store import Store


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The tenant of plain ids, and of ids of runs, waits and inputs; if `bound`, keys of others are refused."""

    tenant: Tenant = ""
    bound: bool = False

    @property
    def home(self) -> str:
        """Return the tenant of plain and minted ids; with `ANY_TENANT` it is the default one."""
        return "" if self.tenant is ANY_TENANT else str(self.tenant)

    def narrowed(self, tenant: Tenant) -> "Tenancy":
        """Return the tenancy of a view; one that is bound to a tenant cannot change it."""
        if self.bound and tenant != self.tenant:
            raise InvalidInput(
                f"This runtime is bound to tenant {self.tenant!r}; call for_tenant() on the unbound runtime instead."
            )
        if tenant is ANY_TENANT:
            return Tenancy(ANY_TENANT)
        return Tenancy(check_tenant(tenant), bound=True)

    def key(self, name: Key) -> SessionKey:
        """Return the full key of a session; one of another tenant is refused, whether or not it exists."""
        if type(name) is str:
            return session_key(name, self.home)
        if not isinstance(name, SessionKey):
            return SessionKey(name, tenant=self.home)
        if self.bound and name.tenant != self.tenant:
            raise InvalidInput(
                f"The {name} belongs to another tenant; this runtime is bound to tenant {self.tenant!r}.", key=name
            )
        return name

    def filter(self, wanted: Any) -> Any:
        """Return the filter of a list, restricted to the tenant."""
        wanted = {} if wanted is None else wanted
        if not isinstance(wanted, SessionFilter | Mapping):
            raise InvalidInput(f"A filter must be a SessionFilter or a mapping, got {type(wanted).__name__}.")
        tenant = wanted.tenant if isinstance(wanted, SessionFilter) else wanted.get("tenant", "")
        if tenant == "":
            tenant = self.tenant
        elif self.bound and tenant != self.tenant:
            raise InvalidInput(f"This runtime is bound to tenant {self.tenant!r} and lists only its sessions.")
        if isinstance(wanted, SessionFilter):
            return replace(wanted, tenant=tenant)
        return {**wanted, "tenant": tenant}

    def check_everywhere(self, verb: str) -> None:
        """Refuse a worker's verb on a runtime that is bound to one tenant."""
        if self.bound:
            raise InvalidInput(f"`{verb}` does what is due in every tenant; call it on the unbound runtime.")


async def stands_above(store: Store, above: SessionKey, key: SessionKey) -> bool:
    """Return whether a session is another's ancestor: its parent, its parent's parent, and so on up to the root."""
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
