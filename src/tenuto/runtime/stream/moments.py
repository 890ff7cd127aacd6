"""Moments of a turn, for listeners that follow it while it runs: its begin, its calls, its waits, its end.

A listener with `inline = True` is called with them where they happen, in the context of the running code, besides the
notices that every listener gets. They are never stored. Without such a listener none is made.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from tenuto.codec import JSON
from tenuto.model.token_usage import NewUsage
from tenuto.writing.run_ids import RunIds

_log = logging.getLogger("tenuto.runtime")


CallPlace: TypeAlias = tuple[str, int, str]
"""The place of a call: namespace, step and key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something happens in a turn that runs here."""

    ids: RunIds


class SettledWait(NamedTuple):
    """A wait that was answered, or expired, and how many seconds it was open."""

    wait_id: str
    kind: str
    signal_id: str | None
    status: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAhead(Moment):
    """A turn is about to be begun by a commit, which may yet be refused.

    `trace_id` is the session's trace, `asked_by` the trace context of the turn of another session that waits for it,
    and `after` the turn that ends with the same commit.
    """

    trace_id: str | None = None
    asked_by: str | None = None
    after: RunIds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegan(TurnAhead):
    """A turn is about to run its program.

    `origin_id` is the invocation in whose name calls are recorded, `input_id` the input that began it, `resumes` the
    run that it continues and `follows` the trace context of that run, or of the former runner of this one; `settled`
    are the waits that run had, `model` is the definition's, and `waited` how many seconds its message was queued; None
    if it began at once.
    """

    origin_id: str
    input_id: str | None = None
    resumes: str | None = None
    follows: str | None = None
    settled: Sequence[SettledWait] = ()
    model: JSON = None
    waited: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOver(Moment):
    """A turn is over, for this runner: `status` is that of its run, or `lost` if the run is left to another runner."""

    status: str
    category: str | None = None
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsOpened(Moment):
    """A turn has opened waits: of each its id, its kind, and the program's own name for it."""

    waits: Sequence[tuple[str, str, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBegan(Moment):
    """A call to the outside is about to be made; a call whose result is known is not made.

    `tool` is the name of a tool that a model called, under `call_id`.
    """

    place: CallPlace
    kind: str
    request: JSON
    call_id: str | None = None
    tool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReplayed(Moment):
    """A program asked for a call whose result is known, so it was not made; `failed` if the result is an error."""

    place: CallPlace
    kind: str
    call_id: str | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRepeated(Moment):
    """A call failed and is made again, after a pause; `making` is the number of the one that failed, from 1."""

    place: CallPlace
    making: int
    pause: float
    exception: BaseException


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOver(Moment):
    """A call was made; it has a result, or an exception that it raised."""

    place: CallPlace
    result: JSON = None
    exception: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensCounted(Moment):
    """Tokens of a model were counted, inside a call or outside any."""

    usage: NewUsage
    place: CallPlace | None = None


class InlineListener(Protocol):
    """A listener that is called in place. It must be quick; an error it raises is logged and not passed on.

    If it has `trace_context() -> str | None`, that is stored with what the running turn asks of other sessions; if it
    has `trace_ahead(ahead: TurnAhead) -> str | None`, that is stored with the turn that is about to begin.
    """

    inline: bool

    def __call__(self, happened: Any, /) -> None:
        """Take a notice or a moment; of a graph's turn also what inline observers of a graph get."""


class InlineListeners:
    """Passes moments to the inline ones among a runtime's listeners; they get ends in reverse order, so they nest."""

    def __init__(self, listeners: Sequence[InlineListener]) -> None:
        self._listeners = tuple(listeners)
        self._reversed = self._listeners[::-1]

    def __iter__(self) -> Iterator[InlineListener]:
        return iter(self._listeners)

    def mark(self, moment: Moment) -> None:
        """Pass a moment to all listeners; never raise."""
        ends = isinstance(moment, CallOver | TurnOver)
        for each in self._reversed if ends else self._listeners:
            try:
                each(moment)
            except Exception:
                _log.exception("Listener %s failed on %s", type(each).__name__, type(moment).__name__)

    def trace_context(self) -> str | None:
        """Return the trace context of the running code from the first listener that has one."""
        return self._first("trace_context")

    def trace_ahead(self, ahead: TurnAhead) -> str | None:
        """Return the trace context that a turn will have from the first listener that knows it."""
        return self._first("trace_ahead", ahead)

    def _first(self, name: str, *given: Any) -> str | None:
        for each in self._listeners:
            if (ask := getattr(each, name, None)) is not None:
                try:
                    found: str | None = ask(*given)
                except Exception:
                    _log.exception("Listener %s failed", type(each).__name__)
                else:
                    if found is not None:
                        return found
        return None


def inline_among(listeners: Sequence[Any]) -> InlineListeners | None:
    """Return the inline ones of these listeners; None if none is."""
    found = [each for each in listeners if getattr(each, "inline", False) is True]
    return InlineListeners(found) if found else None
