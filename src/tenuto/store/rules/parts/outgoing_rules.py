"""The outbox: what a commit sends, and how far it has come."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tenuto.clock import to_duration
from tenuto.codec import dumps
from tenuto.errors import DeliveryLost, InvalidInput
from tenuto.ids import new_id
from tenuto.model.outgoing_item import NewOutgoing, Outgoing, OutgoingStatus
from tenuto.model.session import SessionKey
from tenuto.store.rules.encoding import moment
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.plan import Draft, Plan, Script, Write
from tenuto.store.rules.records import RecordReader, key_of, stored_key
from tenuto.store.rules.rows import OutgoingRow, SessionRow, split_row

_FINAL = frozenset({OutgoingStatus.DONE, OutgoingStatus.REFUSED, OutgoingStatus.EXPIRED})


class PackedOutgoing(NamedTuple):
    """An outgoing item, under its own id, with its body as text."""

    given: NewOutgoing
    outbox_id: str
    body: str
    due_at: int | None


def pack_outgoing(given: NewOutgoing, key: SessionKey, where: str) -> PackedOutgoing:
    """Encode an outgoing item and mint its id; it stays within its sender's tenant."""
    if given.target.tenant != key.tenant:
        raise InvalidInput(f"{where} is for {given.target}: {key} can send nothing to another tenant.", key=key)
    if given.delay is not None and given.due_at is not None:
        raise InvalidInput(f"{where} has a due time and a delay; give one of them.")
    body, due_at = dumps(given.body, f"{where}.body"), moment(given.due_at, f"{where}.due_at")
    return PackedOutgoing(given, given.outbox_id or new_id(), body, due_at)


def outgoing_meaning(packed: list[PackedOutgoing]) -> list[Any]:
    """Return what counts for the intent hash."""
    return ["outgoing", [[e.given.kind, *_target(e.given), e.body, e.due_at, e.given.delay] for e in packed]]


def outgoing_writes(draft: Draft, packed: list[PackedOutgoing], writes: list[Write]) -> list[str]:
    """Add the writes of what the commit sends; return the minted ids."""
    row, now = draft.row, draft.found.now
    sent = []
    for each in packed:
        due_at = now + to_duration(each.given.delay or 0) if each.due_at is None else each.due_at
        sent.append(pending_row(each.outbox_id, row, str(each.given.kind), _target(each.given), each.body, due_at, now))
    writes.append(Write("insert_outgoing", sent))
    return [each.outbox_id for each in sent]


def pending_row(
    outbox_id: str, row: SessionRow, kind: str, target: tuple[str, str, str], body: str, due_at: int, now: int
) -> OutgoingRow:
    """Return the row of a new item for the session that is known by these columns."""
    status = str(OutgoingStatus.PENDING)
    return OutgoingRow(outbox_id, row.sid, row.life, kind, *target, body, status, 0, due_at=due_at, created_at=now)


def _target(given: NewOutgoing) -> tuple[str, str, str]:
    return given.target.tenant, str(given.target.kind), given.target.session_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOutgoing:
    """An outgoing item with its sender's row and key, whether that was deleted since, and the time."""

    now: int
    row: OutgoingRow | None = None
    sender: SessionRow | None = None
    key: SessionKey | None = None
    left_behind: bool = False


def gather_outgoing(outbox_id: str, tenant: str | None, now: int | None) -> Script[FoundOutgoing]:
    """Read one outgoing item of a tenant, or of any."""
    ((at,),) = yield "moment", (now,)
    rows = yield "outgoing_by_id", (outbox_id, tenant)
    if not rows:
        return FoundOutgoing(now=at)
    sender, row = split_row(rows[0], OutgoingRow)
    return FoundOutgoing(now=at, row=row, sender=sender, key=key_of(sender), left_behind=sender.life != row.life)


def decide_mark(
    outbox_id: str,
    status: OutgoingStatus,
    expected: OutgoingStatus,
    attempts: int | None,
    retry_in: float | None,
    found: FoundOutgoing,
) -> Plan[Outgoing]:
    """Move an item on if it stands where its deliverer thinks; a try more, and perhaps another time.

    What a deleted session owed goes as soon as it is paid.
    """
    row, key, _ = expected_item(outbox_id, expected, attempts, found)
    due_at = row.due_at if retry_in is None else found.now + to_duration(retry_in)
    new = row._replace(status=str(status), attempts=next_count(row.attempts, "the attempts"), due_at=due_at)
    if found.left_behind and status in _FINAL:
        return Plan(outgoing_of(new, key), [paid(row)])
    change = (new.status, new.attempts, new.due_at, outbox_id, row.status, row.attempts)
    return Plan(outgoing_of(new, key), [Write("mark_outgoing", [change], must=True)])


def expected_item(
    outbox_id: str, expected: OutgoingStatus, attempts: int | None, found: FoundOutgoing
) -> tuple[OutgoingRow, SessionKey, SessionRow]:
    """Return an item, and who sent it, if it is as its deliverer expects it to be."""
    row = found.row
    state = row.status if row else "unknown"
    if row is None or found.key is None or found.sender is None or _differs(row, expected, attempts):
        tried = f" after {row.attempts} attempts" if row and row.status == expected else ""
        raise DeliveryLost(
            f"Outgoing {outbox_id} is {state}{tried}, not as expected; read it again.", outbox_id=outbox_id, found=state
        )
    if expected in _FINAL:
        raise DeliveryLost(f"Outgoing {outbox_id} is {state}, which is final.", outbox_id=outbox_id, found=state)
    return row, found.key, found.sender


def _differs(row: OutgoingRow, expected: OutgoingStatus, attempts: int | None) -> bool:
    return row.status != expected or attempts not in (None, row.attempts)


def paid(row: OutgoingRow) -> Write:
    """Return the write that removes an item whose sender was deleted, once it is settled."""
    return Write("delete_outgoing", [(row.outbox_id, row.status, row.attempts)], must=True)


_OUTGOING = RecordReader(Outgoing, OutgoingRow)


def outgoing_of(row: OutgoingRow, key: SessionKey) -> Outgoing:
    """Read an outgoing item."""
    target = stored_key(row.target_tenant, row.target_kind, row.target_id)
    return _OUTGOING(row, f"outgoing {row.outbox_id}", key=key, target=target)
