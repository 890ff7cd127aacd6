"""The tree of sessions within a tenant."""

from dataclasses import replace

from tenuto.model.session import SessionKey
from tenuto.store.store import Store


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
