"""Changes that a turn has made and not yet written; the turn's next commit writes them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.messages.message_form import calls_of
from tenuto.model.commit import MetadataChange, OpenWait, Receipt
from tenuto.model.effect import EffectChange
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, NewInput
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.session import LogEnd, Profile, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.conversation.history import Judged
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import MESSAGES, Changes, SessionView, profile_after
from tenuto.runtime.turn.replica import Replica
from tenuto.store.store import Store
from tenuto.writing.changes import CheckpointDraft, LogChange, Save
from tenuto.writing.log_tracker import LogTracker

_LISTS = ("events", "effects", "usage", "outgoing", "consume", "inputs", "settled")


@dataclass(slots=True)
class Handover:
    """What a program's own engine hands a turn to write with its next commit: changes of logs as its run has them.

    With `saves` the turn's replica shows the session after them; without it the session's head does not move. `landed`
    means that they are stored.
    """

    logs: dict[str, LogChange]
    point: CheckpointDraft | None = None
    saves: bool = True
    carries: bool = False
    landed: bool = False


@dataclass(slots=True)
class Pending:
    """Changes of a session's replica that are not written yet, and the other parts of the next commit.

    Entries are in the lists of the replica as soon as they are added; the tracker knows how many of them the store has.
    `_resets` are the logs that are rewritten. `covered_calls` are the tool calls without a result that are covered by a
    wait or an effect; `extras` are further fields of the next commit, and `lasting` the ids of outgoing items that are
    sent even if the turn fails.
    """

    replica: Replica
    tracker: LogTracker
    message_logs: frozenset[str] = frozenset({MESSAGES})
    document: dict[str, JSON] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    profile: dict[str, JSON] = field(default_factory=dict)
    metadata: MetadataChange | None = None
    status: SessionStatus | None = None
    events: list[NewEvent] = field(default_factory=list)
    effects: list[EffectChange] = field(default_factory=list)
    usage: list[NewUsage] = field(default_factory=list)
    outgoing: list[NewOutgoing] = field(default_factory=list)
    inputs: list[NewInput] = field(default_factory=list)
    consume: list[Consume] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    lasting: set[str] = field(default_factory=set)
    covered_calls: set[str] = field(default_factory=set)
    handover: Handover | None = None
    _resets: dict[str, "_LogReset"] = field(default_factory=dict)
    _under_way: "_UnderWay | None" = None
    _stored: "_Stored" = field(init=False)

    def __post_init__(self) -> None:
        self._stored = _Stored.of(self.replica)

    def add(self, log: str, items: Iterable[JSON]) -> int:
        """Add entries to a log and return the index of the first among those not yet written."""
        first = len(self.replica.logs.get(log, ())) - self.written(log)
        self.replica.add(log, list(items))
        return first

    def reset_log(self, log: str, items: Iterable[JSON], kept: int = 0, keep: LogEnd | None = None) -> None:
        """Replace a log by these items; the first `kept` are the log's own, or those it had at the end `keep`."""
        known, written = self._resets.get(log), self.written(log)
        if keep is None:
            kept = min(kept, written)  # entries that are not stored yet cannot be kept
            keep = known.keep if known else None
        before = known.before if known else self.replica.logs.get(log, [])[:written]
        self._resets[log] = _LogReset(kept, keep, before)
        if self.handover is not None:
            self.handover.logs[log] = LogChange((), True, kept, keep or self.tracker.base.ends.get(log))
        self.replica.logs[log] = list(items)
        if log == MESSAGES:
            self.replica.reindex(kept)

    def apply(self, changes: Changes, after: SessionView) -> None:
        """Add the changes of an action or a hook to the next commit."""
        self.document |= changes.document
        self.removed = (self.removed - changes.document.keys()) | changes.removed
        for name in changes.removed:
            self.document.pop(name, None)
            self.replica.logs.pop(name, None)
        if changes.document or changes.removed:
            values = self.replica.document | dict(changes.document)
            self.replica.document = {name: value for name, value in values.items() if name not in changes.removed}
        for name, change in changes.logs.items():
            if change.anew:
                self.reset_log(name, after.logs[name], change.kept, change.keep)
            else:
                self.add(name, change.items)
        self.profile |= changes.profile
        self.metadata = _both(self.metadata, changes.metadata)
        if changes.status is not None:
            self.status = changes.status
        self.replica.status, self.replica.definition = after.status, after.definition
        self.replica.profile = profile_after(changes, after)
        self.replica.schema_version = after.schema_version

    def show(self, **texts: Any) -> None:
        """Set what lists show of the session, with the next commit."""
        self.profile |= texts
        self.replica.profile = replace(self.replica.profile, **texts)

    def written(self, log: str) -> int:
        """Return how many entries of a log are stored."""
        reset = self._resets.get(log)
        return self.tracker.stored(log) if reset is None else reset.kept

    def calls(self) -> set[str]:
        """Return the tool calls that are open in the stored conversation, and those made since."""
        fresh = self.replica.messages[self.written(MESSAGES) :]
        return set(self.replica.history.open) | {call["id"] for each in fresh for call in calls_of(each)}

    def open_calls(self) -> Collection[str]:
        """Return the tool calls that have no result yet in the current conversation."""
        if not (calls := self.calls()):
            return ()
        return self.replica.history.judged(self.replica.messages[self.written(MESSAGES) :], calls).open

    @property
    def says(self) -> bool:
        """Whether messages are to be added to the conversation."""
        return len(self.replica.messages) > self.written(MESSAGES)

    def is_reset(self, log: str) -> bool:
        """Return whether a log is to be written to a new branch."""
        return log in self._resets

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        about = (self.profile, self.metadata, self.status)
        parts = (self.document, self.removed, *about, self.extras, self.steps, self._resets)
        if self.handover is not None:
            return False
        return not any(parts) and not any(getattr(self, name) for name in _LISTS) and not self.logs()

    def logs(self) -> dict[str, LogChange]:
        """Return the changes of logs to be written."""
        changes = {}
        for name, items in self.replica.logs.items():
            reset, written = self._resets.get(name), self.written(name)
            if reset is not None:
                changes[name] = LogChange(items=items[written:], anew=True, kept=reset.kept, keep=reset.keep)
            elif len(items) > written:
                changes[name] = LogChange(items=items[written:])
        return changes

    def run_logs(self, head: Mapping[str, LogChange]) -> Mapping[str, LogChange]:
        """Return what a commit writes to the logs of its run, given what it does to those of the session's head.

        The two differ where the run has written entries ahead of the head, which a save includes only if the
        program's engine handed them over. Entries added after that are written too.
        """
        tracker, handover = self.tracker, self.handover
        if handover is None:
            return tracker.put_back(head) if tracker.ahead and self.saves(head) else head
        handed = {name: change for name, change in handover.logs.items() if "/" in name or name in self.replica.logs}
        changes = {name: change for name, change in head.items() if name not in tracker.ahead} | handed
        for name, items in self.replica.logs.items():
            if name in handed or name in tracker.ahead:
                change = handed.get(name)
                begins = tracker.length(name, change) if handover.saves else self.written(name)
                if later := items[begins:]:
                    changes[name] = change._replace(items=[*change.items, *later]) if change else LogChange(later)
        return changes

    @property
    def moves_head(self) -> bool:
        """Whether the session's head changes."""
        return self.saves(self.logs())

    def saves(self, logs: Mapping[str, LogChange]) -> bool:
        """Return whether a commit with these changes of logs moves the session's head."""
        return bool(logs or self.document or self.removed or (self.handover is not None and self.handover.saves))

    def save(self) -> Save:
        """Return the changes of the session's head to be written."""
        replica = self.replica
        return Save(
            document=dict(self.document),
            whole=lambda: replica.document,
            logs=frozenset(replica.logs),
            schema_version=replica.schema_version,
            removed=frozenset(self.removed),
            carries=self.handover is not None and self.handover.carries,
        )

    def discard(self) -> None:
        """Undo unwritten changes of the state, outgoing items and input; lasting items and the rest stay."""
        for name, reset in self._resets.items():
            self.replica.logs[name] = reset.before
        self._resets, self.handover = {}, None
        for name, items in self.replica.logs.items():
            count = self.written(name)
            if len(items) > count:  # a new list, so that views of the old one do not change
                self.replica.logs[name] = items[:count]
        stored, replica = self._stored, self.replica
        replica.document, replica.status = stored.document, stored.status
        replica.definition, replica.profile = stored.definition, stored.profile
        replica.schema_version = stored.schema_version
        self.document, self.removed, self.profile, self.metadata, self.status = {}, set(), {}, None, None
        self.outgoing = [each for each in self.outgoing if each.outbox_id in self.lasting]
        self.consume, self.inputs = [], [each for each in self.inputs if not each.leads]
        self.replica.reindex()

    async def catch_up(self, store: Store) -> None:
        """Read the profile again if others wrote to the session since; what is pending here is still written."""
        if await self.replica.catch_up(store):
            replica = self.replica
            self._stored = replace(self._stored, definition=replica.definition, profile=replica.profile)

    def parts(
        self, logs: Mapping[str, LogChange], waits: tuple[OpenWait, ...], *, saves: bool = True
    ) -> dict[str, Any]:
        """Return the other parts of a commit with these changes of the head's logs.

        Without `saves`, the head does not move. Raise `InvalidHistory` if the messages do not fit the conversation.
        """
        judged = self._judged(logs, waits)
        counts = {name: count for name in _LISTS if (count := len(getattr(self, name)))}
        self._under_way = _UnderWay(
            counts,
            judged,
            dict(logs),
            dict(self.document) if saves else {},
            set(self.removed) if saves else set(),
            dict(self.profile),
            self.metadata,
            self.handover,
            len(self.extras["next_run"].events) if "next_run" in self.extras else 0,
        )
        parts: dict[str, Any] = {name: tuple(getattr(self, name)) for name in counts}
        parts |= self.extras
        if "settled" in parts:
            parts["settle_waits"] = parts.pop("settled")
        if self.profile:
            parts["profile"] = dict(self.profile)
        if self.metadata is not None:
            parts["metadata"] = self.metadata
        if self.status is not None:
            parts["status"] = self.status
        if self.steps is not None:
            parts["steps"] = self.steps
        return parts

    def _judged(self, logs: Mapping[str, LogChange], waits: tuple[OpenWait, ...]) -> Judged | None:
        change = logs.get(MESSAGES) if MESSAGES in self.message_logs else None
        if change is None:
            return None
        waiting = {str(wait.metadata["call_id"]) for wait in waits if "call_id" in wait.metadata}
        return self.replica.history.judged(change.items, waiting | self.covered_calls)

    def ends_step(self, before: bool) -> bool:
        """Return whether a step with calls is over once the current commit lands; `before` says if it already was."""
        judged = self._under_way.judged if self._under_way is not None else None
        if judged is None:
            return before
        return not judged.open and (before or bool(self.replica.history.open or judged.made))

    def landed(self, receipt: Receipt) -> None:
        """Note that the commit with the parts of the last call of `parts` has landed."""
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        for name, count in under_way.counts.items():
            del getattr(self, name)[:count]
        if under_way.judged is not None:
            self.replica.history.accept(under_way.judged)
        for name in under_way.logs:
            self._resets.pop(name, None)
        saved = bool(under_way.logs or under_way.document or under_way.removed)
        if under_way.handover is not None:
            saved |= under_way.handover.saves
            under_way.handover.landed, self.handover = True, None
        if self.document:
            self.document = {n: v for n, v in self.document.items() if under_way.document.get(n, self) is not v}
        if self.removed:
            self.removed -= under_way.removed
        if self.profile:
            self.profile = {n: v for n, v in self.profile.items() if under_way.profile.get(n, self) is not v}
        if self.metadata is under_way.metadata:
            self.metadata = None
        self.status, self.steps, self.extras = None, None, {}
        values = self._stored.document
        if under_way.document or under_way.removed:
            values = {n: v for n, v in values.items() if n not in under_way.removed} | under_way.document
        self._stored = _Stored.of(self.replica, values)
        self.replica.landed(receipt, saved=saved, events=under_way.counts.get("events", 0) + under_way.next_events)


@dataclass(frozen=True, slots=True)
class _Stored:
    """The stored values of the session, to return to on `discard`."""

    document: dict[str, JSON]
    status: SessionStatus
    definition: Definition | None
    profile: Profile
    schema_version: str

    @classmethod
    def of(cls, replica: Replica, document: dict[str, JSON] | None = None) -> "_Stored":
        document = replica.document if document is None else document
        return cls(document, replica.status, replica.definition, replica.profile, replica.schema_version)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    counts: dict[str, int]
    judged: Judged | None
    logs: dict[str, LogChange]
    document: dict[str, JSON]
    removed: set[str]
    profile: dict[str, JSON]
    metadata: MetadataChange | None
    handover: Handover | None
    next_events: int


def _both(first: MetadataChange | None, then: MetadataChange | None) -> MetadataChange | None:
    """Return two changes of metadata as one."""
    if first is None or then is None:
        return then or first
    values = {name: value for name, value in first.values.items() if name not in then.removed}
    return MetadataChange(
        values=values | dict(then.values), removed=(first.removed - then.values.keys()) | then.removed
    )


class _LogReset(NamedTuple):
    """A log to rewrite: how many entries it keeps, at which end if not its current one, and its stored entries."""

    kept: int
    keep: LogEnd | None
    before: list[Any]
