"""One session in memory, kept in step with the store by every commit of the turn that uses it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from tenuto.argument import MAPPING
from tenuto.codec import JSON, encode
from tenuto.messages.message_form import FRAME
from tenuto.model.commit import Receipt
from tenuto.model.input import Input
from tenuto.model.run import Run, RunStatus
from tenuto.model.session import Ends, Profile, SessionKey, SessionRecord, SessionStatus, Stamp
from tenuto.runtime.conversation.history import History
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.session_view import MESSAGES, Changes, DeclaredState, LogView, SessionView, profile_after
from tenuto.runtime.session.traits import ProgramTraits
from tenuto.runtime.turn.context_digest import ContextDigest
from tenuto.store.store import Store
from tenuto.writing.changes import Base


@dataclass(slots=True)
class Replica:
    """One session in memory, with an index of its conversation and the status of its last run.

    Logs are lists that only grow, so that views of them never change; a log that is rewritten becomes another list.
    `last_run` is the session's current run and its status, None if it never had one. `queue` is the open input that was
    known when the stream was at `event_seq`; `no_steering` means that none of it was for the running turn.
    `acknowledges` is the operation id of this process's last commit. `is_behind` means that others committed between
    those of this process, such as metadata, which they write without the lane.
    """

    key: SessionKey
    life: int
    version: int
    commit_number: int
    generation: int
    status: SessionStatus
    definition: Definition | None
    profile: Profile
    document: dict[str, JSON]
    logs: dict[str, list[Any]]
    ends: Ends
    schema_version: str
    resume_count: int
    created_at: datetime
    updated_at: datetime
    size: int
    last_run: tuple[str, RunStatus] | None = None
    history: History = field(default_factory=History)
    frame_at: int | None = None
    event_seq: int = 0
    queue: "QueueView | None" = None
    no_steering: bool = False
    acknowledges: str | None = None
    is_conversation: bool = True
    declared: DeclaredState | None = None
    projected: Any = None
    digest: ContextDigest = field(default_factory=ContextDigest)
    is_behind: bool = False

    @classmethod
    def of(
        cls, record: SessionRecord, definition: Definition | None, run: Run | None, traits: ProgramTraits
    ) -> "Replica":
        """Return the replica of a loaded record; messages that are not a conversation are not indexed."""
        head = record.head
        assert head is not None
        replica = cls(
            key=head.key,
            life=head.life,
            version=head.version,
            commit_number=head.commit_number,
            generation=head.generation,
            status=head.status,
            definition=definition,
            profile=head.profile,
            document={name: value for name, value in record.state.items() if name not in record.logs},
            logs={name: record.state[name] for name in record.logs},
            ends=head.ends,
            schema_version=record.schema_version,
            resume_count=head.resume_count,
            event_seq=head.event_seq,
            created_at=head.created_at,
            updated_at=head.updated_at,
            size=len(encode(record.state)),
            last_run=(run.run_id, run.status) if run else None,
            is_conversation=traits.is_conversation,
            declared=traits.declared,
        )
        replica.reindex()
        return replica

    def reindex(self, upto: int | None = None) -> None:
        """Recompute the open calls and used ids of the first `upto` messages, or of all, and find the last frame."""
        self.digest.forget()
        messages = self.logs.get(MESSAGES, []) if self.is_conversation else []
        self.history = History.of(messages[:upto])
        self.frame_at = next((at for at in range(len(messages) - 1, -1, -1) if is_frame(messages[at])), None)

    @property
    def base(self) -> Base:
        """The point of the session that a turn on this replica starts from."""
        return Base(version=self.version, ends=self.ends)

    @property
    def messages(self) -> list[Any]:
        """The conversation's own list, not a copy."""
        return self.logs.get(MESSAGES, [])

    def value(self) -> SessionView:
        """Return the current session as a value; later changes of this replica do not affect it."""
        return SessionView(
            key=self.key,
            status=self.status,
            version=self.version,
            commit_number=self.commit_number,
            definition=self.definition,
            profile=self.profile,
            document=MappingProxyType(self.document),
            logs=MappingProxyType({name: LogView(items) for name, items in self.logs.items()}),
            schema_version=self.schema_version,
            _declared=self.declared,
            resume_count=self.resume_count,
            event_seq=self.event_seq,
            created_at=self.created_at,
            updated_at=self.updated_at,
        )

    @property
    def queue_empty(self) -> bool:
        """Whether no input was open when the stream was at `event_seq`."""
        return self.queue is not None and not self.queue.more and not self.queue.inputs

    def note_stamp(self, stamp: Stamp) -> None:
        """Note the position of the stream, and whether input is open."""
        if not stamp.has_input:
            self.queue = QueueView()
        elif stamp.event_seq != self.event_seq:
            self.queue = None
        self.event_seq, self.no_steering = stamp.event_seq, not stamp.steers

    def note_queue(self, inputs: Sequence[Input], *, more: bool) -> None:
        """Note the open input, in order, and whether there is more; it is kept only if all of it is simply due next."""
        plain = all(each.boundary is None and each.run_id is None and each.due_at is None for each in inputs)
        self.queue = QueueView(deque(inputs), more) if plain else None
        self.no_steering = plain and not more
        if self.no_steering and inputs:
            self.event_seq = max(self.event_seq, inputs[-1].seq)  # the stream's position when the last input arrived

    def pop_queue(self, taken: Input) -> None:
        """Note that a turn of this process began with an input."""
        if self.queue is not None and self.queue.inputs and self.queue.inputs[0].input_id == taken.input_id:
            self.queue.inputs.popleft()
        else:
            self.queue = None

    def invalidate_queue(self) -> None:
        """Note that something arrived: the open input has to be read again."""
        self.queue, self.no_steering = None, False

    def note_events(self, events: int, event_seq: int) -> None:
        """Note that our events moved the stream to this number; if there are others between, something arrived."""
        if event_seq != self.event_seq + events:
            self.invalidate_queue()
        self.event_seq = event_seq

    def landed(self, receipt: Receipt, *, saved: bool, events: int = 0) -> None:
        """Note a commit of this process."""
        self.note_events(events, receipt.event_seq)
        if receipt.commit_number != self.commit_number + 1:
            self.is_behind = True
        self.commit_number = receipt.commit_number
        self.generation = receipt.generation
        self.acknowledges = receipt.operation_id
        self.updated_at = receipt.committed_at
        if saved:
            self.version = receipt.version
            self.ends = receipt.ends

    async def catch_up(self, store: Store) -> bool:
        """Read what others may have written without the lane, if they committed; return whether it was read."""
        if not self.is_behind:
            return False
        head = await store.head(self.key)
        if head is None or head.life != self.life:
            return False  # deleted: the next commit is refused
        self.profile, self.definition = head.profile, Definition.read(head.profile.definition)
        self.is_behind = False
        return True

    def take(self, changes: Changes, after: SessionView) -> None:
        """Apply changes that were committed."""
        if changes.document or changes.removed:
            document = self.document | dict(changes.document)
            self.document = {name: value for name, value in document.items() if name not in changes.removed}
        for name in changes.removed:
            self.logs.pop(name, None)
        for name, change in changes.logs.items():
            if change.anew:
                self.logs[name] = list(after.logs[name])
            else:
                self.add(name, change.items)
            if name == MESSAGES:
                self.reindex()
        self.status, self.definition, self.profile = after.status, after.definition, profile_after(changes, after)
        self.schema_version = after.schema_version

    def add(self, name: str, items: Sequence[Any]) -> None:
        """Add entries to a log; messages have been checked by then."""
        log = self.logs.setdefault(name, [])
        if name == MESSAGES:
            for at, item in enumerate(items, start=len(log)):
                if is_frame(item):
                    self.frame_at = at
        log.extend(items)


def is_frame(message: Any) -> bool:
    """Return whether an entry of the conversation is a frame's mark."""
    return isinstance(message, MAPPING) and message.get("role") == FRAME


def rough_size(value: Any) -> int:
    """Return the approximate length of a value's text, without encoding it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, MAPPING):
        return sum(len(name) + rough_size(each) for name, each in value.items())
    return sum(map(rough_size, value)) if isinstance(value, list) else 8


@dataclass(slots=True)
class QueueView:
    """A session's open input for its next turns, in order; `more` means that these are only the first."""

    inputs: deque[Input] = field(default_factory=deque)
    more: bool = False
