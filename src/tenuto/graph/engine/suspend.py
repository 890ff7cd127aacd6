"""Suspending a run from inside a node, and saving the session there."""

import math
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from tenuto.codec import JSON
from tenuto.errors import InvalidInput, SuspensionInUnsupportedContext
from tenuto.graph.checkpoint.suspend_request import SuspendRequest
from tenuto.graph.engine.scope import scope_variable
from tenuto.graph.engine.thread_call import refuse_in_thread
from tenuto.graph.events.node_event import Ending
from tenuto.graph.signal import Callback, SignalDescriptor

if TYPE_CHECKING:
    from tenuto.graph.engine.graph_frame import GraphFrame


class Suspending(BaseException):
    """A node asked for the run to be suspended; not an error, so that no node or middleware treats it as one."""

    ending = Ending.SUSPENDED

    def __init__(self, request: SuspendRequest) -> None:
        super().__init__(request.descriptor.signal_id)
        self.request = request

    def annotate(self, **place: JSON) -> None:
        """Add to the descriptor in which instance or branch the node ran."""
        described = self.request.descriptor.with_metadata(**place)
        self.request = replace(self.request, descriptor=described)


def suspend(
    descriptor: SignalDescriptor | str, *, mark_node_completed: bool = True, timeout: float | timedelta | None = None
) -> Coroutine[Any, Any, NoReturn]:
    """Suspend the run here: everything is written, and the invocation ends until it is resumed, anywhere.

    A text is the signal's id, without metadata. The node's own update is dropped. A resume continues after this node,
    or with `mark_node_completed=False` runs it again. After `timeout` seconds the pause can no longer be answered. Only
    the async body of a node may call this, not middleware, and nothing inside a fan-out or branches that collect
    errors.
    """
    refuse_in_thread("suspend")
    return _suspend(descriptor, timeout, completed=mark_node_completed)


async def _suspend(
    descriptor: SignalDescriptor | str,
    timeout: float | timedelta | None,  # noqa: ASYNC109 - as above
    *,
    completed: bool,
) -> NoReturn:
    if isinstance(descriptor, str):
        descriptor = SignalDescriptor(descriptor)
    if not isinstance(descriptor, SignalDescriptor):
        raise InvalidInput(f"suspend takes a SignalDescriptor, or the signal's id, got {type(descriptor).__name__}.")
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if timeout is not None and (math.isnan(timeout) or timeout <= 0):
        raise InvalidInput(f"A timeout must be more than 0 seconds, got {timeout}.")
    frame = _frame_of_body("suspend")
    if frame.unsuspendable:
        raise SuspensionInUnsupportedContext(
            f"suspend() is not possible inside {frame.unsuspendable}: the others' results would be lost.",
            graph=frame.graph.name,
        )
    raise Suspending(frame.suspend_request(descriptor, completed=completed, timeout=timeout))


def save_session(partial: Mapping[str, Any] | None = None) -> Coroutine[Any, Any, None]:
    """Save the session now, as if the node returned `partial` here; others see it at once.

    May be repeated: each call, and the node's own return, starts from the state at the node's entry. A save that fails
    raises here. Without a session it does nothing. Only async nodes of the outermost graph can save it.
    """
    refuse_in_thread("save_session")
    return _save_session(partial)


async def _save_session(partial: Mapping[str, Any] | None) -> None:
    frame = _frame_of_body("save_session")
    if frame.parent is not None:
        raise InvalidInput(
            "save_session() belongs to nodes of the outermost graph: subgraphs, instances and branches do not see a "
            "session.",
            graph=frame.graph.name,
        )
    journal = frame.run.journal
    if journal is None or journal.session is None:
        return
    attempt = frame.attempt
    assert attempt is not None
    state = attempt.state
    if partial is not None:
        state = frame.graph.schema.merge(state, partial, frame.graph.name, attempt.name)
    await journal.save(frame, state)


def callback_for(signal_id: str) -> Callback | None:
    """Return where and with which token a signal of this invocation can be answered; None if no door provides it."""
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
