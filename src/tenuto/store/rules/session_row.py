"""The session row: how it begins, how it is guarded, and the refusals every verb shares."""

from collections.abc import Mapping
from typing import Any

from tenuto.clock import to_datetime
from tenuto.codec import encode, loads_map
from tenuto.errors import CommitMoved, OperationConflict, SessionDeleted, VersionConflict
from tenuto.model.commit import Receipt
from tenuto.model.session import Ends, SessionKey, SessionStatus
from tenuto.store.rules.plan import Found, Write
from tenuto.store.rules.records import ends_of, texts_of
from tenuto.store.rules.rows import ReceiptRow, SessionRow

HEADLESS: dict[str, Any] = {
    "alive": 0,
    "preview": None,
    "resume_count": 0,
    "heads": "{}",
    "document": "{}",
    "held": None,
    "current_run": None,
    "armed": 0,
    "nonce": None,
    "holder": None,
    "lane_expires_at": None,
}
"""The columns of a row without a head: of an id that was never saved, and of a tombstone."""


def blank_row(key: SessionKey, found: Found) -> SessionRow:
    """Return the row of an id the store has never seen: no head, all numbers at their start."""
    return SessionRow(
        sid=found.next_sid,
        tenant=key.tenant,
        kind=str(key.kind),
        session_id=key.session_id,
        life=found.life_floor,
        family=found.next_sid,
        status=str(SessionStatus.ACTIVE),
        version=0,
        commit_no=0,
        schema_version="",
        branch_seq=0,
        run_seq=0,
        event_seq=found.event_floor,
        event_floor=found.event_floor,
        generation=0,
        created_at=found.now,
        updated_at=found.now,
        **HEADLESS,
    )


def check_life(key: SessionKey, life: int, row: SessionRow) -> None:
    """Refuse a write that belongs to another life of the id."""
    if life != row.life:
        raise SessionDeleted(
            f"The {key} was deleted since it was loaded (life {life}, now {row.life}); load it again.",
            key=key,
            expected_life=life,
            found_life=row.life,
        )


def check_version(key: SessionKey, expected: int | None, row: SessionRow) -> None:
    """Refuse a write that expects another version; an absent session is found as none, and 0 expects that."""
    version = row.version if row.alive else None
    if expected is not None and expected != (version or 0):
        shown = "absent" if version is None else f"at version {version}"
        raise VersionConflict(
            f"{key} is {shown}, not at version {expected}; load it again and repeat.",
            key=key,
            expected=expected,
            found=version,
        )


def check_commit(key: SessionKey, expected: int | None, row: SessionRow) -> None:
    """Refuse a write that expects the session at another commit."""
    if expected is not None and expected != row.commit_no:
        raise CommitMoved(
            f"{key} is at commit {row.commit_no}, not {expected}; load it again.",
            key=key,
            expected=expected,
            found=row.commit_no,
            counted="commits",
        )


def session_write(found: Found, row: SessionRow, *, free_lane: bool = False) -> Write:
    """Return the guarded write of a session row.

    It lands only if life, commit number, generation, arming and event number are still those found; with
    `free_lane`, only while no runner holds the lane.
    """
    old = found.session
    if old is None:
        return Write("insert_session", [row], must=True)
    counters = (old.life, old.commit_no, old.generation, old.armed, old.event_seq)
    guard = (old.sid, *counters, 0 if free_lane else 1, found.lease)
    return Write("move_session", [row.changes + guard], must=True)


def receipt_row(
    row: SessionRow, operation_id: str, intent: str, ends: str, now: int, minted: Mapping[str, list[str]]
) -> ReceiptRow:
    """Return the receipt of an operation that leaves the session's row so; `minted` are the ids it made, by part."""
    others = {part: ids for part, ids in minted.items() if part != "waits"} if minted else None
    return ReceiptRow(
        session=row.sid,
        life=row.life,
        operation_id=operation_id,
        intent=intent,
        commit_no=row.commit_no,
        version=row.version,
        generation=row.generation,
        event_seq=row.event_seq,
        ends=ends,
        wait_ids=encode(minted["waits"]) if "waits" in minted else None,
        at=now,
        minted=encode(others) if others else None,
    )


def replay(receipt: ReceiptRow, intent: str) -> Receipt:
    """Return the first receipt of a repeated operation, or refuse another intent under its id."""
    if receipt.intent != intent:
        raise OperationConflict(
            f"Operation {receipt.operation_id!r} was used before with other content; "
            "mint a new operation id for a new write.",
            operation_id=receipt.operation_id,
        )
    return receipt_of(receipt, replayed=True)


def receipt_of(row: ReceiptRow, *, replayed: bool) -> Receipt:
    """Read a stored receipt."""
    minted = loads_map(row.minted, "receipt ids") if row.minted else {}
    if row.wait_ids:
        minted["waits"] = list(texts_of(row.wait_ids, "receipt waits"))
    return new_receipt(row, ends_of(row.ends, "receipt ends"), minted, replayed=replayed)


def new_receipt(row: ReceiptRow, ends: Ends, minted: Mapping[str, list[str]], *, replayed: bool = False) -> Receipt:
    """Return the receipt of a row whose parts are at hand."""
    return Receipt(
        operation_id=row.operation_id,
        life=row.life,
        commit_number=row.commit_no,
        version=row.version,
        generation=row.generation,
        event_seq=row.event_seq,
        ends=ends,
        wait_ids=tuple(minted.get("waits", ())),
        committed_at=to_datetime(row.at),
        replayed=replayed,
        input_ids=tuple(minted.get("inputs", ())),
        outgoing_ids=tuple(minted.get("outgoing", ())),
    )
