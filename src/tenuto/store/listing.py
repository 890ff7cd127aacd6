"""Reading a page of summaries."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tenuto.errors import InvalidInput
from tenuto.model.session import Kind, SessionFilter, SessionPage, SessionStatus
from tenuto.store.backend import View
from tenuto.store.rules.encoding import moment
from tenuto.store.rules.limits import MAX_COUNT, check_count, check_text
from tenuto.store.rules.records import summary_of
from tenuto.store.rules.rows import ProfileRow, SessionRow

_SESSION = len(SessionRow._fields)


async def read_page(
    view: View, given: SessionFilter | Mapping[str, Any] | None, limit: int | None, after: str | None
) -> SessionPage:
    """Read one page, or, without a limit, everything; see `Store.list`."""
    wanted, below = _filter(given), read_cursor(after)
    rows = await view.read(
        _list_query(wanted),
        wanted.tenant,
        wanted.kind and str(wanted.kind),
        moment(wanted.updated_after, "updated_after"),
        moment(wanted.created_after, "created_after"),
        wanted.schema_version,
        wanted.status and str(wanted.status),
        wanted.agent,
        wanted.user_id,
        wanted.tag,
        wanted.parent,
        below,
        MAX_COUNT if limit is None else check_count(limit, "limit") + 1,
    )
    shown = rows if limit is None else rows[:limit]
    page = SessionPage(summary_of(SessionRow(*row[:_SESSION]), ProfileRow(*row[_SESSION:])) for row in shown)
    page.next = str(shown[-1][0]) if shown and len(rows) > len(shown) else None
    return page


def _filter(given: SessionFilter | Mapping[str, Any] | None) -> SessionFilter:
    if given is None or isinstance(given, SessionFilter):
        wanted = given or SessionFilter()
    else:
        unknown = given.keys() - {f.name for f in fields(SessionFilter)}
        if unknown:
            raise InvalidInput(f"Unknown filter: {', '.join(sorted(map(str, unknown)))}.", unknown=sorted(unknown))
        wanted = SessionFilter(**given)
    for value, words in ((wanted.kind, Kind), (wanted.status, SessionStatus)):
        if value is not None and value not in set(words):
            raise InvalidInput(f"Unknown {words.__name__} {value!r}.")
    for name in ("tenant", "schema_version", "agent", "user_id", "tag", "parent"):
        if getattr(wanted, name) is not None:
            check_text(getattr(wanted, name), name)
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
        raise InvalidInput(f"{after!r} is not a cursor of this list; pass on a page's `next`.", cursor=after)
    return check_count(int(after), "cursor")
