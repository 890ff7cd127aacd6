"""Which function called which, of the functions of some folders: by `sys.monitoring`, or a profile hook before 3.12."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_RESUMABLE = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True)
class Call:
    """A function that began, and those of the watched folders that it was called in, innermost first."""

    file: str
    function: str
    callers: tuple[tuple[str, str], ...]


class Calls:
    """The calls of this thread, in order, of functions whose file is in one of the folders of `home`.

    Their callers are followed up to a function of the file `user`: what a user's own function calls is a walk of its
    own. A function that Python makes of a declaration, as a dataclass has them, has no file and is not seen.
    """

    def __init__(self, home: Path, folders: tuple[str, ...], user: str) -> None:
        self._home = f"{home}/"
        self._folders = tuple(f"{home / folder}/" for folder in folders)
        self._user = user
        self._thread = threading.get_ident()
        self._begun: set[FrameType] = set()
        self.calls: list[Call] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch for as long as this lasts."""
        watch = self._monitor if sys.version_info >= (3, 12) else self._profile
        with watch():
            yield

    @contextmanager
    def _monitor(self) -> Iterator[None]:
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009, which the oldest Python we support has not
        tool, start = monitoring.PROFILER_ID, monitoring.events.PY_START
        monitoring.use_tool_id(tool, "calls")
        monitoring.register_callback(tool, start, self._started)
        monitoring.set_events(tool, start)
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, start, None)
            monitoring.free_tool_id(tool)

    def _started(self, code: CodeType, _: int) -> None:
        if threading.get_ident() == self._thread and code.co_filename.startswith(self._folders):
            self._note(sys._getframe(1))

    @contextmanager
    def _profile(self) -> Iterator[None]:
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(self._folders):
            return
        # A coroutine that is made has not begun; one that goes on had begun before.
        if frame.f_code.co_flags & _RESUMABLE and (frame.f_lasti < 0 or frame in self._begun):
            return
        self._begun.add(frame)
        self._note(frame)

    def _note(self, frame: FrameType) -> None:
        callers = []
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename != self._user:
            if caller.f_code.co_filename.startswith(self._folders):
                callers.append(self._name(caller))
            caller = caller.f_back
        self.calls.append(Call(*self._name(frame), tuple(callers)))

    def _name(self, frame: FrameType) -> tuple[str, str]:
        return frame.f_code.co_filename.removeprefix(self._home), frame.f_code.co_qualname
