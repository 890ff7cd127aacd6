"""The verbs of schedules: declare, pause, remove, list, and fire what is due."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from tenuto.argument import check_flag, check_kind
from tenuto.errors import InvalidInput
from tenuto.model.schedule import Fired, NewSchedule, Schedule
from tenuto.model.session import Key, Page, SessionKey, Tenant, as_key
from tenuto.quote import quote
from tenuto.store.backend import columns_of, session_lock
from tenuto.store.facets.damage import read_sound
from tenuto.store.rules.commit.pack import check_budget
from tenuto.store.rules.encoding import byte_size
from tenuto.store.rules.limits import check_limit, check_name, check_text, within
from tenuto.store.rules.plan import Plan, Row
from tenuto.store.rules.records import joined
from tenuto.store.rules.rows import SESSION_COLUMNS, ScheduleRow
from tenuto.store.rules.verbs.schedule_rules import (
    FoundSchedules,
    decide_continue,
    decide_declare,
    decide_fire,
    decide_pause,
    decide_remove,
    gather_firing,
    gather_schedules,
    pack_schedule,
    schedule_of,
)
from tenuto.store.store_context import StoreContext

T = TypeVar("T")

_START = (0, 0, "")
_LONGEST = 16


class Schedules:
    """Messages that sessions are sent again and again. They belong to one life of a session and go with it.

    Every change writes an event `schedule_changed`.
    """

    def __init__(self, store: StoreContext) -> None:
        self._store = store

    async def declare(self, key: Key, new: NewSchedule) -> Schedule:
        """Declare a schedule of a live, active session, and return it.

        The same words again change nothing, also if it is paused; other words replace it: it counts from now, and is
        not paused. No live session is `SessionNotFound`, any other status `StatusRefused`.
        """
        key = as_key(key)
        words = pack_schedule(check_kind(new, NewSchedule, "schedule"))
        check_budget(byte_size(words), 1, self._store.budget)
        return await self._decide(key, partial(decide_declare, key, new, words))

    async def remove(self, key: Key, name: str) -> bool:
        """Remove a schedule and return whether there was one; a message that it queued stays."""
        key = as_key(key)
        return await self._decide(key, partial(decide_remove, key, check_name(name, "name")))

    async def pause(self, key: Key, name: str, reason: str = "It was paused.") -> Schedule:
        """Let a schedule not fire until it is resumed; one that is paused keeps its reason.

        An unknown one is `ScheduleNotFound`.
        """
        key, reason = as_key(key), check_text(reason, "reason")
        return await self._decide(key, partial(decide_pause, key, check_name(name, "name"), reason))

    async def resume(self, key: Key, name: str) -> Schedule:
        """Let a paused schedule fire again from its next occurrence on; those of the pause do not count as missed.

        The session has to be active (`StatusRefused`). One that is not paused is unchanged; an unknown one is
        `ScheduleNotFound`.
        """
        key = as_key(key)
        return await self._decide(key, partial(decide_continue, key, check_name(name, "name")))

    async def of_session(self, key: Key) -> Sequence[Schedule]:
        """Return a session's schedules, by name."""
        rows = await self._store.backend.read("schedules_of_session", *columns_of(as_key(key)))
        return list(map(_schedule, rows))

    async def list(
        self, *, tenant: Tenant = "", paused: bool | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Schedule]:
        """Return a page of the schedules of a tenant's sessions: the oldest session first, each session's by name.

        `paused=True` means only those that are paused, `paused=False` only the others. One that cannot be read is
        passed over and reported.
        """
        most, place, behind = check_limit(limit), within(tenant), _place(after)
        only = None if paused is None else check_flag(paused, "paused")
        given: tuple[object, ...]
        if place is None:
            query, given = ("paused_schedules", behind) if only else ("all_schedules", (*behind, only is None))
        elif only:
            query, given = "paused_schedules_of_tenant", (place, *behind)
        else:
            query, given = "schedules_of_tenant", (place, *behind, only is None)
        found = await read_sound(partial(self._store.backend.read, query, *given), most + 1, _placed)
        page = Page[Schedule](schedule for _, schedule in found[:most])
        if page and len(found) > most:
            page.next = found[most - 1][0]
        return page

    async def due(self, *, limit: int = 100) -> Sequence[Schedule]:
        """Return schedules of all sessions that are due, the longest due first. Reads only.

        Not those that are held because their session waits, nor those whose last message is still in the inbox. One
        that cannot be read is passed over and reported.
        """
        ask = partial(self._store.backend.read, "due_schedules", self._store.now())
        return await read_sound(ask, check_limit(limit), _schedule)

    async def fire(self, key: Key, name: str) -> Fired:
        """Queue what a schedule has due and move it to its next occurrence, in one transaction; return what was done.

        The input of an occurrence has the key `schedule:{name}:{occurrence in UTC}`, so that it is queued once; one
        whose key is known counts as fired. Its body says under `schedule` which occurrence it is, how many before it
        were `missed`, and what it does to a session that waits. A session that is not active pauses the schedule. One
        that is not due, is held, or whose last message is still in the inbox is unchanged.
        """
        key = as_key(key)
        read = partial(gather_firing, key, check_name(name, "name"), self._store.now())
        fired = await self._store.backend.transact(read, partial(decide_fire, key, name), session_lock(key))
        if fired.inputs or fired.paused is not None:
            self._store.backend.announce(key)
        return fired

    async def _decide(self, key: SessionKey, decide: Callable[[FoundSchedules], Plan[T]]) -> T:
        read = partial(gather_schedules, key, self._store.now())
        done = await self._store.backend.transact(read, decide, session_lock(key))
        self._store.backend.announce(key)
        return done


def _schedule(row: Row) -> Schedule:
    return schedule_of(*joined(ScheduleRow, row))


def _placed(row: Row) -> tuple[str, Schedule]:
    """Read a schedule, with its place in the list of all."""
    at = ScheduleRow(*row[SESSION_COLUMNS:])
    return f"{at.session}:{at.life}:{at.name}", _schedule(row)


def _place(after: str | None) -> tuple[int, int, str]:
    """Return what a page's `next` stands for: the session of its last schedule, the session's life, and the name."""
    if after is None:
        return _START
    session, _, rest = check_text(after, "after").partition(":")
    life, _, name = rest.partition(":")
    if not name or not all(each.isascii() and each.isdigit() and len(each) <= _LONGEST for each in (session, life)):
        raise InvalidInput(f"{quote(after)} is not a cursor of this list; pass a page's `next`.", cursor=after)
    return int(session), int(life), name
