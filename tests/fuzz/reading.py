"""Everything that can be read of a store, as plain values: what two readers of one store must agree on."""

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from typing import Any

from tenuto.model.session import ANY_TENANT, SessionKey
from tenuto.store.store import Store


def plain(value: Any) -> Any:
    """Return a record as mappings, lists and scalars."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, dict) or hasattr(value, "items"):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, frozenset | set):
        return sorted(map(plain, value))
    return value


async def read_all(store: Store, only: Collection[str] = ()) -> dict[str, Any]:
    """Read a store through every verb that reads, all of it or some sessions; an error says what was let in."""
    found: dict[str, Any] = {}
    page = await store.list({"tenant": ANY_TENANT, "kind": None})
    assert page.damaged == (), page.damaged
    found["list"] = plain(list(page))
    found["waits"] = plain(await store.waits.open(tenant=ANY_TENANT, limit=10_000))
    found["pending"] = plain(await store.outbox.pending(limit=10_000))
    found["due"] = plain(list(await store.inbox.due(limit=10_000)))
    found["schedules"] = plain(await store.schedules.list(tenant=ANY_TENANT, limit=10_000))
    found["fires"] = plain(await store.schedules.due(limit=10_000))
    found["next"] = [await store.outbox.next_due(), await store.inbox.next_due()]
    for summary in page:
        assert summary.damage is None, summary.damage
        if not only or summary.session_id in only:
            found[f"{summary.key}"] = await read_session(store, summary.key)
    return found


def steady(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out what changes by time alone: what is due by now, and whether a lane has lapsed."""
    kept = {name: part for name, part in found.items() if name not in ("due", "pending", "fires")}
    for part in kept.values():
        if isinstance(part, dict) and part.get("lane"):
            part["lane"] = {name: value for name, value in part["lane"].items() if name != "state"}
    return kept


async def read_session(store: Store, key: SessionKey) -> dict[str, Any]:
    """Read one session, with all that belongs to it."""
    runs = await store.runs.of_session(key, limit=10_000)
    waits = await store.waits.of_session(key, status=None)
    return {
        "record": plain(await store.load(key)),
        "runs": plain(runs),
        "checkpoints": plain(await store.checkpoints.of_session(key, limit=10_000)),
        "waits": plain(waits),
        "inbox": plain(await store.inbox.list(key, limit=10_000)),
        "effects": plain(await store.effects.list(key, limit=10_000)),
        "schedules": plain(await store.schedules.of_session(key)),
        "sent": plain(await store.outbox.of_session(key, limit=10_000)),
        "events": plain((await store.events.read(key, after=(await _floor(store, key)), limit=10_000)).events),
        "usage": plain(await store.usage.report(key)),
        "lane": plain(await store.lanes.inspect(key)),
    }


async def _floor(store: Store, key: SessionKey) -> int:
    head = await store.head(key)
    return head.event_floor if head else 0
