"""The one kind of write: a commit, its parts, and the receipt it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from tenuto.codec import JSON
from tenuto.model.effect import EffectChange
from tenuto.model.event import NewEvent
from tenuto.model.input import Consume, NewInput
from tenuto.model.lane import DEFAULT_TTL, Rearm
from tenuto.model.outgoing_item import NewOutgoing
from tenuto.model.run import RunRef, RunStatus
from tenuto.model.session import Ends, LogEnd, SessionKey, SessionStatus
from tenuto.model.token_usage import NewUsage
from tenuto.model.wait import WaitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A value that the store already holds under this content hash, referenced instead of written again."""

    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Add items to a log.

    With `base`, the items follow that end: if the log has grown since, they are written to a new branch from there.
    """

    items: tuple[JSON, ...] = ()
    base: LogEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """Put a log on a new branch: the entries up to `keep` (none, if None), then `items`. gc removes the old branch."""

    items: tuple[JSON, ...] = ()
    keep: LogEnd | None = None


LogWrite: TypeAlias = Append | Reset


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRun:
    """Begin a run in this commit.

    `fresh=False` resumes a known invocation; `ends` and `base_version` then name its position, if that is not the head.
    Without a lane, the run counts as alive for `ttl` seconds after its last renewal. `budget` is how many steps it may
    take; its runners read it.
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
    budget: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRun:
    """Take over a run whose runner is gone: it must be running at `attempt`, and continues with the next attempt.

    `gone` names a worker that is proven gone, so that its run need not lapse first. `ends`, with its base, names where
    the run continues if its session has moved since and the run cannot continue where it was.
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
    """The run that begins in the commit that ends the one before it, under the same lane, which is renewed.

    It begins with an open input, on the session as the ended run leaves it: `item`, the input's entry, becomes the last
    entry of `log`. A checkpoint of the session before that entry is written with `cursor`; it is looked up by its
    commit. `events` belong to the new run.
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

    With `before`, its log ends are those before the commit: the run's, or the head's if the commit begins a run or has
    none. Such a checkpoint belongs to the session, not to the run, and is looked up by the commit that wrote it. If no
    document is passed, it has the head's document before the commit, which costs nothing at any size.
    """

    step: int
    cursor: JSON = None
    document: Mapping[str, JSON | Held] = field(default_factory=dict)
    schema_version: str = ""
    before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWait:
    """A wait to be opened for the commit's run; the receipt names its minted id.

    After its deadline, or `timeout` seconds after the commit, it can be settled, but not answered unless
    `SettleWait.late` is set. `graph` names the graph that pauses with it, if that runs without a runtime.
    """

    kind: str
    signal_id: str | None = None
    deadline: datetime | None = None
    timeout: float | None = None
    schema: JSON = None
    metadata: Mapping[str, JSON] = field(default_factory=dict)
    graph: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleWait:
    """An open wait of this session to be settled.

    With `late`, it can be answered after its deadline too, as long as it is open. That is a guard and not part of the
    commit's intent: an answer that landed in time is recognised when it is repeated late.
    """

    wait_id: str
    status: WaitStatus = WaitStatus.ANSWERED
    answer: JSON = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataChange:
    """What changes in a session's metadata, key by key; other keys keep the values they have when it is written."""

    values: Mapping[str, JSON] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One atomic, guarded, receipted write to one session.

    Guards: `life` and, if set, `generation` (the lane), `run` (running at this attempt), `statuses` (the session's),
    `expected_version`, `expected_commit` and `expected_events` (the position of the stream: queued input and stop
    requests move it). Log names with a `/` live on the run's branches only and never reach a head. A save that
    `carries` writes the same state in another form, such as a migration: ended runs based on the version before are
    then based on the new one, so the session has not moved for them.

    `inputs` arrive with the commit and are consumed by it, `consume` names open input; both end in the commit's run.
    The commit that ends a run leaves input meant for that run to the next turn, and drops the bodies of the input it
    consumed. `rolls_back` marks the runs of an earlier run's invocation, and the input they consumed, as rolled back;
    with `regenerates`, the message which began that invocation is from now on answered by the commit's run.
    While a stop is requested, the run can end neither as completed nor as suspended; `sees_stop` marks the request as
    seen, and it can no longer be withdrawn.
    `keep_waits` are open waits of the session's earlier runs: from now on the commit's run waits for them.
    `additions` replaces what the run's row says of the entries that its program added in its open step; None leaves it.
    `effects` are journaled for the run's origin, whose completion drops their bodies; `outgoing` starts nothing by
    itself: the outbox delivers it. With `next_run`, the session moves from the ended run to the next one in this
    commit, so that no reader sees it in between.

    `heard` names the writer's previous operation once its receipt has arrived: it will not be repeated, and the store
    removes its receipt.
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
    metadata: MetadataChange | None = None
    count_resume: bool = False
    steps: int | None = None
    additions: Mapping[str, JSON] | None = None
    end: EndRun | None = None
    checkpoint: NewCheckpoint | None = None
    open_waits: tuple[OpenWait, ...] = ()
    settle_waits: tuple[SettleWait, ...] = ()
    keep_waits: tuple[str, ...] = ()
    events: tuple[NewEvent, ...] = ()
    inputs: tuple[NewInput, ...] = ()
    consume: tuple[Consume, ...] = ()
    rolls_back: str | None = None
    regenerates: bool = False
    sees_stop: bool = False
    effects: tuple[EffectChange, ...] = ()
    usage: tuple[NewUsage, ...] = ()
    outgoing: tuple[NewOutgoing, ...] = ()
    next_run: NextRun | None = None

    rearm: Rearm | None = None
    disarm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What a commit did. `replayed` means that it had landed before and nothing was written this time.

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
