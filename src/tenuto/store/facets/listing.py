"""Reading a page of summaries."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tenuto.argument import check_map
from tenuto.errors import InvalidInput
from tenuto.model.session import SessionFilter, SessionPage, SessionSummary
from tenuto.quote import quote
from tenuto.store.backend import View
from tenuto.store.facets.damage import sound
from tenuto.store.rules.encoding import moment
from tenuto.store.rules.fields import FILTER
from tenuto.store.rules.limits import MAX_LIMIT, check_count, check_limit, within
from tenuto.store.rules.plan import Row
from tenuto.store.rules.records import summary_of
from tenuto.store.rules.rows import ProfileRow, split_row

_CONDITIONS = frozenset(each.name for each in fields(SessionFilter))


async def read_page(
    view: View, given: SessionFilter | Mapping[str, Any] | None, limit: int | None, after: str | None
) -> SessionPage:
    """Read one page, or, without a limit, everything; see `Store.list`."""
    wanted, below = _filter(given), read_cursor(after)
    parameters = _parameters(wanted)
    most = MAX_LIMIT if limit is None else check_limit(limit)
    summaries: list[SessionSummary] = []
    damage: list[str] = []
    while True:
        rows = await view.read(_list_query(wanted), *parameters, below, most + 1)
        found, bad = sound(rows[:most], _summary)
        summaries += found
        damage += bad
        more = len(rows) > most
        below = rows[most - 1][0] if most and more else None
        if limit is not None or not more:
            break
    page = SessionPage(summaries)
    page.next = None if below is None else str(below)
    page.damaged = tuple(damage)
    return page


def _summary(row: Row) -> SessionSummary:
    return summary_of(*split_row(row, ProfileRow))


def _parameters(wanted: SessionFilter) -> tuple[object, ...]:
    """Return the conditions as parameters, in the order of the filter's fields."""
    place = (within(wanted.tenant), wanted.kind and str(wanted.kind))
    times = (moment(wanted.updated_after, "updated_after"), moment(wanted.created_after, "created_after"))
    words = (wanted.schema_version, wanted.status and str(wanted.status), wanted.agent, wanted.user_id, wanted.tag)
    return (*place, *times, *words, wanted.parent)


def _filter(given: SessionFilter | Mapping[str, Any] | None) -> SessionFilter:
    if given is None or isinstance(given, SessionFilter):
        wanted = given or SessionFilter()
    else:
        unknown = sorted(quote(name) for name in check_map(given, "filter") if name not in _CONDITIONS)
        if unknown:
            raise InvalidInput(f"Unknown filter: {', '.join(unknown[:10])}.", unknown=unknown)
        wanted = SessionFilter(**given)
    FILTER(wanted)
    return wanted


def _list_query(wanted: SessionFilter) -> str:
    if wanted.parent is not None:
        return "list_sessions_of_parent"
    return "list_sessions_of_user" if wanted.user_id is not None else "list_sessions"


def read_cursor(after: str | None) -> int | None:
    """Return the row number a page's `next` stands for."""
    if after is None:
        return None
    if type(after) is not str or not after.isascii() or not after.isdigit() or len(after) > 16:
        raise InvalidInput(f"{quote(after)} is not a cursor of this list; pass on a page's `next`.", cursor=after)
    return check_count(int(after), "cursor")
