"""The waits of a commit: those it opens, those it settles, and those that its run keeps open."""

from typing import Any, NamedTuple

from tenuto.clock import to_duration
from tenuto.codec import dumps
from tenuto.errors import WaitNotOpen
from tenuto.ids import new_id
from tenuto.model.commit import Commit, OpenWait
from tenuto.model.wait import WaitStatus
from tenuto.store.rules.encoding import maybe_json, moment
from tenuto.store.rules.plan import Draft, Found, Write
from tenuto.store.rules.rows import SessionRow, WaitRow


class PackedWait(NamedTuple):
    """A wait to open, under its own id, with its parts as text."""

    given: OpenWait
    wait_id: str
    deadline: int | None
    schema: str | None
    metadata: str | None


def pack_wait(given: OpenWait, where: str) -> PackedWait:
    """Encode a wait and mint its id."""
    return PackedWait(
        given=given,
        wait_id=new_id(),
        deadline=moment(given.deadline, f"{where}.deadline"),
        schema=maybe_json(given.schema, f"{where}.schema"),
        metadata=dumps(dict(given.metadata), f"{where}.metadata") if given.metadata else None,
    )


def wait_meaning(packed: list[PackedWait]) -> list[Any]:
    """Return what counts for the intent hash."""
    return ["waits", [_meaning_of(each) for each in packed]]


def _meaning_of(each: PackedWait) -> list[Any]:
    meaning = [each.given.kind, each.given.signal_id, each.deadline, each.schema, each.metadata]
    return meaning if each.given.graph is None else [*meaning, each.given.graph]


def check_waits(commit: Commit, row: SessionRow, found: Found) -> None:
    """Refuse a wait that is not open in this session, or is answered after its deadline has passed."""
    seen: set[str] = set()
    answered = {each.wait_id for each in commit.settle_waits if each.status == WaitStatus.ANSWERED and not each.late}
    for wait_id in (*(each.wait_id for each in commit.settle_waits), *commit.keep_waits):
        wait = found.waits.get(wait_id)
        if wait is None or (wait.session, wait.life) != (row.sid, row.life):
            state = "unknown in this session"
        elif wait.status != WaitStatus.OPEN or wait_id in seen:
            state = wait.status if wait.status != WaitStatus.OPEN else "named twice in this commit"
        elif wait_id in answered and _is_past(wait, found.now):
            state = "past its deadline"
        else:
            seen.add(wait_id)
            continue
        raise WaitNotOpen(f"Wait {wait_id} of {commit.key} is {state}.", key=commit.key, wait_id=wait_id, found=state)


def _is_past(wait: WaitRow, now: int) -> bool:
    return wait.deadline is not None and wait.deadline <= now


def wait_writes(draft: Draft, packed: list[PackedWait], answers: list[str | None], writes: list[Write]) -> list[str]:
    """Add the writes of the commit's waits; return the ids of those it opens."""
    commit, now = draft.commit, draft.found.now
    if packed:
        writes.append(Write("insert_waits", [_opened(draft, each) for each in packed]))
    settled = [
        (str(settle.status), answer, now, settle.wait_id)
        for settle, answer in zip(commit.settle_waits, answers, strict=True)
    ]
    if settled:
        writes.append(Write("settle_waits", settled, must=True))
    if commit.keep_waits and commit.run:
        writes.append(Write("keep_waits", [(commit.run.run_id, each) for each in commit.keep_waits], must=True))
    return [each.wait_id for each in packed]


def _opened(draft: Draft, each: PackedWait) -> WaitRow:
    commit, row, now, timeout = draft.commit, draft.row, draft.found.now, each.given.timeout
    return WaitRow(
        wait_id=each.wait_id,
        session=row.sid,
        life=row.life,
        run_id=commit.run.run_id if commit.run else "",
        kind=str(each.given.kind),
        signal_id=each.given.signal_id,
        status=str(WaitStatus.OPEN),
        deadline=now + to_duration(timeout) if each.deadline is None and timeout else each.deadline,
        schema=each.schema,
        metadata=each.metadata,
        answer=None,
        commit_no=row.commit_no,
        created_at=now,
        settled_at=None,
        tenant=row.tenant,
        graph=each.given.graph,
    )
