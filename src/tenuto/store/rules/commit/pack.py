"""Turn a commit into text before any transaction: checked, its new ids minted, measured against its budget, hashed.

The intent hash covers what a commit means and leaves out clocks, versions, lives and generations, so that a repeat is
known as one.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

from tenuto.argument import refuse
from tenuto.codec import JSON, dumps, encode
from tenuto.errors import CommitTooLarge, InvalidInput
from tenuto.model.commit import Append, BeginRun, Budget, Commit, Held, LogWrite, TakeRun
from tenuto.model.event import EventType, NewEvent
from tenuto.model.session import Ends, Profile
from tenuto.quote import quote
from tenuto.store.rules.commit.commit_text import PackedCommit, PackedDocument, PackedNext
from tenuto.store.rules.commit.next_run import check_next, next_meaning
from tenuto.store.rules.encoding import byte_size, digest_of, maybe_json
from tenuto.store.rules.fields import COMMIT
from tenuto.store.rules.limits import check_name
from tenuto.store.rules.parts.effect_rules import check_effect_shape, effect_meaning, pack_effect
from tenuto.store.rules.parts.input_rules import check_inputs, input_meaning, pack_input
from tenuto.store.rules.parts.outgoing_rules import outgoing_meaning, pack_outgoing
from tenuto.store.rules.parts.profile_rules import PROFILE_COLUMNS, new_profile, pack_profile, profile_meaning
from tenuto.store.rules.parts.usage_rules import usage_meaning
from tenuto.store.rules.parts.wait_rules import pack_wait, wait_meaning

HELD_FROM_BYTES = 1024
"""A document value whose JSON text is this long is held by its content hash."""


def pack(commit: Commit, budget: Budget, birth: Profile | None = None) -> PackedCommit:
    """Check and encode a commit, or raise an `InvalidInput` before anything is written.

    `birth` is the profile a create gives its session.
    """
    check_shape(commit)
    packed = PackedCommit(
        commit=commit,
        document=pack_document(commit.document, "document"),
        items={name: _pack_items(name, write) for name, write in commit.logs.items()},
        events=pack_events(commit.events),
        birth=birth,
    )
    if packed.document.held:
        packed.holders.append(packed.document)
    if commit.checkpoint:
        packed.checkpoint = pack_document(commit.checkpoint.document, "checkpoint.document")
        packed.cursor = maybe_json(commit.checkpoint.cursor, "checkpoint.cursor")
        if packed.checkpoint.held:
            packed.holders.append(packed.checkpoint)
    if commit.open_waits:
        packed.waits = [pack_wait(wait, f"open_waits[{index}]") for index, wait in enumerate(commit.open_waits)]
    if commit.settle_waits:
        packed.answers = [maybe_json(settled.answer, "settle_waits.answer") for settled in commit.settle_waits]
    if commit.inputs:
        packed.inputs = [pack_input(each, f"inputs[{index}]") for index, each in enumerate(commit.inputs)]
    if commit.effects:
        packed.effects = [pack_effect(each, f"effects[{index}]") for index, each in enumerate(commit.effects)]
    if commit.outgoing:
        packed.outgoing = [
            pack_outgoing(each, commit.key, f"outgoing[{index}]") for index, each in enumerate(commit.outgoing)
        ]
    if following := commit.next_run:
        item, cursor = dumps(following.item, "next_run.item"), maybe_json(following.cursor, "next_run.cursor")
        packed.next_run = PackedNext(item, cursor, pack_events(following.events))
    if commit.end:
        packed.error = maybe_json(commit.end.error, "end.error")
        packed.outcome = maybe_json(commit.end.outcome, "end.outcome")
    if commit.additions:
        packed.additions = dumps(dict(commit.additions), "additions")
    if commit.profile:
        packed.profile = pack_profile(commit.profile)
        if "preview" in packed.profile:
            packed.shown["preview"] = packed.profile.pop("preview")
    if isinstance(birth, Profile) and birth.preview is not None:
        packed.shown["preview"] = birth.preview
    if commit.metadata:
        packed.metadata = dumps(dict(commit.metadata.values), "metadata")
    _measure(packed, budget)
    packed.intent = _intent(packed)
    return packed


def check_shape(commit: Commit) -> None:
    """Refuse a commit whose parts are out of range or do not go together."""
    COMMIT(commit)
    if commit.heard is not None and commit.heard == commit.operation_id:
        raise InvalidInput("A commit cannot name itself in `heard`, which is for an earlier one.")
    for name in commit.logs:
        if name in commit.document:
            raise InvalidInput(f"{name!r} is given both as a log and as a document field.", field=name)
    if commit.inputs or commit.consume:
        check_inputs(commit)
    if commit.effects:
        check_effect_shape(commit)
    if commit.next_run:
        check_next(commit, commit.next_run)
    _check_combination(commit)


def _check_combination(commit: Commit) -> None:
    if not commit.save:
        if commit.document or commit.removed or commit.schema_version is not None or commit.carries:
            raise InvalidInput("document, removed, schema_version and carries move the head: set save=True.")
        if commit.logs and commit.run is None:
            raise InvalidInput("Log writes belong to a head or to a run: set save=True or name the run.")
    run_parts = commit.end or commit.steps is not None or commit.open_waits or commit.keep_waits or commit.sees_stop
    if commit.run is None and (run_parts or commit.additions is not None):
        raise InvalidInput("end, steps, additions, open_waits, keep_waits and sees_stop belong to a run: name it.")
    if commit.run is None and any("/" in name for name in commit.logs):
        raise InvalidInput("A log with a slash in its name belongs to a run: name it.")
    if commit.rearm and (commit.generation is None or commit.expected_commit is None):
        raise InvalidInput("rearm needs the generation and commit number of the cached copy.")
    if commit.disarm and commit.generation is None:
        raise InvalidInput("disarm needs the lane's generation.")
    unknown = commit.profile.keys() - PROFILE_COLUMNS
    if unknown:
        raise InvalidInput(f"Unknown or fixed profile fields: {', '.join(sorted(map(quote, unknown)))}.")


def pack_document(fields: Mapping[str, JSON | Held], where: str) -> PackedDocument:
    """Encode document fields; those of `HELD_FROM_BYTES` and more become bodies."""
    packed = PackedDocument()
    for name, value in fields.items():
        check_name(name, "a document field")
        if isinstance(value, Held):
            packed.held[name] = check_name(value.hash, "a content hash")
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
    packed.size += byte_size("".join(fields))
    return packed


def handle_of(value: JSON) -> Held | None:
    """Return the handle under which the store holds a value once it was written; None for one it keeps inline."""
    text = dumps(value)
    return Held(hash=sha256(text.encode()).hexdigest()) if byte_size(text) >= HELD_FROM_BYTES else None


def pack_events(events: tuple[NewEvent, ...]) -> str | None:
    """Encode events as the body of one row."""
    if not events:
        return None
    for event in events:
        if type(event) is not NewEvent:
            refuse("an event", "a NewEvent", event)
        if type(event.type) is not str:
            check_name(event.type, "an event type")
        if event.type == EventType.ELIDED:
            raise InvalidInput("The event type 'elided' is the store's own: it stands for events that were pruned.")
    return "[" + ",".join(f"[{_type_text(e.type)},{dumps(e.data, f'event {e.type}')}]" for e in events) + "]"


@lru_cache(maxsize=1024)
def _type_text(name: str) -> str:
    return dumps(check_name(name, "an event type"))


def check_budget(size: int, rows: int, budget: Budget, fields: int = 0) -> None:
    """Refuse what is over the budget; fields and logs, which all go into one row, are counted by themselves."""
    limits = (("bytes", size, budget.max_bytes), ("rows", rows, budget.max_rows), ("fields", fields, budget.max_rows))
    for measure, value, limit in limits:
        if value > limit:
            raise CommitTooLarge(
                f"The commit has {value} {measure}, over the budget of {limit}; split it or raise the store's budget.",
                measure=measure,
                size=value,
                budget=limit,
            )


def _pack_items(name: str, write: LogWrite) -> list[str]:
    return [dumps(item, f"{name}[{index}]") for index, item in enumerate(write.items)]


def _measure(packed: PackedCommit, budget: Budget) -> None:
    size, rows = packed.document.size, len(packed.document.bodies) + len(packed.commit.events)
    commit = packed.commit
    fields = len(commit.document) + len(packed.items) + len(commit.removed)
    texts: list[str | None] = [packed.cursor, packed.events, packed.error, packed.outcome, packed.additions]
    texts += (*packed.answers, *packed.items, *commit.removed)
    for items in packed.items.values():
        rows += len(items)
        texts += items
    if commit.checkpoint and packed.checkpoint:
        size += packed.checkpoint.size
        rows += len(packed.checkpoint.bodies)
        fields = max(fields, len(commit.checkpoint.document))
    rows += len(packed.waits) + len(packed.answers) + len(commit.keep_waits) + len(packed.inputs) + len(commit.consume)
    rows += len(packed.effects) + len(packed.outgoing) + len(commit.usage)
    for wait in packed.waits:
        texts += (wait.schema, wait.metadata)
    for given in packed.inputs:
        texts.append(given.body)
    for sent in packed.outgoing:
        texts.append(sent.body)
    for effect in packed.effects:
        texts += (effect.request, effect.result, effect.error)
    if commit.next_run and packed.next_run:
        rows += 2 + len(commit.next_run.events)
        texts += packed.next_run
    if packed.birth or commit.profile:
        profile = new_profile(0, packed.birth) if packed.birth else [*packed.profile.values(), *packed.shown.values()]
        texts += [text for text in profile if isinstance(text, str)]
    if packed.metadata is not None:
        texts.append(packed.metadata)
    packed.size = size + sum(map(byte_size, filter(None, texts)))
    packed.rows = rows
    check_budget(packed.size, rows, budget, fields)


def _intent(packed: PackedCommit) -> str:
    """Hash what the commit means: its parts, then the texts of its log items in the order of the logs' names."""
    commit, document = packed.commit, packed.document
    meaning: list[Any] = [
        commit.key.tenant,
        str(commit.key.kind),
        commit.key.session_id,
        [commit.save, commit.disarm, commit.count_resume, commit.steps, commit.schema_version, commit.status],
        [sorted(document.inline.items()), sorted(document.held.items()), sorted(commit.removed)],
        [[name, *_log_meaning(commit.logs[name]), len(packed.items[name])] for name in sorted(packed.items)],
        _run_meaning(commit),
    ]
    if commit.end:
        meaning.append(["end", str(commit.end.status), commit.end.partial, packed.error, packed.outcome])
    if commit.checkpoint and packed.checkpoint:
        place: list[Any] = [commit.checkpoint.step, commit.checkpoint.schema_version, packed.cursor]
        if commit.checkpoint.before:
            place.append("before")
        meaning.append(["checkpoint", place, packed.checkpoint.meaning()])
    if commit.profile:
        meaning.append(["profile", sorted((packed.profile | packed.shown).items())])
    if commit.metadata:
        meaning.append(["metadata", packed.metadata, sorted(commit.metadata.removed)])
    if packed.birth:
        meaning.append(["birth", profile_meaning(packed.birth)])
    if packed.waits:
        meaning.append(wait_meaning(packed.waits))
    if packed.answers:
        settled = zip(commit.settle_waits, packed.answers, strict=True)
        meaning.append(["answers", [[each.wait_id, each.status, answer] for each, answer in settled]])
    if commit.keep_waits:
        meaning.append(["keeps", list(commit.keep_waits)])
    if packed.events:
        meaning.append(["events", packed.events])
    if commit.inputs or commit.consume or commit.rolls_back is not None:
        meaning.append(input_meaning(packed.inputs, commit))
    if packed.effects:
        meaning.append(effect_meaning(packed.effects))
    if commit.usage:
        meaning.append(usage_meaning(commit.usage))
    if packed.outgoing:
        meaning.append(outgoing_meaning(packed.outgoing))
    if packed.next_run and commit.next_run:
        meaning.append(next_meaning(commit.next_run, packed.next_run))
    if commit.sees_stop:
        meaning.append(["sees_stop"])
    if commit.additions is not None:
        meaning.append(["additions", packed.additions])
    if commit.carries:
        meaning.append(["carries"])
    return intent_of(meaning, [text for name in sorted(packed.items) for text in packed.items[name]])


def intent_of(meaning: list[Any], texts: Sequence[str] = ()) -> str:
    """Hash what an operation means; JSON text never holds the separator."""
    return digest_of(encode(meaning), *texts)


def _log_meaning(write: LogWrite) -> list[Any]:
    if isinstance(write, Append):
        return ["append", write.base]
    return ["reset", write.keep]


def _run_meaning(commit: Commit) -> list[Any] | None:
    match commit.run:
        case None:
            return None
        case BeginRun() as run:
            budget = [] if run.budget is None else [run.budget]
            return [
                *("begin", run.run_id, run.invocation_id, run.origin_id, run.correlation_id, run.fresh),
                *(_ends_meaning(run.ends), _ends_meaning(run.base_ends)),
                *budget,
            ]
        case TakeRun() as run:
            moved = [] if run.ends is None else [_ends_meaning(run.ends), _ends_meaning(run.base_ends)]
            return ["take", run.run_id, run.attempt, *moved]
        case run:
            return ["run", run.run_id, run.attempt]


def _ends_meaning(ends: Ends | None) -> Any:
    return None if ends is None else sorted(ends.items())
