"""What the journal sees of a graph that is being executed."""

from typing import Protocol

from tenuto.graph.engine.scope import Scope
from tenuto.graph.state import Schema


class JournalGraph(Protocol):
    """The graph of a frame: its name, what its state declares, and its first node."""

    @property
    def name(self) -> str:
        """The name of the graph."""

    @property
    def schema(self) -> Schema:
        """What the graph's state declares."""

    @property
    def entry(self) -> str:
        """The first node."""


class JournalFrame(Protocol):
    """A frame: its graph and its place. One in no instance and no branch is `linear`: a cursor can point into it."""

    @property
    def graph(self) -> JournalGraph:
        """The graph being executed."""

    @property
    def scope(self) -> Scope:
        """The place of the frame."""

    @property
    def linear(self) -> bool:
        """Whether a cursor can point into this frame."""
