"""Turn a commit into text before any transaction: checked, measured against its budget, and hashed.

The intent hash covers what a commit means and leaves out clocks, versions, lives and generations, so that a repeat is
known as one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from tenuto.clock import to_micros
from tenuto.codec import JSON, dumps, encode
from tenuto.errors import CommitTooLarge, InvalidInput
from tenuto.model.commit import (
    Append,
    BeginRun,
    Budget,
    Commit,
    Held,
    LogWrite,
    NewCheckpoint,
    OpenWait,
    TakeRun,
)
from tenuto.model.event import NewEvent
from tenuto.model.session import Ends, LogEnd, Profile
from tenuto.store.rules.limits import check_count, check_name, check_text, check_ttl
from tenuto.store.rules.profile import PROFILE_COLUMNS, new_profile, pack_profile
from tenuto.store.rules.rows import ends_text

HELD_FROM_BYTES = 1024
"""A document value whose JSON text is this long is held by its content hash."""

_INTENT_CHARACTERS = 32


@dataclass(slots=True)
class PackedDocument:
    """Document fields split into those kept inline and those held by hash, with the bodies that are new."""

    inline: dict[str, JSON] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    size: int = 0

    @property
    def known(self) -> set[str]:
        """The hashes named without a body: they have to be in the store already."""
        return set(self.held.values()) - self.bodies.keys()

    def meaning(self) -> list[Any]:
        """Return what counts for the intent hash."""
        return [sorted(self.inline.items()), sorted(self.held.items())]


@dataclass(slots=True)
class PackedCommit:
    """A commit with every part as text."""

    commit: Commit
    document: PackedDocument
    items: dict[str, list[str]]
    checkpoint: PackedDocument | None
    cursor: str | None
    events: str | None
    waits: list[tuple[OpenWait, int | None, str | None, str | None]]
    answers: list[str | None]
    error: str | None
    outcome: str | None
    profile: dict[str, Any]
    birth: Profile | None = None
    size: int = 0
    rows: int = 0
    intent: str = ""


def pack(commit: Commit, budget: Budget, birth: Profile | None = None) -> PackedCommit:
    """Check and encode a commit, or raise an `InvalidInput` before anything is written.

    `birth` is the profile a create gives its session.
    """
    _check_shape(commit)
    end, checkpoint = commit.end, commit.checkpoint
    packed = PackedCommit(
        commit=commit,
        document=pack_document(commit.document, "document"),
        items={name: _pack_items(name, write) for name, write in commit.logs.items()},
        checkpoint=pack_document(checkpoint.document, "checkpoint.document") if checkpoint else None,
        cursor=_maybe(checkpoint.cursor, "checkpoint.cursor") if checkpoint else None,
        events=pack_events(commit.events),
        waits=[_pack_wait(wait, index) for index, wait in enumerate(commit.open_waits)],
        answers=[_maybe(settled.answer, "settle_waits.answer") for settled in commit.settle_waits],
        error=_maybe(end.error, "end.error") if end else None,
        outcome=_maybe(end.outcome, "end.outcome") if end else None,
        profile=pack_profile(commit.profile) if commit.profile else {},
        birth=birth,
    )
    _measure(packed, budget)
    packed.intent = _intent(packed)
    return packed


def pack_document(fields: Mapping[str, JSON | Held], where: str) -> PackedDocument:
    """Encode document fields; those of `HELD_FROM_BYTES` and more become bodies."""
    packed = PackedDocument()
    for name, value in fields.items():
        check_name(name, "a document field")
        if isinstance(value, Held):
            packed.held[name] = value.hash
            continue
        text = dumps(value, f"{where}.{name}")
        size = byte_size(text)
        packed.size += size
        if size < HELD_FROM_BYTES:
            packed.inline[name] = value
        else:
            digest = sha256(text.encode()).hexdigest()
            packed.held[name] = digest
            packed.bodies[digest] = text
    return packed


def pack_events(events: tuple[NewEvent, ...]) -> str | None:
    """Encode events as the body of one row."""
    if not events:
        return None
    for event in events:
        check_name(event.type, "an event type")
    return "[" + ",".join(f"[{dumps(e.type)},{dumps(e.data, f'event {e.type}')}]" for e in events) + "]"


def byte_size(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def check_budget(size: int, rows: int, budget: Budget) -> None:
    """Refuse what is over the budget."""
    for measure, value, limit in (("bytes", size, budget.max_bytes), ("rows", rows, budget.max_rows)):
        if value > limit:
            raise CommitTooLarge(
                f"The commit has {value} {measure}, over the budget of {limit}; split it or raise the store's budget.",
                measure=measure,
                size=value,
                budget=limit,
            )


def _pack_items(name: str, write: LogWrite) -> list[str]:
    return [dumps(item, f"{name}[{index}]") for index, item in enumerate(write.items)]


def _pack_wait(wait: OpenWait, index: int) -> tuple[OpenWait, int | None, str | None, str | None]:
    where = f"open_waits[{index}]"
    check_name(wait.kind, "a wait's kind")
    if wait.signal_id is not None:
        check_text(wait.signal_id, "signal_id")
    metadata = dumps(dict(wait.metadata), f"{where}.metadata") if wait.metadata else None
    return wait, moment(wait.deadline, f"{where}.deadline"), _maybe(wait.schema, f"{where}.schema"), metadata


def moment(value: datetime | None, what: str) -> int | None:
    """Return an aware datetime in microseconds; a naive one is refused."""
    if value is None:
        return None
    if value.tzinfo is None:
        raise InvalidInput(f"{what} has no time zone; give an aware datetime.", what=what)
    return to_micros(value)


def _maybe(value: JSON, where: str) -> str | None:
    return None if value is None else dumps(value, where)


def _check_shape(commit: Commit) -> None:
    check_name(commit.operation_id, "operation_id")
    check_count(commit.life, "life")
    for value, what in (
        (commit.generation, "generation"),
        (commit.expected_version, "expected_version"),
        (commit.expected_commit, "expected_commit"),
        (commit.steps, "steps"),
        (commit.checkpoint.step if commit.checkpoint else None, "checkpoint.step"),
    ):
        if value is not None:
            check_count(value, what)
    for name, write in commit.logs.items():
        check_name(name, "a log")
        base = write.base if isinstance(write, Append) else write.keep
        if base is not None:
            _check_end(base, name)
        if name in commit.document:
            raise InvalidInput(f"{name!r} is given both as a log and as a document field.", field=name)
    if commit.rearm:
        check_ttl(commit.rearm.ttl)
    match commit.run:
        case BeginRun() as begin:
            check_ttl(begin.ttl)
            check_name(begin.run_id, "run_id")
            check_name(begin.invocation_id, "invocation_id")
        case TakeRun() as take:
            check_ttl(take.ttl)
    _check_combination(commit)


def _check_end(end: LogEnd, name: str) -> None:
    for part, what in zip(end, end._fields, strict=True):
        check_count(part, f"{name}.{what}")


def _check_combination(commit: Commit) -> None:
    if not commit.save:
        if commit.document or commit.removed or commit.schema_version is not None:
            raise InvalidInput("document, removed and schema_version move the head: set save=True.")
        if commit.logs and commit.run is None:
            raise InvalidInput("Log writes belong to a head or to a run: set save=True or name the run.")
    run_parts = commit.end or commit.steps is not None or commit.open_waits
    if commit.run is None and run_parts:
        raise InvalidInput("end, steps and open_waits belong to a run: name it.")
    if commit.run is None and any("/" in name for name in commit.logs):
        raise InvalidInput("A log with a slash in its name belongs to a run: name it.")
    if commit.rearm and (commit.generation is None or commit.expected_commit is None):
        raise InvalidInput("rearm needs the generation and commit number of the cached copy.")
    if commit.disarm and commit.generation is None:
        raise InvalidInput("disarm needs the lane's generation.")
    unknown = commit.profile.keys() - PROFILE_COLUMNS
    if unknown:
        raise InvalidInput(f"Unknown or fixed profile fields: {', '.join(sorted(map(str, unknown)))}.")


def _measure(packed: PackedCommit, budget: Budget) -> None:
    documents = [packed.document] + ([packed.checkpoint] if packed.checkpoint else [])
    texts: list[str | None] = [packed.cursor, packed.events, packed.error, packed.outcome, *packed.answers]
    texts += [text for _, _, schema, metadata in packed.waits for text in (schema, metadata)]
    texts += [text for text in packed.profile.values() if isinstance(text, str)]
    texts += [text for items in packed.items.values() for text in items]
    packed.size = sum(map(byte_size, filter(None, texts))) + sum(document.size for document in documents)
    packed.rows = (
        sum(map(len, packed.items.values()))
        + sum(len(document.bodies) for document in documents)
        + len(packed.waits)
        + len(packed.answers)
        + len(packed.commit.events)
    )
    check_budget(packed.size, packed.rows, budget)


def _intent(packed: PackedCommit) -> str:
    commit = packed.commit
    logs = [[name, *_log_meaning(commit.logs[name]), packed.items[name]] for name in sorted(packed.items)]
    meaning = [
        [commit.key.tenant, commit.key.kind, commit.key.session_id],
        [commit.save, commit.disarm, commit.count_resume, commit.steps, commit.schema_version, commit.status],
        packed.document.meaning(),
        sorted(commit.removed),
        logs,
        sorted(packed.profile.items()),
        _run_meaning(commit),
        [commit.end.status, commit.end.partial, packed.error, packed.outcome] if commit.end else None,
        _checkpoint_meaning(commit.checkpoint, packed),
        [[wait.kind, wait.signal_id, *texts] for wait, *texts in packed.waits],
        [[s.wait_id, s.status, a] for s, a in zip(commit.settle_waits, packed.answers, strict=True)],
        packed.events,
        new_profile(0, packed.birth) if packed.birth else None,
    ]
    return intent_of(meaning)


def intent_of(meaning: Iterable[Any]) -> str:
    """Hash what an operation means."""
    return sha256(encode(meaning).encode()).hexdigest()[:_INTENT_CHARACTERS]


def _log_meaning(write: LogWrite) -> list[Any]:
    if isinstance(write, Append):
        return ["append", write.base]
    return ["reset", write.keep]


def _run_meaning(commit: Commit) -> list[Any] | None:
    match commit.run:
        case None:
            return None
        case BeginRun() as run:
            return [
                *("begin", run.run_id, run.invocation_id, run.origin_id, run.correlation_id, run.fresh),
                *(_ends_meaning(run.ends), _ends_meaning(run.base_ends)),
            ]
        case TakeRun() as run:
            return ["take", run.run_id, run.attempt]
        case run:
            return ["run", run.run_id, run.attempt]


def _ends_meaning(ends: Ends | None) -> Any:
    return None if ends is None else sorted(ends_text(ends).items())


def _checkpoint_meaning(checkpoint: NewCheckpoint | None, packed: PackedCommit) -> list[Any] | None:
    if checkpoint is None or packed.checkpoint is None:
        return None
    return [checkpoint.step, checkpoint.schema_version, packed.cursor, packed.checkpoint.meaning()]
