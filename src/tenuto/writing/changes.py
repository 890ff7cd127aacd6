"""What an engine passes to the run writer: the program's position, changes of logs, and changes of the head."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tenuto.codec import JSON
from tenuto.model.commit import EndRun, OpenWait, SettleWait
from tenuto.model.session import Ends, LogEnd


class LogChange(NamedTuple):
    """What happened to a log since it was last written: items were added, or it is rewritten.

    A rewritten log consists of the first `kept` entries it had, as seen from the end `keep` if that is not its current
    one, followed by the items.
    """

    items: Sequence[JSON]
    anew: bool = False
    kept: int = 0
    keep: LogEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDraft:
    """A point that a program can be resumed from: its position, and the fields of its state that are not logs."""

    step: int
    cursor: JSON
    document: Mapping[str, JSON]
    schema_version: str


class Base(NamedTuple):
    """The session as the turn knows it, after its last save or its load."""

    version: int = 0
    ends: Ends = {}


class Save(NamedTuple):
    """What a commit does to the session's head.

    `document` has the fields that changed, `whole` returns all of them; `logs` names all session logs. With
    `overwrites`, a session that moved since the base is overwritten with the turn's own view of it. `owner` is stored
    as the agent in the profile of a session that has none yet.
    """

    document: Mapping[str, JSON]
    whole: Callable[[], Mapping[str, JSON]]
    logs: frozenset[str]
    schema_version: str
    removed: frozenset[str] = frozenset()
    carries: bool = False
    overwrites: bool = False
    owner: str | None = None


class RunWrite(NamedTuple):
    """What one commit of a run is to write: the first one begins the run, the one with `end` ends it."""

    point: CheckpointDraft | None = None
    logs: Mapping[str, LogChange] = {}
    save: Save | None = None
    end: EndRun | None = None
    waits: tuple[OpenWait, ...] = ()
    settled: tuple[SettleWait, ...] = ()
