"""The one kind of write: a commit, what goes into it, and the receipt that comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from tenuto.codec import JSON
from tenuto.model.effect import EffectChange
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, NewInput
from tenuto.model.lane import DEFAULT_TTL, Rearm
from tenuto.model.outgoing import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Ends, LogEnd, SessionKey, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.model.wait import WaitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A value the store already holds under this content hash; naming it costs no bytes."""

    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Add items to a log.

    With `base`, the items belong after that end: if the log has moved on, they go on a new branch made there.
    """

    items: tuple[JSON, ...] = ()
    base: LogEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Give a log a new branch: what `keep` names (nothing, if None), then `items`. The old branch stays until gc."""

    items: tuple[JSON, ...] = ()
    keep: LogEnd | None = None


LogWrite: TypeAlias = Append | Reset


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRun:
    """Begin a run in this commit.

    `fresh=False` goes on with a known invocation, and then `ends` and `base_version` name where it stands,
    if not at the head. Without a lane, the run counts as alive for `ttl` seconds from its last renewal.
    """

    run_id: str
    invocation_id: str
    origin_id: str | None = None
    correlation_id: str | None = None
    worker: str | None = None
    fresh: bool = True
    base_version: int | None = None
    base_ends: Ends | None = None
    ends: Ends | None = None
    ttl: float = DEFAULT_TTL


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRun:
    """Take over a run whose runner is gone: it must be running at `attempt`, and goes on at the next.

    `gone` names a worker that is proven gone, so that its run need not lapse first. `ends`, with its base, names where
    the run goes on if not where it stood, since its session has moved on.
    """

    run_id: str
    attempt: int
    worker: str | None = None
    gone: str | None = None
    base_version: int | None = None
    base_ends: Ends | None = None
    ends: Ends | None = None
    ttl: float = DEFAULT_TTL


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """End the commit's run with this status."""

    status: RunStatus
    partial: bool = False
    error: JSON = None
    outcome: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """The run that follows at once on the one its commit ends, under the same lane, which is renewed.

    It begins with an open input, where the ended run leaves the session: `item`, the input's entry, comes last in
    `log`. A point of the session as it is before that is left, with `cursor`, to be found by the commit. `events` are
    the new run's.
    """

    begin: BeginRun
    input_id: str
    log: str
    item: JSON
    cursor: JSON = None
    events: tuple[NewEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCheckpoint:
    """A checkpoint to be written; its log ends are the run's after this commit.

    With `before`, they are those from before it: the run's, or the head's where the commit begins the run or has none.
    Such a point is the session's, not the run's; it is found by the commit that wrote it. Unless it is given a document
    of its own, it has the head's from before the commit, which costs nothing however big it is.
    """

    step: int
    cursor: JSON = None
    document: Mapping[str, JSON | Held] = field(default_factory=dict)
    schema_version: str = ""
    before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWait:
    """A wait to be opened for the commit's run; the receipt names its minted id.

    Past its deadline, or `timeout` seconds after the commit, it can be settled but not answered, unless `late`.
    """

    kind: str
    signal_id: str | None = None
    deadline: datetime | None = None
    timeout: float | None = None
    schema: JSON = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleWait:
    """An open wait of this session to be settled.

    With `late`, it is answered also past its deadline, as long as it is open. That is a guard and no part of what the
    commit means: an answer that landed in time is known again when it is repeated late.
    """

    wait_id: str
    status: WaitStatus = WaitStatus.ANSWERED
    answer: JSON = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One atomic, guarded, receipted write to one session.

    Guards: `life` and, where given, `generation` (the lane), `run` (running at this attempt), `statuses` (the
    session's), `expected_version`, `expected_commit` and `expected_events` (where the stream stands: whoever queues
    input or asks for a stop moves it). Log names with a `/` live on the run's branches only and never reach a head. A
    save that `carries` only writes the same state in other words, such as a migration: ended runs that stood at the
    version before stand at the new one, and the session has not moved for them.

    `inputs` are input that arrives with the commit and is consumed by it, `consume` names open input; both end in the
    commit's run. The commit that ends a run leaves what was meant for it to the next turn and drops the bodies of what
    it consumed. `rolls_back` marks the runs of a former run's invocation, and the input they consumed, as taken back.
    While a stop stands on the run, it ends neither as completed nor as suspended; `sees_stop` marks it as seen, and it
    cannot then be withdrawn.
    `effects` are journaled for the run's origin, whose completion drops their bodies; `outgoing` starts nothing by
    itself: the outbox delivers it. With `next_run`, the session goes from the ended run to its next one in this commit,
    so that nobody sees it between them.

    `heard` names the writer's operation before this one, once its receipt has arrived: it will not be repeated, and the
    store lets its receipt go.
    """

    key: SessionKey
    operation_id: str
    life: int
    heard: str | None = None

    generation: int | None = None
    run: RunRef | BeginRun | TakeRun | None = None
    statuses: frozenset[SessionStatus] | None = None
    expected_version: int | None = None
    expected_commit: int | None = None
    expected_events: int | None = None

    save: bool = False
    carries: bool = False
    document: Mapping[str, JSON | Held] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    logs: Mapping[str, LogWrite] = field(default_factory=dict)
    schema_version: str | None = None

    status: SessionStatus | None = None
    profile: Mapping[str, JSON] = field(default_factory=dict)
    count_resume: bool = False
    steps: int | None = None
    end: EndRun | None = None
    checkpoint: NewCheckpoint | None = None
    open_waits: tuple[OpenWait, ...] = ()
    settle_waits: tuple[SettleWait, ...] = ()
    events: tuple[NewEvent, ...] = ()
    inputs: tuple[NewInput, ...] = ()
    consume: tuple[Consume, ...] = ()
    rolls_back: str | None = None
    sees_stop: bool = False
    effects: tuple[EffectChange, ...] = ()
    usage: tuple[NewUsage, ...] = ()
    outgoing: tuple[NewOutgoing, ...] = ()
    next_run: NextRun | None = None

    rearm: Rearm | None = None
    disarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a commit did. `replayed` says that it had landed before and nothing was written this time.

    `wait_ids`, `input_ids` and `outgoing_ids` are minted, in the order of the commit's parts.
    """

    operation_id: str
    life: int
    commit_number: int
    version: int
    generation: int
    event_seq: int
    ends: Ends
    wait_ids: tuple[str, ...]
    committed_at: datetime
    replayed: bool = False
    input_ids: tuple[str, ...] = ()
    outgoing_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How much one commit may write."""

    max_bytes: int = 16 * 1024 * 1024
    max_rows: int = 10_000
