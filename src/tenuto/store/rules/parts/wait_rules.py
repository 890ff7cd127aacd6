"""The waits of a commit: those it opens, and those it settles."""

from typing import TYPE_CHECKING

from tenuto.clock import to_duration
from tenuto.errors import WaitNotOpen
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.wait import WaitStatus
from tenuto.store.rules.plan import Found, Write
from tenuto.store.rules.rows import SessionRow, WaitRow

if TYPE_CHECKING:
    from tenuto.store.rules.commit.draft import Draft


def check_waits(commit: Commit, row: SessionRow, found: Found) -> None:
    """Refuse a wait that is not open in this session, or cannot be answered any more."""
    seen: set[str] = set()
    for settled in commit.settle_waits:
        wait = found.waits.get(settled.wait_id)
        if wait is None or (wait.session, wait.life) != (row.sid, row.life):
            state = "unknown in this session"
        elif wait.status != WaitStatus.OPEN or settled.wait_id in seen:
            state = wait.status if wait.status != WaitStatus.OPEN else "settled twice in this commit"
        elif settled.status == WaitStatus.ANSWERED and not settled.late and _is_past(wait, found.now):
            state = "past its deadline"
        else:
            seen.add(settled.wait_id)
            continue
        raise WaitNotOpen(
            f"Wait {settled.wait_id} of {commit.key} is {state}.",
            key=commit.key,
            wait_id=settled.wait_id,
            found=state,
        )


def _is_past(wait: WaitRow, now: int) -> bool:
    return wait.deadline is not None and wait.deadline <= now


def wait_writes(draft: "Draft", writes: list[Write]) -> list[str]:
    """Add the writes of the commit's waits; return the ids of those it opens."""
    commit, row, now = draft.commit, draft.row, draft.found.now
    waits = [
        WaitRow(
            wait_id=new_id(),
            session=row.sid,
            life=row.life,
            run_id=commit.run.run_id if commit.run else "",
            kind=str(wait.kind),
            signal_id=wait.signal_id,
            status=str(WaitStatus.OPEN),
            deadline=now + to_duration(wait.timeout) if deadline is None and wait.timeout else deadline,
            schema=schema,
            metadata=metadata,
            answer=None,
            commit_no=row.commit_no,
            created_at=now,
            settled_at=None,
        )
        for wait, deadline, schema, metadata in draft.packed.waits
    ]
    if waits:
        writes.append(Write("insert_waits", waits))
    settled = [
        (str(settle.status), answer, now, settle.wait_id)
        for settle, answer in zip(commit.settle_waits, draft.packed.answers, strict=True)
    ]
    if settled:
        writes.append(Write("settle_waits", settled, must=True))
    return [wait.wait_id for wait in waits]
