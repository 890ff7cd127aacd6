"""A commit as text: what `pack` makes of it, before any transaction."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.model.commit import Commit
from tenuto.model.session import Profile
from tenuto.store.rules.parts.effect_rules import PackedEffect
from tenuto.store.rules.parts.input_rules import PackedInput
from tenuto.store.rules.parts.outgoing_rules import PackedOutgoing
from tenuto.store.rules.parts.wait_rules import PackedWait


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


class PackedNext(NamedTuple):
    """The texts of a next run: its input's entry, the cursor of the point before it, its events."""

    item: str
    cursor: str | None
    events: str | None


@dataclass(slots=True)
class PackedCommit:
    """A commit with every part as text and every id it mints.

    `holders` are the documents that hold values by hash, and `shown` is the part of the profile in the session's row.
    """

    commit: Commit
    document: PackedDocument
    items: dict[str, list[str]]
    events: str | None
    birth: Profile | None
    checkpoint: PackedDocument | None = None
    cursor: str | None = None
    waits: list[PackedWait] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    inputs: list[PackedInput] = field(default_factory=list)
    effects: list[PackedEffect] = field(default_factory=list)
    outgoing: list[PackedOutgoing] = field(default_factory=list)
    next_run: PackedNext | None = None
    error: str | None = None
    outcome: str | None = None
    additions: str | None = None
    profile: dict[str, Any] = field(default_factory=dict)
    metadata: str | None = None
    shown: dict[str, Any] = field(default_factory=dict)
    holders: list[PackedDocument] = field(default_factory=list)
    size: int = 0
    rows: int = 0
    intent: str = ""
