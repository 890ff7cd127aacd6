"""Typed notices for a runtime's listeners, in order; those of a commit are in the durable stream too.

A notice's `type` is the type of its event in the stream, its `data` the event's data.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from tenuto.codec import JSON
from tenuto.model.event import EventType, NewEvent
from tenuto.model.session import SessionKey
from tenuto.runtime.stream.moments import inline_among
from tenuto.writing.error_record import category_of, shown, text_of

_log = logging.getLogger("tenuto.runtime")


RUN_ABANDONED = "run_abandoned"
"""The category of the error of a run that was ended because too many runners were lost with it."""

_ELSEWHERE = frozenset({"run_id", "invocation_id", "before_version", "after_version"})
"""Fields that are stored elsewhere: in the event itself, in the run's record, in the events before and after."""

_USUAL: dict[str, JSON] = {"status": "active", "before_status": "active", "after_status": "active", "attempt": 1}

_names: dict[type, tuple[str, ...]] = {}
"""The fields of each type of notice that are stored in the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something happened to a session."""

    type: ClassVar[str] = "notice"
    key: SessionKey

    @property
    def session_id(self) -> str:
        """The caller's id of the session."""
        return self.key.session_id

    def data(self) -> dict[str, JSON]:
        """Return the fields of the notice that are set, without the session's key."""
        cls = type(self)
        if (names := _names.get(cls)) is None:
            names = _names[cls] = tuple(each.name for each in fields(self) if each.name != "key")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def event(self) -> NewEvent:
        """Return the notice as an event of the session's stream, without fields that have their usual value.

        The event itself names its run; the status of an active session and a first attempt are left out.
        """
        data = {
            name: value for name, value in self.data().items() if name not in _ELSEWHERE and value != _USUAL.get(name)
        }
        return NewEvent(type=self.type, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLoaded(Notice):
    """A session was loaded for an action or a turn; the values are those after the `after_load` hooks."""

    type: ClassVar[str] = EventType.SESSION_LOADED
    version: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionActionExecuted(Notice):
    """An action changed the session; the change is about to be saved."""

    type: ClassVar[str] = EventType.SESSION_ACTION_EXECUTED
    action: str
    before_version: int
    after_version: int
    before_status: str
    after_status: str
    input_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSaved(Notice):
    """The changes of a session were committed."""

    type: ClassVar[str] = EventType.SESSION_SAVED
    version: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure(Notice):
    """A stage failed, and nothing was saved; `stage` names it."""

    stage: str
    error: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFailed(Failure):
    """A session could not be loaded, or a hook refused it at `after_load`."""

    type: ClassVar[str] = EventType.SESSION_LOAD_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailed(Failure):
    """An action, or a hook after it, failed."""

    type: ClassVar[str] = EventType.SESSION_ACTION_FAILED
    action: str
    input_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed(Failure):
    """The changes of a session could not be saved."""

    type: ClassVar[str] = EventType.SESSION_SAVE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Notice):
    """A turn began; it resumes an earlier run if `resumes` names one."""

    type: ClassVar[str] = EventType.RUN_STARTED
    run_id: str
    invocation_id: str
    attempt: int = 1
    input_id: str | None = None
    resumes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(Notice):
    """A turn ended; `error` says why, if it failed."""

    type: ClassVar[str] = EventType.RUN_ENDED
    run_id: str
    status: str
    steps: int
    error: JSON = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTakenOver(Notice):
    """The lane of a runner that is gone was taken over."""

    type: ClassVar[str] = EventType.LANE_TAKEN_OVER
    owner: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitOpened(Notice):
    """A session below this one, its `child` or a child's, waits for something that can be answered here."""

    type: ClassVar[str] = EventType.WAIT_OPENED
    child: str
    wait_id: str
    kind: str
    signal_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSettled(Notice):
    """A wait was answered, expired, or was abandoned."""

    type: ClassVar[str] = EventType.WAIT_SETTLED
    wait_id: str
    kind: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSettled(Notice):
    """A call in doubt was settled."""

    type: ClassVar[str] = EventType.EFFECT_SETTLED
    effect: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed(Notice):
    """A hook failed after the commit; the commit remains."""

    type: ClassVar[str] = EventType.HOOK_FAILED
    stage: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFailed(Notice):
    """A listener failed; nothing else is affected."""

    type: ClassVar[str] = EventType.LISTENER_FAILED
    listener: str
    notice: str
    error: str


Listener: TypeAlias = Callable[[Notice], Awaitable[None] | None]
"""Receives notices: a function or a coroutine function. One with `inline = True` also gets moments."""


class Listeners:
    """Passes every notice to every listener, in order; a listener's failure is reported to the others only.

    `inline` passes moments to those that follow turns while they run, None if none does.
    """

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = tuple(listeners)
        self.inline = inline_among(self._listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def and_also(self, listeners: Iterable[Listener]) -> "Listeners":
        """Return these listeners and others after them."""
        return Listeners((*self._listeners, *listeners))

    async def tell(self, *notices: Notice) -> None:
        """Pass notices to all listeners; never raise. A failure is reported to the other listeners after its notice."""
        for notice in notices:
            faults = [(each, fault) for each in self._listeners if (fault := await _fault(each, notice))]
            for failed, fault in faults:
                for listener in self._listeners:
                    if listener is not failed:
                        await _fault(listener, fault)


async def _fault(listener: Listener, notice: Notice) -> ListenerFailed | None:
    """Pass a notice to a listener; return its failure, if it failed."""
    try:
        result = listener(notice)
        if inspect.isawaitable(result):
            await result
    except Exception as error:
        name = getattr(listener, "__qualname__", type(listener).__name__)
        _log.exception("Listener %s failed on notice %s of %s", name, notice.type, notice.key)
        return ListenerFailed(key=notice.key, listener=name, notice=notice.type, error=shown(error))
    return None


def failure(error: BaseException) -> dict[str, Any]:
    """Return the fields of a failure notice for an error."""
    return {"error": text_of(error), "category": category_of(error)}
