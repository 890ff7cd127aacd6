"""What a turn has done and not yet written: it goes into the turn's next commit, whoever makes that."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.model.commit import OpenWait, Receipt
from tenuto.model.effect import EffectChange
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, NewInput
from tenuto.model.outgoing import NewOutgoing
from tenuto.model.session import LogEnd, Profile, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.runtime.cache.replica import Replica
from tenuto.runtime.conversation.history import Judged, calls_of
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import MESSAGES, Changes, Session, profile_after
from tenuto.runtime.turn.handover import Handover
from tenuto.writing.changes import LogChange, Save

_LISTS = ("events", "effects", "usage", "outgoing", "consume", "inputs", "settled")


@dataclass(slots=True)
class Pending:
    """Changes of a session's copy that are made already and not yet written, and what goes along with them.

    Entries stand in the copy's lists as soon as they are added; `_written` is how far each list is in the store. A log
    that began anew is in `_anew`, and what the store has of it in `_before`. It rides with every commit of the turn
    (`commits.Commits`).
    """

    copy: Replica
    message_logs: frozenset[str] = frozenset({MESSAGES})
    document: dict[str, JSON] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    profile: dict[str, JSON] = field(default_factory=dict)
    status: SessionStatus | None = None
    events: list[NewEvent] = field(default_factory=list)
    effects: list[EffectChange] = field(default_factory=list)
    usage: list[NewUsage] = field(default_factory=list)
    outgoing: list[NewOutgoing] = field(default_factory=list)
    inputs: list[NewInput] = field(default_factory=list)
    consume: list[Consume] = field(default_factory=list)
    settled: list[Any] = field(default_factory=list)
    further: dict[str, Any] = field(default_factory=dict)
    steps: int | None = None
    excused: set[str] = field(default_factory=set)
    ahead: Handover | None = None
    _written: dict[str, int] = field(default_factory=dict)
    _anew: dict[str, "_Kept"] = field(default_factory=dict)
    _before: dict[str, list[Any]] = field(default_factory=dict)
    _under_way: "_UnderWay | None" = None
    _stored: "_Stored" = field(init=False)

    def __post_init__(self) -> None:
        self._stored = _Stored.of(self.copy)
        self._written = {name: len(items) for name, items in self.copy.logs.items()}

    def add(self, log: str, items: Iterable[JSON]) -> int:
        """Add entries to a log and return the place of the first among those not yet written."""
        entries = list(items)
        written = self._written.setdefault(log, 0)
        first = len(self.copy.logs.get(log, ())) - written
        self.copy.add(log, entries)
        return first

    def stands(self, log: str, items: Sequence[JSON]) -> None:
        """Add entries to a log that the store has already."""
        self.copy.add(log, items)
        self._written[log] = len(self.copy.logs[log])

    def begin_anew(self, log: str, items: Iterable[JSON], kept: int = 0, keep: LogEnd | None = None) -> None:
        """Let a log have these items instead; the first `kept` are those it has, or those it had at another end."""
        old, written = self.copy.logs.get(log, []), self._written.get(log, 0)
        self._before.setdefault(log, old[:written])
        self.copy.logs[log] = list(items)
        if keep is None:
            kept = min(kept, written)  # what is not in the store yet cannot be kept there
            keep = self._anew[log].keep if log in self._anew else None
        self._anew[log] = _Kept(kept, keep)
        self._written[log] = kept
        if log == MESSAGES:
            self.copy.judge(kept)

    def take(self, changes: Changes, after: Session) -> None:
        """Make what an action or a controller changed part of what is to be written."""
        self.document |= changes.document
        self.removed = (self.removed - changes.document.keys()) | changes.removed
        for name in changes.removed:
            self.document.pop(name, None)
            self.copy.logs.pop(name, None)
        if changes.document or changes.removed:
            values = self.copy.document | dict(changes.document)
            self.copy.document = {name: value for name, value in values.items() if name not in changes.removed}
        for name, change in changes.logs.items():
            if change.anew:
                self.begin_anew(name, after.logs[name], change.kept, change.keep)
            else:
                self.add(name, change.items)
        self.profile |= changes.profile
        if changes.status is not None:
            self.status = changes.status
        self.copy.status, self.copy.definition = after.status, after.definition
        self.copy.profile = profile_after(changes, after)

    def written(self, log: str) -> int:
        """Return how many entries of a log are in the store."""
        return self._written.get(log, 0)

    def calls(self) -> set[str]:
        """Return the tool calls that are open in the store, and those made since."""
        fresh = self.copy.messages[self.written(MESSAGES) :]
        return set(self.copy.history.open) | {call["id"] for each in fresh for call in calls_of(each)}

    def open_calls(self) -> Collection[str]:
        """Return the tool calls that have no result yet, in the conversation as it is now."""
        if not (calls := self.calls()):
            return ()
        return self.copy.history.judged(self.copy.messages[self.written(MESSAGES) :], calls).open

    @property
    def says(self) -> bool:
        """Whether something is to be added to the conversation."""
        return len(self.copy.messages) > self.written(MESSAGES)

    def begins_anew(self, log: str) -> bool:
        """Tell whether a log is to be written to a new branch."""
        return log in self._anew

    @property
    def is_empty(self) -> bool:
        """Whether a commit would have nothing to write."""
        parts = (self.document, self.removed, self.profile, self.status, self.further, self.steps, self._anew)
        if self.ahead is not None:
            return False
        return not any(parts) and not any(getattr(self, name) for name in _LISTS) and not self.logs()

    def logs(self) -> dict[str, LogChange]:
        """Return what is to be written to logs."""
        changes = {}
        for name, items in self.copy.logs.items():
            written = self._written.get(name, 0)
            if name in self._anew:
                kept, keep = self._anew[name]
                changes[name] = LogChange(items=items[written:], anew=True, kept=kept, keep=keep)
            elif len(items) > written or name not in self._written:
                changes[name] = LogChange(items=items[written:])
        return changes

    @property
    def moves_head(self) -> bool:
        """Whether the session's head changes."""
        ahead = self.ahead is not None and self.ahead.saves
        return bool(self.document or self.removed or ahead or self.logs())

    def save(self, logs: Mapping[str, LogChange]) -> Save | None:
        """Return what this does to the session's head, or None if that does not change."""
        ahead = self.ahead is not None and self.ahead.saves
        if not (logs or self.document or self.removed or ahead):
            return None
        copy = self.copy
        return Save(
            document=dict(self.document),
            whole=lambda: copy.document,
            logs=frozenset(copy.logs),
            schema_version=copy.schema_version,
            removed=frozenset(self.removed),
            carries=self.ahead is not None and self.ahead.carries,
        )

    def discard(self) -> None:
        """Take back every change of the state that is not written; what goes along with it stays."""
        for name, items in self._before.items():
            self.copy.logs[name] = items
            self._written[name] = len(items)
        for name, items in self.copy.logs.items():
            count = self._written.get(name, 0)
            if len(items) > count:  # a new list, so that views of the old one stay what they are
                self.copy.logs[name] = items[:count]
        self._anew, self._before, self.ahead = {}, {}, None
        stored, copy = self._stored, self.copy
        copy.document, copy.status = stored.document, stored.status
        copy.definition, copy.profile = stored.definition, stored.profile
        self.document, self.removed, self.profile, self.status = {}, set(), {}, None
        self.outgoing, self.consume = [], []
        self.copy.judge()

    def parts(
        self,
        logs: Mapping[str, LogChange],
        waits: tuple[OpenWait, ...],
        *,
        saves: bool = True,
    ) -> dict[str, Any]:
        """Return what goes along with a commit; the logs are the head's, and without `saves` it stays where it is."""
        judged = self._judged(logs, waits)
        counts = {name: count for name in _LISTS if (count := len(getattr(self, name)))}
        self._under_way = _UnderWay(
            counts,
            judged,
            dict(logs),
            dict(self.document) if saves else {},
            set(self.removed) if saves else set(),
            dict(self.profile),
            self.ahead,
            len(self.further["next_run"].events) if "next_run" in self.further else 0,
        )
        parts: dict[str, Any] = {name: tuple(getattr(self, name)) for name in counts}
        parts |= self.further
        if "settled" in parts:
            parts["settle_waits"] = parts.pop("settled")
        if self.profile:
            parts["profile"] = dict(self.profile)
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
        return self.copy.history.judged(change.items, waiting | self.excused)

    def ends_step(self, before: bool) -> bool:
        """Tell whether a step that made calls is over once the commit under way stands; `before`, if it was so far."""
        judged = self._under_way.judged if self._under_way is not None else None
        if judged is None:
            return before
        return not judged.open and (before or bool(self.copy.history.open or judged.made))

    def landed(self, receipt: Receipt) -> None:
        """Note that the commit these parts went along with stands."""
        under_way, self._under_way = self._under_way, None
        assert under_way is not None
        for name, count in under_way.counts.items():
            del getattr(self, name)[:count]
        if under_way.judged is not None:
            self.copy.history.accept(under_way.judged)
        for name, change in under_way.logs.items():
            if name in self.copy.logs and "/" not in name:
                self._anew.pop(name, None)
                self._written[name] = self._written.get(name, 0) + len(change.items)
                self._before.pop(name, None)
        saved = bool(under_way.logs or under_way.document or under_way.removed)
        if under_way.ahead is not None:
            saved |= under_way.ahead.saves
            under_way.ahead.landed, self.ahead = True, None
        if self.document:
            self.document = {n: v for n, v in self.document.items() if under_way.document.get(n, self) is not v}
        if self.removed:
            self.removed -= under_way.removed
        if self.profile:
            self.profile = {n: v for n, v in self.profile.items() if under_way.profile.get(n, self) is not v}
        self.status, self.steps, self.further = None, None, {}
        values = self._stored.document
        if under_way.document or under_way.removed:
            values = {n: v for n, v in values.items() if n not in under_way.removed} | under_way.document
        self._stored = _Stored.of(self.copy, values)
        self.copy.landed(receipt, saved=saved, events=under_way.counts.get("events", 0) + under_way.next_events)


@dataclass(frozen=True, slots=True)
class _Stored:
    """What of the session is in the store, to be gone back to."""

    document: dict[str, JSON]
    status: SessionStatus
    definition: Definition | None
    profile: Profile

    @classmethod
    def of(cls, copy: Replica, document: dict[str, JSON] | None = None) -> "_Stored":
        return cls(copy.document if document is None else document, copy.status, copy.definition, copy.profile)


@dataclass(frozen=True, slots=True)
class _UnderWay:
    counts: dict[str, int]
    judged: Judged | None
    logs: dict[str, LogChange]
    document: dict[str, JSON]
    removed: set[str]
    profile: dict[str, JSON]
    ahead: Handover | None
    next_events: int


class _Kept(NamedTuple):
    """How many entries a log that begins anew keeps, and at which end of it, if not at its present one."""

    upto: int
    keep: LogEnd | None
