"""A turn of the runtime as the nodes of its graph see it: outside calls, chunks of a reply, usage."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, TypeVar, cast

from tenuto.errors import InvalidInput
from tenuto.graph.checkpoint.ledger import escaped
from tenuto.graph.engine.scope import Scope, scope_variable
from tenuto.graph.engine.suspend import Suspending
from tenuto.graph.engine.thread_call import on_loop
from tenuto.graph.signal import SignalDescriptor
from tenuto.model.effect import EffectStatus
from tenuto.runtime.calls.arguments import check_once
from tenuto.runtime.calls.effect_call import call_effect, in_doubt_error
from tenuto.runtime.calls.failure import Raises
from tenuto.runtime.calls.model_call import call_model
from tenuto.runtime.calls.result_form import Returns, form_of
from tenuto.runtime.calls.retry import Backoff, Retry, RetryOn
from tenuto.runtime.program.turn import Turn, context_of
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.turn.context import TurnContext
from tenuto.runtime.turn.effect_journal import Place
from tenuto.runtime.turn.invocation import TurnSuspended
from tenuto.words import JSON, EffectKind, Seconds

T = TypeVar("T")


def _of_turn(name: str) -> Any:
    """Return a property that is the turn's own of that name."""
    return property(attrgetter(f"_live.{name}"), doc=getattr(Turn, name).__doc__)


class NodeTurn:
    """The turn a node runs in. What the session keeps is the graph's state, which a node changes by what it returns."""

    __slots__ = ("_live",)

    def __init__(self, live: Turn) -> None:
        self._live = live

    session_id: str = _of_turn("session_id")
    run_id: str = _of_turn("run_id")
    attempt: int = _of_turn("attempt")
    input: JSON = _of_turn("input")
    definition: Definition = _of_turn("definition")
    trace_id: str | None = _of_turn("trace_id")

    async def model(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        key: str | None = None,
        request: JSON = None,
        returns: Returns[T] | None = None,
        retries: int = 2,
        backoff: Backoff = 0.5,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - of each making of the call
        retry_on: RetryOn | None = None,
    ) -> T:
        """Call a model once, and return what it said; see `Turn.model`. Each node counts its own."""
        live, scope = context_of(self._live), _scope()
        with _suspending(live, scope, self._place(scope, "model")):
            result = await call_model(
                live,
                lambda key: self._place(scope, key),
                call,
                key=key,
                request=request,
                retry=Retry(retries, backoff, timeout, retry_on),
                form=form_of(returns),
                caller=scope,
                may_suspend=False,
            )
        return cast("T", result)

    async def effect(
        self,
        key: str,
        call: Callable[[], Awaitable[T]],
        request: JSON = None,
        *,
        kind: EffectKind = "tool",
        idempotent: bool = False,
        call_id: str | None = None,
        returns: Returns[T] | None = None,
        raises: Raises = (),
        retries: int = 0,
        backoff: Backoff = 0.5,
        timeout: Seconds | None = None,  # noqa: ASYNC109 - of each making of the call
        retry_on: RetryOn | None = None,
    ) -> T:
        """Make an outside call once, and return its result; see `Turn.effect`.

        It is identified by the node's place, its step and the key: a node that runs again after a crash or a suspension
        gets the recorded result, a loop calls again. Another attempt at the node repeats only the calls that failed. A
        call in doubt that has to be asked about suspends the run before this node; in middleware, and where nothing can
        be suspended, it is an error.
        """
        live, scope = context_of(self._live), _scope()
        place = self._place(scope, key)
        with _suspending(live, scope, place):
            result = await call_effect(
                live,
                place,
                call,
                request,
                kind=kind,
                idempotent=idempotent,
                call_id=call_id,
                record=None,
                caller=scope,
                may_suspend=False,
                retry=Retry(retries, backoff, timeout, retry_on),
                form=form_of(returns),
                raises=raises,
            )
        return cast("T", result)

    def _place(self, scope: Scope, key: str) -> Place:
        namespace = namespace_of(scope)
        place = Place(namespace, self._live.step, key)
        for attempt in range(1, scope.attempt_index + 1):
            known = context_of(self._live).journal.find(place)
            if known is None or known.status is not EffectStatus.FAILED:
                break
            place = place._replace(namespace=f"{namespace}#{attempt}")
        return place

    def emit(self, chunk: JSON) -> None:
        """Show a part of the reply under way to whoever follows the session's stream."""
        on_loop(self._live.emit, chunk)

    def record_usage(self, model: str, *, source: str = "", once: str | None = None, **counted: int) -> None:
        """Record the tokens of a model call; see `Turn.record_usage`."""
        check_once(once)
        place = None if once is None else f"{namespace_of(_scope())}:{once}"
        on_loop(self._live.record_usage, model, source=source, once=place, **counted)


@contextmanager
def _suspending(live: TurnContext, scope: Scope, place: Place) -> Iterator[None]:
    """Suspend the run before the node if its call has to wait for an answer."""
    try:
        yield
    except TurnSuspended as signal:
        frame = scope.frame
        if frame.unsuspendable or frame.attempt is None:
            raise in_doubt_error(live, place) from None
        asked = SignalDescriptor(f"in_doubt:{place}")
        raise Suspending(frame.suspend_request(asked, completed=False, waits=signal.waits)) from None


def current_turn() -> NodeTurn | None:
    """Return the turn of the runtime the running node belongs to; None if the graph runs by itself."""
    scope = scope_variable.get()
    return NodeTurn(scope.turn) if scope is not None and scope.turn is not None else None


def _scope() -> Scope:
    scope = scope_variable.get()
    if scope is None or scope.frame is None:
        raise InvalidInput("Only a node has a turn to call from; this code runs outside its graph.")
    return scope


def namespace_of(scope: Scope) -> str:
    """Return a name for the place of a node that is the same whenever it runs there again.

    That is its path and its step. Inside instances and branches, where the order of steps varies, the step is that of
    the node around them all, and each level adds its index or branch, the node, and how often that ran before.
    """
    frame, node = scope.frame, scope.namespace[-1]
    below: list[str] = []
    while not frame.linear:
        place: Any = frame.scope.branch_name_chain[-1] or frame.scope.fan_out_index_chain[-1]
        below.insert(0, f"{'' if place is None else place}:{escaped(node)}:{frame.rounds.get(node, 0)}")
        node, frame = frame.scope.namespace[-1], frame.parent
    step = frame.attempt.step if frame.attempt is not None and frame.attempt.step >= 0 else frame.run.step
    path = "/".join(escaped(each) for each in (*frame.scope.namespace, node))
    return "/".join([f"{path}@{step}", *below])
