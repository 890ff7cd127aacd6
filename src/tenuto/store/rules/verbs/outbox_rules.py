"""The outbox's own verb besides marking: an item that its target will never take."""

from tenuto.codec import JSON, encode
from tenuto.model.event import EventType
from tenuto.model.outgoing_item import Outgoing, OutgoingStatus
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.outgoing_rules import FoundOutgoing, expected_item, outgoing_of, paid
from tenuto.store.rules.plan import Plan, Write
from tenuto.store.rules.verbs.inbox_rules import with_event


def decide_refuse_outgoing(outbox_id: str, error: JSON, attempts: int | None, found: FoundOutgoing) -> Plan[Outgoing]:
    """Settle an item as refused, and report it in its sender's stream; that of a deleted sender goes without a word."""
    row, key, sender = expected_item(outbox_id, OutgoingStatus.PENDING, attempts, found)
    tried = next_count(row.attempts, "the attempts")
    new = row._replace(status=str(OutgoingStatus.REFUSED), attempts=tried, body=encode({"error": error}))
    if found.left_behind or not sender.alive:
        return Plan(outgoing_of(new, key), [paid(row)])
    change = (tried, new.body, outbox_id, row.status, row.attempts)
    plan = Plan(outgoing_of(new, key), [Write("refuse_outgoing", [change], must=True)])
    told: dict[str, JSON] = {"outbox_id": outbox_id, "kind": row.kind, "session_id": row.target_id, "error": error}
    return with_event(plan, key, sender, found.now, EventType.OUTGOING_REFUSED, told, None)
