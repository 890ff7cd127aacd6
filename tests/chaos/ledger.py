"""The ledger: what the processes of a run meant to do, heard and saw, one file each, written before and after."""

import itertools
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Note: TypeAlias = dict[str, Any]

INTENT = "intent"
ACK = "ack"
REFUSED = "refused"
UNKNOWN = "unknown"
"""Nobody told whether it was done: the call was cut off, or the store failed it."""

CUT = "cut"
FAULT = "fault"
FRAME = "frame"
UNTYPED = "untyped"


class Ledger:
    """An append-only file of notes. A line is one write, so that a kill loses no more than the last one."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._who = path.stem
        self._count = itertools.count(1)

    def write(self, note: str, **facts: Any) -> None:
        """Write a note."""
        line = {**facts, "at": time.time(), "who": self._who, "note": note}
        os.write(self._file, json.dumps(line, default=str).encode() + b"\n")

    def intend(self, deed: str, **facts: Any) -> int:
        """Note what is about to be done; return the number under which it is heard of again."""
        number = next(self._count)
        self.write(INTENT, n=number, deed=deed, **facts)
        return number

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_notes(paths: Iterable[Path]) -> list[Note]:
    """Return the notes of files in the order of their times; a last line that was cut off is left out."""
    notes = [
        json.loads(line)
        for path in paths
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    return sorted(notes, key=lambda note: float(note["at"]))
