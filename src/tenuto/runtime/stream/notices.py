"""What a runtime tells its listeners: typed notices, in order; those of a commit are in the durable stream too.

A notice's `type` is its name in the stream, its `data` what stands there.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from tenuto.codec import JSON
from tenuto.model.event import EventType, NewEvent
from tenuto.model.session import SessionKey
from tenuto.writing.error_record import category_of, shown, text_of

_log = logging.getLogger("tenuto.runtime")


_ELSEWHERE = frozenset({"run_id", "invocation_id", "before_version"})
"""What the stream tells elsewhere: in the event itself, in the run's record, in the event before."""

_USUAL: dict[str, JSON] = {"status": "active", "before_status": "active", "after_status": "active", "attempt": 1}

_names: dict[type, tuple[str, ...]] = {}
"""The fields of each kind of notice that its stream keeps."""


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
        """Return the notice as the stream keeps it, without the session, whose stream it is."""
        cls = type(self)
        if (names := _names.get(cls)) is None:
            names = _names[cls] = tuple(each.name for each in fields(self) if each.name != "key")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def event(self) -> NewEvent:
        """Return the notice as an event of the session's stream, without what goes without saying there.

        The event names its run, an active session's status is left out, and so is a first attempt.
        """
        data = {
            name: value for name, value in self.data().items() if name not in _ELSEWHERE and value != _USUAL.get(name)
        }
        return NewEvent(type=self.type, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLoaded(Notice):
    """A session was loaded for an action or a turn; the values are those after the `after_load` controllers."""

    type: ClassVar[str] = EventType.SESSION_LOADED
    version: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionActionExecuted(Notice):
    """An action changed the session; what it made of it is about to be saved."""

    type: ClassVar[str] = EventType.SESSION_ACTION_EXECUTED
    action: str
    before_version: int
    before_status: str
    after_status: str
    input_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSaved(Notice):
    """What was done to a session is committed."""

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
    """A session could not be loaded, or a controller refused it at `after_load`."""

    type: ClassVar[str] = EventType.SESSION_LOAD_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailed(Failure):
    """An action, or a controller after it, failed."""

    type: ClassVar[str] = EventType.SESSION_ACTION_FAILED
    action: str
    input_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveFailed(Failure):
    """What was done could not be saved."""

    type: ClassVar[str] = EventType.SESSION_SAVE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Notice):
    """A turn began; it goes on with an earlier run if `resumes` names one."""

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
    """Another runner's lane was taken over, because it was gone."""

    type: ClassVar[str] = EventType.LANE_TAKEN_OVER
    owner: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSettled(Notice):
    """Something a run waited for was answered, or is not waited for any more."""

    type: ClassVar[str] = EventType.WAIT_SETTLED
    wait_id: str
    kind: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectSettled(Notice):
    """It was decided what became of a call in doubt."""

    type: ClassVar[str] = EventType.EFFECT_SETTLED
    effect: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFailed(Notice):
    """A controller failed after the commit; what was committed stands."""

    type: ClassVar[str] = EventType.HOOK_FAILED
    stage: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFailed(Notice):
    """A listener failed; nothing else is touched by it."""

    type: ClassVar[str] = EventType.LISTENER_FAILED
    listener: str
    notice: str
    error: str


Listener: TypeAlias = Callable[[Notice], Awaitable[None] | None]
"""Hears notices: a function or a coroutine function."""


class Listeners:
    """Tells every listener every notice, in order; one that fails is reported to the others and disturbs nothing."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = tuple(listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    async def tell(self, *notices: Notice) -> None:
        """Tell notices; never raises. That a listener failed is told to the others after what it failed on."""
        for notice in notices:
            faults = [(each, fault) for each in self._listeners if (fault := await _fault(each, notice))]
            for failed, fault in faults:
                for listener in self._listeners:
                    if listener is not failed:
                        await _fault(listener, fault)


async def _fault(listener: Listener, notice: Notice) -> ListenerFailed | None:
    """Tell a listener; return how it failed, if it did."""
    try:
        told = listener(notice)
        if inspect.isawaitable(told):
            await told
    except Exception as error:
        name = getattr(listener, "__qualname__", type(listener).__name__)
        _log.exception("The listener %s failed on %s of %s", name, notice.type, notice.key)
        return ListenerFailed(key=notice.key, listener=name, notice=notice.type, error=shown(error))
    return None


def failure(error: BaseException) -> dict[str, Any]:
    """Return what a failure notice says of an error."""
    return {"error": text_of(error), "category": category_of(error)}
