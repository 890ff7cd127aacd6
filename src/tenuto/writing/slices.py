"""Slices: the parts of a change too big for one commit, written ahead of it on the run's own branches."""

from collections.abc import Iterator, Sequence

from tenuto.codec import JSON, encode
from tenuto.writing.changes import LogChange

MAX_ENTRIES = 2000
"""How many entries one commit writes at most."""

_SLICE_BYTES = 4 * 1024 * 1024

MAX_INLINE_ENTRIES = MAX_ENTRIES // 2
"""How many entries of a log are written with their save; only those beyond it are written ahead."""


def slices(change: LogChange) -> Iterator[LogChange]:
    """Yield the parts of a change that are written ahead; the commit itself writes the rest."""
    items, begins = change.items, 0
    while len(items) - begins > MAX_INLINE_ENTRIES:
        stop = _slice_end(items, begins)
        part = items[begins:stop]
        yield LogChange(items=part) if begins else change._replace(items=part)
        begins = stop


def _slice_end(items: Sequence[JSON], begins: int) -> int:
    size, stop = 0, begins
    while stop < len(items) and stop - begins < MAX_INLINE_ENTRIES and size < _SLICE_BYTES:
        size += len(encode(items[stop]))
        stop += 1
    return stop
