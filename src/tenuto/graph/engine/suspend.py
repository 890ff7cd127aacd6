"""Suspending a run from inside a node, and saving the session there."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

from tenuto.codec import JSON, encode
from tenuto.errors import InvalidInput, SuspensionInUnsupportedContext
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.events.node_event import Ending
from tenuto.model.commit import OpenWait

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame


@dataclass(frozen=True, slots=True)
class SignalDescriptor:
    """What a suspended run waits for, in the program's own words; metadata is for whoever is to answer."""

    signal_id: str
    metadata: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.signal_id, str) or not self.signal_id:
            raise InvalidInput(f"A signal needs an id, got {self.signal_id!r}.")
        object.__setattr__(self, "metadata", dict(self.metadata or {}))
        encode(self.metadata)

    def with_metadata(self, **values: JSON) -> "SignalDescriptor":
        """Return the descriptor with metadata added where it has none of that name."""
        return replace(self, metadata={**values, **self.metadata})


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """Where an answer can be sent, and the token that shows who may send it; given by the door the run came through."""

    url: str
    token: str


CallbackMaker = Callable[[str, str], Callback]
"""Makes the callback of an invocation's signal, from invocation id and signal id."""


class Suspending(BaseException):
    """A node asked for the run to be suspended; not an error, so that no node or middleware takes it for one."""

    ending = Ending.SUSPENDED

    def __init__(
        self, frame: "GraphFrame", descriptor: SignalDescriptor, *, completed: bool, timeout: float | None
    ) -> None:
        super().__init__(descriptor.signal_id)
        self.frame = frame
        self.descriptor = descriptor
        self.completed = completed
        self.timeout = timeout
        self.node = ""
        self.state: Any = None
        self.namespace: tuple[str, ...] = ()
        self.step: int | None = None
        self.waits: tuple[OpenWait, ...] = ()

    def left(self, node: str, state: Any, namespace: tuple[str, ...]) -> None:
        """Note the node that asked; the graphs around it do not change that."""
        if not self.node:
            self.node, self.state, self.namespace = node, state, namespace

    def stands_before(self, step: int) -> None:
        """Note the step of the innermost node a cursor can stand at: run again, it is the same step."""
        if self.step is None and step >= 0:
            self.step = step

    def annotate(self, **place: JSON) -> None:
        """Add to the descriptor where among instances or branches the asking node ran."""
        self.descriptor = self.descriptor.with_metadata(**place)


async def suspend(
    descriptor: SignalDescriptor,
    *,
    mark_node_completed: bool = True,
    timeout: float | None = None,  # noqa: ASYNC109 - nothing waits here: it is how long the answer may take
) -> NoReturn:
    """Suspend the run here: everything is written, and the invocation ends until it is resumed, anywhere.

    The node's own update is dropped. On resume the run goes on after this node, or with `mark_node_completed=False`
    runs it again. After `timeout` seconds the pause cannot be answered any more. Only a node's body may call this; not
    middleware, and nothing inside a fan-out or branches that collect errors.
    """
    if not isinstance(descriptor, SignalDescriptor):
        raise InvalidInput(f"suspend takes a SignalDescriptor, got {type(descriptor).__name__}.")
    if timeout is not None and (math.isnan(timeout) or timeout <= 0):
        raise InvalidInput(f"A timeout must be more than 0 seconds, got {timeout}.")
    frame = _frame_of_body("suspend")
    if frame.unsuspendable:
        raise SuspensionInUnsupportedContext(
            f"suspend() is not possible inside {frame.unsuspendable}: the others' results would be lost.",
            graph=frame.graph.name,
        )
    raise Suspending(frame, descriptor, completed=mark_node_completed, timeout=timeout)


async def save_session(partial: Mapping[str, Any] | None = None) -> None:
    """Save the session now, as it would be if the node returned `partial` here; others see it at once.

    May be repeated: each call, and the node's own return, starts from the state at the node's entry. A save that fails
    raises here. Without a session it does nothing. Only the outermost graph's nodes have a session to save.
    """
    frame = _frame_of_body("save_session")
    if frame.parent is not None:
        raise InvalidInput(
            "save_session() belongs to nodes of the outermost graph: a session is not seen inside subgraphs, instances "
            "and branches.",
            graph=frame.graph.name,
        )
    journal = frame.run.journal
    if journal is None or not journal.has_session:
        return
    attempt = frame.attempt
    assert attempt is not None
    state = attempt.state
    if partial is not None:
        state = frame.graph.schema.merge(state, partial, frame.graph.name, attempt.name)
    await journal.save(frame, state)


def callback_for(signal_id: str) -> Callback | None:
    """Return where and with what token a signal of this invocation can be answered; None if no door provides it."""
    scope = scope_variable.get()
    if scope is None or scope.callbacks is None:
        return None
    made: Callback = scope.callbacks(scope.invocation_id, signal_id)
    return made


def _frame_of_body(verb: str) -> "GraphFrame":
    scope = scope_variable.get()
    frame: GraphFrame | None = scope.frame if scope else None
    if frame is None or frame.attempt is None:
        where = "outside an invocation" if frame is None else "from middleware"
        raise SuspensionInUnsupportedContext(f"{verb}() was called {where}; call it in a node's body.")
    return frame
