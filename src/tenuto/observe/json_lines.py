"""What happens to sessions, as lines of JSON in a file."""

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

from tenuto.argument import check_kind
from tenuto.errors import InvalidInput
from tenuto.quote import quote
from tenuto.runtime.stream.notices import Notice
from tenuto.runtime.stream.reader import StreamItem
from tenuto.writing.error_record import text_of
from tenuto.writing.run_ids import run_ids

_log = logging.getLogger("tenuto.observe")


class JsonLines:
    """A listener that appends every notice to a file, as one line of JSON.

    Each line is one write to the end of the file, so several processes may share it. It is with the operating system
    before the listener returns: it outlives the process, but not a loss of power. A file that was moved away or deleted
    is made again. What cannot be written is left out, reported once in the log, and counted in a line
    `json_lines_lost` once writing succeeds again; no turn fails for it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            self._path = Path(path)
        except TypeError:
            raise InvalidInput(f"`path` must be the path of a file, got {quote(path)}.") from None
        if not self._path.parent.is_dir() or self._path.is_dir():
            raise InvalidInput(f"{quote(str(path))} cannot be written: name a file in a folder that exists.")
        self._lock = Lock()
        self._file: int | None = None
        self._torn = False
        self._lost = 0

    def __call__(self, notice: Notice) -> None:
        """Write a notice: when it came, its type, whose it is, and its data."""
        data, ids = notice.data(), run_ids.get()
        run_id = data.pop("run_id", None)
        if (
            run_id is None
            and ids is not None
            and ids.session_id == notice.session_id
            and ids.tenant == notice.key.tenant
        ):
            run_id = ids.run_id
        self._write(_line(notice.type, notice.key.tenant, notice.session_id, run_id, data=data))

    def write(self, item: StreamItem, session_id: str, tenant: str = "") -> None:
        """Write an item of a session's stream, with its number."""
        check_kind(item, StreamItem, "an item")
        more = {"seq": item.seq, "attempt": item.attempt, "step": item.step, "data": item.data}
        at = item.at or datetime.now(UTC)
        self._write(_line(item.name or item.type, tenant, session_id, item.run_id, at=at, **more))

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        with self._lock:
            self._close()

    def __enter__(self) -> "JsonLines":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes) -> None:
        with self._lock:
            try:
                self._append(line)
            except OSError as error:
                if not self._lost:
                    _log.error("%s cannot be written, so lines are lost: %s", self._path, text_of(error))
                self._lost += 1
                self._close()
            else:
                if self._lost:
                    self._report_lost()

    def _report_lost(self) -> None:
        lost, self._lost = self._lost, 0
        _log.warning("%s is written again; %d lines were lost", self._path, lost)
        try:
            self._append(_line("json_lines_lost", None, None, None, data={"lines": lost}))
        except OSError:
            self._lost = lost

    def _append(self, line: bytes) -> None:
        file = self._opened()
        if self._torn:  # the line before, by whoever wrote it
            line = b"\n" + line
        written = os.write(file, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(f"only {written} of {len(line)} bytes were written")

    def _opened(self) -> int:
        """Return the file that has the path now: another one, if it was moved away or deleted."""
        if self._file is not None and not self._is_there(self._file):
            self._close()
        if self._file is None:
            self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            # Another process may be writing just now: then a line that is empty follows.
            size = os.fstat(self._file).st_size
            self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        return self._file

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(file))
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                os.close(file)
            except OSError as error:
                _log.info("%s could not be closed: %s", self._path, text_of(error))


def _line(
    kind: str, tenant: str | None, session_id: str | None, run_id: Any, *, at: datetime | None = None, **more: Any
) -> bytes:
    moment = datetime.now(UTC) if at is None else at
    line = {
        "at": moment.isoformat(),
        "type": str(kind),
        "tenant": tenant,
        "session_id": session_id,
        "run_id": run_id,
        **more,
    }
    known = {name: value for name, value in line.items() if value is not None}
    return json.dumps(known, separators=(",", ":"), default=str).encode() + b"\n"
