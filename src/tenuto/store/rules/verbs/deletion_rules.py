"""How a session ends: its tombstone, what it owes to others, and the work of a cascade, in rows until it is done."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from tenuto.codec import encode, loads
from tenuto.errors import StoredDataCorrupt
from tenuto.ids import derived_id
from tenuto.model.outgoing_item import CHILD_LOST, OutboxKind
from tenuto.model.report import DeleteReport
from tenuto.model.session import Kind, SessionKey, SessionStatus
from tenuto.model.wait import WaitKind
from tenuto.store.rules.limits import next_count
from tenuto.store.rules.parts.outgoing_rules import pending_row
from tenuto.store.rules.plan import COUNTED, Ask, Found, Plan, Script, Write, gather
from tenuto.store.rules.records import key_of
from tenuto.store.rules.rows import DeletionRow, OutgoingRow, SessionRow, first_row
from tenuto.store.rules.session_row import HEADLESS, session_write

OPEN = "open"
DONE = "done"
_NAMES = ("children", "forks")
_REMOVAL = {"outgoing": "leave_debts_of"}


class Buried(NamedTuple):
    """What a tombstone ended, and which row and life of the id were ended last."""

    report: DeleteReport
    sid: int = 0
    life: int = 0


def decide_delete(cascade: bool, seed: str, found: Found) -> Plan[Buried]:
    """End the id's life: a tombstone keeps its numbers, everything else is unreachable from here on.

    A cascade notes all it has to do with the tombstone, itself included: whoever repeats it continues from there. The
    ids of what is owed to a parent follow from `seed`, a new id.
    """
    row = found.session
    if row is None:
        return Plan(Buried(DeleteReport()))
    if not _has_anything(row, found):
        return Plan(Buried(DeleteReport(), row.sid, row.life - 1))
    report, writes = _bury(row, seed, found)
    if cascade:
        own = DeletionRow(row.sid, row.life, row.sid, row.life, OPEN, _text(report), found.now)
        writes.append(Write("insert_deletions", [own, *_noted(own, found.children, found.now)]))
    return Plan(Buried(report, row.sid, row.life), writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTarget:
    """A session that a cascade has to end: how it stands, how far the work is, and its children of that life."""

    found: Found
    deletion: DeletionRow | None
    children: list[SessionRow]


def gather_target(key: SessionKey, deletion: DeletionRow, now: int | None) -> Script[FoundTarget]:
    """Read a target of a cascade, and its children after it."""
    found = yield from gather(Ask(key=key, relatives=True), now)
    noted = first_row(DeletionRow, (yield "deletion_by_target", deletion.target))
    rows = yield "children_of", (key.tenant, key.kind, key.session_id, deletion.life, 0)
    return FoundTarget(found=found, deletion=noted, children=[SessionRow(*row) for row in rows])


def decide_target(seed: str, target: FoundTarget) -> Plan[None]:
    """End a target in the life recorded, and note its children; one that lives another life is left alone."""
    found, deletion = target.found, target.deletion
    row = found.session
    if deletion is None or deletion.status == DONE or row is None or row.life != deletion.life:
        return Plan(None)
    if not _has_anything(row, found):
        return Plan(None)
    report, writes = _bury(row, seed, found)
    writes.append(_move(deletion, deletion._replace(report=_text(report), at=found.now)))
    if found.children:
        writes.append(Write("insert_deletions", _noted(deletion, found.children, found.now)))
    return Plan(None, writes)


def decide_done(swept: DeleteReport, target: FoundTarget) -> Plan[None]:
    """Be done with a target that was ended and swept.

    A child that was begun while its parent was ended is noted here: none can be begun after it.
    """
    deletion, now = target.deletion, target.found.now
    if deletion is None or deletion.status == DONE:
        return Plan(None)
    report = summed([DeleteReport() if deletion.report is None else report_of(deletion.report), swept])
    writes = [_move(deletion, deletion._replace(status=DONE, report=_text(report), at=now))]
    if target.children:
        writes.append(Write("insert_deletions", _noted(deletion, target.children, now)))
    return Plan(None, writes)


def summed(reports: Iterable[DeleteReport]) -> DeleteReport:
    """Return the sum of reports; the children are those of the first."""
    total, *others = [*reports] or [DeleteReport()]
    for each in others:
        counts = {f.name: getattr(total, f.name) + getattr(each, f.name) for f in fields(each) if f.name != "children"}
        total = replace(total, **counts)
    return total


def report_of(text: str) -> DeleteReport:
    """Read a stored report."""
    stored: dict[str, Any] = loads(text, "report of a delete")
    for name in _NAMES:
        stored[name] = tuple(SessionKey(each, tenant=tenant, kind=Kind(kind)) for tenant, kind, each in stored[name])
    return DeleteReport(**stored)


def _text(report: DeleteReport) -> str:
    stored = {f.name: getattr(report, f.name) for f in fields(report)}
    names = {name: [[key.tenant, str(key.kind), key.session_id] for key in stored[name]] for name in _NAMES}
    return encode({**stored, **names})


def _noted(deletion: DeletionRow, children: Iterable[SessionRow], now: int) -> list[DeletionRow]:
    return [
        DeletionRow(deletion.root, deletion.root_life, child.sid, child.life, OPEN, None, now) for child in children
    ]


def _move(old: DeletionRow, new: DeletionRow) -> Write:
    return Write("move_deletions", [(new.status, new.report, new.at, *old.target)], must=True)


def _has_anything(row: SessionRow, found: Found) -> bool:
    return bool(row.alive or row.armed or any(found.counts.values()))


def _bury(row: SessionRow, seed: str, found: Found) -> tuple[DeleteReport, list[Write]]:
    """Return the tombstone, with everything that goes at once and what is owed to the parent that waits."""
    event = next_count(row.event_seq, "the event number")
    tombstone = row._replace(
        life=next_count(row.life, "the life"),
        status=str(SessionStatus.DELETED),
        commit_no=next_count(row.commit_no, "the commit number"),
        event_seq=event,
        event_floor=event,
        generation=next_count(row.generation, "the generation"),
        updated_at=max(row.updated_at, found.now),
        **HEADLESS,
    )
    writes = [
        session_write(found, tombstone),
        *(Write(_REMOVAL.get(table, f"delete_{table}_of"), [(row.sid,)]) for table in (*COUNTED, "profiles")),
    ]
    report = DeleteReport(
        sessions=1, children=tuple(map(key_of, found.children)), forks=tuple(map(key_of, found.forks)), **found.counts
    )
    if owed := _owed(row, seed, found):
        writes.append(Write("insert_outgoing", owed))
    return report, writes


def _owed(row: SessionRow, seed: str, found: Found) -> list[OutgoingRow]:
    """Return what informs a waiting parent that its child is gone; a result that is on its way is enough."""
    sent = {_parts(debt.body).get("token") for debt in found.debts}
    told = {"category": CHILD_LOST, "message": "The child was deleted."}
    owed: list[OutgoingRow] = []
    for wait in found.waited_for:
        named = _parts(wait.metadata)
        token = named.get("token")
        if wait.kind != WaitKind.CHILD or named.get("child") != row.session_id or token in sent:
            continue
        assert found.profile is not None
        assert found.profile.parent is not None
        body = encode({"token": token, "child": row.session_id, "status": "deleted", "error": told})
        parent, outbox_id = (row.tenant, row.kind, found.profile.parent), derived_id(seed, wait.wait_id)
        owed.append(pending_row(outbox_id, row, OutboxKind.RESULT, parent, body, found.now, found.now))
    return owed


def _parts(text: str | None) -> Mapping[str, Any]:
    """Read what names a child; a row that cannot be read must not stop a delete, and names none."""
    with suppress(StoredDataCorrupt):
        found = loads(text or "{}", "metadata")
        return found if isinstance(found, Mapping) else {}
    return {}
