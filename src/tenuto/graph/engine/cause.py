"""The cause chain of an error: what really happened under the carriers that report where."""

from typing import Any, NamedTuple

from tenuto.errors import CheckpointRecordInvalid, CheckpointSaveFailed, NodeException, SuspensionInUnsupportedContext

NOT_THE_NODES = (CheckpointSaveFailed, CheckpointRecordInvalid, SuspensionInUnsupportedContext)
"""Errors that pass through nodes without being theirs: the run cannot continue, so nothing catches them."""


class CauseLink(NamedTuple):
    """One exception of a chain; a carrier only says where another one passed."""

    category: str | None
    message: str
    carrier: bool


def cause_chain(error: BaseException) -> tuple[CauseLink, ...]:
    """Return an exception and its causes, outermost first."""
    links: list[CauseLink] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while isinstance(current, BaseException) and id(current) not in seen:
        seen.add(id(current))
        links.append(CauseLink(category_of(current), _text_of(current), isinstance(current, NodeException)))
        current = current.__cause__
    return tuple(links)


def derived_category(error: BaseException) -> str | None:
    """Return the category of the outermost link that has one and is not a carrier."""
    return next((link.category for link in cause_chain(error) if not link.carrier and link.category), None)


def derived_message(error: BaseException) -> str:
    """Return the message of the derived category, or the outermost one that is not a carrier's."""
    chain = cause_chain(error)
    causes = [link for link in chain if not link.carrier] or list(chain)
    return next((link for link in causes if link.category and not link.carrier), causes[0]).message


def category_of(error: Any) -> str | None:
    """Return an exception's own category, if it has one."""
    try:
        category = getattr(error, "category", None)
    except Exception:  # whatever an exception's own class raises
        return None
    return category if isinstance(category, str) and category else None


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # whatever an exception's own class raises
        return f"(no text: {type(failure).__name__})"
