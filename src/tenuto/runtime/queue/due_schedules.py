"""Schedules, as workers see them: whatever is due is fired."""

import logging

from tenuto.errors import StoredDataCorrupt, StoreError, TenutoError
from tenuto.store.store import Store

_log = logging.getLogger("tenuto.worker")


async def fire_due(store: Store) -> int:
    """Fire every schedule that is due, and return how many messages were queued; one that cannot be stops no other."""
    queued = 0
    for each in await store.schedules.due():
        try:
            fired = await store.schedules.fire(each.key, each.name)
        except TenutoError as error:
            if isinstance(error, StoreError) and not isinstance(error, StoredDataCorrupt):
                raise
            _log.warning("Schedule %r of %s could not be fired: %s", each.name, each.key, error)
            continue
        queued += len(fired.inputs)
        if fired.paused is not None:
            _log.warning("Schedule %r of %s is paused: %s", each.name, each.key, fired.paused)
    return queued
