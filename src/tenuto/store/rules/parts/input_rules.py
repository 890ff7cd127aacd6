"""The inbox's part of a commit: input that arrives with it, and open input it consumes.

Each row is named in the guard of its write, so a warm commit needs no look at it; after a miss, or without memory, what
was found says why it is refused.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.codec import dumps, encode
from tenuto.errors import ClaimLost, InvalidInput, OperationConflict
from tenuto.ids import new_id
from tenuto.model.commit import Commit
from tenuto.model.input import Consume, InputKind, InputStatus, NewInput
from tenuto.model.session import SessionKey
from tenuto.store.rules.encoding import digest_of, moment
from tenuto.store.rules.plan import Draft, Found, Write
from tenuto.store.rules.rows import InputRow, RunRow, SessionRow

HOLDS_INPUT = 1
"""The mark of a run that consumed input in an earlier commit, or for which some is open."""


_FIRST = 0
"""The place of an input that leads: before all that arrived by themselves, whose places are event numbers."""


class PackedInput(NamedTuple):
    """A new input with its content as text, and the id it has: that of its sender, or one minted for it."""

    given: NewInput
    input_id: str
    body: str
    digest: str
    due_at: int | None


def pack_input(given: NewInput, where: str) -> PackedInput:
    """Check and encode a new input, whose fields are what they may be."""
    if given.delay is not None and given.due_at is not None:
        raise InvalidInput(f"{where} has a due time and a delay; give one of them.")
    if given.boundary is not None and given.kind == InputKind.COMMAND:
        raise InvalidInput(f"{where} is a command, which is executed between turns and has no boundary.")
    if given.run_id is not None and given.boundary is None:
        raise InvalidInput(f"{where} names a run but no boundary.")
    body = dumps(given.body, f"{where}.body")
    return PackedInput(
        given=given,
        input_id=given.input_id or new_id(),
        body=body,
        digest=digest_of(str(given.kind), body),
        due_at=moment(given.due_at, f"{where}.due_at"),
    )


def check_inputs(commit: Commit) -> None:
    """Refuse inbox parts that are out of range or do not go with the commit's log writes."""
    for new in commit.inputs:
        if new.boundary or new.run_id or new.due_at or new.delay is not None:
            raise InvalidInput("An input that arrives with a commit is consumed by it: it has no boundary or due time.")
        if new.leads and (new.log is not None or new.spent):
            raise InvalidInput("An input that leads is not consumed by this commit, so it has no entry yet.")
        _check_entry(commit, new)
    for claim in commit.consume:
        _check_entry(commit, claim)

    if commit.regenerates and (commit.rolls_back is None or commit.run is None):
        raise InvalidInput("A commit that regenerates names the run that it rolls back, and has a run itself.")


def _check_entry(commit: Commit, each: NewInput | Consume) -> None:
    if (each.log is None) != (each.item is None):
        raise InvalidInput("The entry of an input is named by its log and its item.")
    if each.log is None or each.item is None:
        return
    write = commit.logs.get(each.log)
    if write is None or each.item >= len(write.items):
        raise InvalidInput(f"The commit writes no item {each.item} to {each.log!r} that an input could be.")


def input_meaning(packed: list[PackedInput], commit: Commit) -> list[Any]:
    """Return what counts for the intent hash."""
    arrived = [[each.given.key, each.digest, each.given.log, each.given.item, each.given.input_id] for each in packed]
    arrived += [["leads"] for each in packed if each.given.leads]
    return ["inputs", arrived, [[c.input_id, c.log, c.item] for c in commit.consume], commit.rolls_back] + (
        ["regenerates"] if commit.regenerates else []
    )


def check_claims(packed: list[PackedInput], commit: Commit, row: SessionRow, found: Found) -> None:
    """Refuse input whose key is known, and input that is not open for this commit's run."""
    for each in packed:
        if each.given.key is not None and (known := found.input_keys.get(each.given.key)):
            check_same_content(known, each)
            raise ClaimLost(
                f"{commit.key} has the input with key {each.given.key!r} already, as {known.input_id}.",
                key=commit.key,
                input_id=known.input_id,
                found=known.status,
            )
    if found.inputs is None:
        return
    seen: set[str] = set()
    run_id = commit.run.run_id if commit.run else None
    for claim in commit.consume:
        if claim.input_id in seen:
            raise claim_lost(commit.key, claim.input_id, "named twice in this commit")
        check_claim(commit.key, claim.input_id, run_id, row, found.inputs)
        seen.add(claim.input_id)


def check_claim(
    key: SessionKey, input_id: str, run_id: str | None, row: SessionRow, inputs: Mapping[str, InputRow]
) -> None:
    """Refuse input that is not open for a run."""
    known = inputs.get(input_id)
    if known is None or (known.session, known.life) != (row.sid, row.life):
        raise claim_lost(key, input_id, "unknown in this session")
    if known.status != InputStatus.OPEN:
        raise claim_lost(key, input_id, known.status)
    if known.run_id is not None and known.run_id != run_id:
        raise claim_lost(key, input_id, f"meant for run {known.run_id}")


def claim_lost(key: SessionKey, input_id: str, state: str) -> ClaimLost:
    """Say that an input cannot be consumed."""
    return ClaimLost(f"Input {input_id} of {key} is {state}.", key=key, input_id=input_id, found=state)


def check_same_content(known: InputRow, given: PackedInput) -> None:
    """Refuse another content under a known key."""
    if known.digest != given.digest:
        raise OperationConflict(
            f"The key {known.key!r} was used before for other input ({known.input_id}); mint a new key for new input.",
            operation_id=known.key,
            input_id=known.input_id,
        )


def input_row(packed: PackedInput, row: SessionRow, seq: int, now: int, **state: Any) -> InputRow:
    """Return the row of a new input; `state` has the columns that say how far it has come."""
    given = packed.given
    content = (str(given.kind), given.key, packed.digest)
    return InputRow(packed.input_id, row.sid, row.life, seq, *content, rolled_back=0, created_at=now, **state)


def input_writes(draft: Draft, packed: list[PackedInput], writes: list[Write]) -> list[str]:
    """Add the writes of the commit's input; return the ids minted for what arrived with it.

    A body is kept for as long as the run may have to read it again, and not beyond its end.
    """
    commit, row, now = draft.commit, draft.row, draft.found.now
    run_id = draft.run.run_id if draft.run else None
    over = commit.end is not None or run_id is None
    arrived = [
        input_row(
            each,
            row,
            _FIRST if each.given.leads else row.event_seq,
            now,
            body=None if (over or each.given.spent) and not each.given.leads else each.body,
            boundary=None,
            due_at=None,
            status=str(InputStatus.OPEN if each.given.leads else InputStatus.CONSUMED),
            run_id=None if each.given.leads else run_id,
            log=each.given.log,
            position=draft.position(each.given.log, each.given.item),
            settled_at=None if each.given.leads else now,
        )
        for each in packed
    ]
    if arrived:
        writes.append(Write("insert_inputs", arrived))
    home = (row.sid, row.life)
    claims = [
        (run_id, claim.log, draft.position(claim.log, claim.item), now, int(over or claim.spent), claim.input_id, *home)
        for claim in commit.consume
    ]
    if claims:
        writes.append(Write("consume_inputs", claims, must=True))
    if commit.rolls_back is not None:
        new_run = run_id if commit.regenerates else None
        writes.append(Write("roll_back_inputs", [(row.sid, row.life, commit.rolls_back, new_run)]))
        writes.append(Write("roll_back_runs", [(row.sid, row.life, commit.rolls_back)]))
    return [each.input_id for each in packed if each.given.input_id is None]


def end_inputs(run: RunRow, commit: Commit) -> list[Write]:
    """Return what the end of a run does to its input: what is open goes to the next turn, bodies it consumed go.

    Rows that this commit itself consumes are left out; they are written once.
    """
    if not run.holds & HOLDS_INPUT:
        return []
    return [Write("end_inputs", [(run.run_id, encode([claim.input_id for claim in commit.consume]))])]
