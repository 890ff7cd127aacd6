"""Moments of a turn, for listeners that follow it while it runs: its begin, its calls, its waits, its end.

A listener with `inline = True` is called with them where they happen, in the context of the running code, besides the
notices that every listener gets. They are never stored. Without such a listener none is made.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBegan(Moment):
    """A turn is about to run its program.

    `origin_id` is the invocation in whose name calls are recorded, `input_id` the input that began it, `trace_id` the
    session's trace, `resumes` the run and the attempt that it continues, `asked_by` the trace context of the turn that
    waits for it, `model` the definition's, and `waited` how many seconds its message was queued; None if it began at
    once.
    """

    origin_id: str
    input_id: str | None = None
    trace_id: str | None = None
    resumes: tuple[str, int] | None = None
    asked_by: str | None = None
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

    If it has `trace_context() -> str | None`, that is stored with what the running turn asks of other sessions.
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
        for each in self._listeners:
            if (ask := getattr(each, "trace_context", None)) is not None:
                try:
                    found: str | None = ask()
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
