"""Bugs to be planted in the processes of a run, each of which the audit has to find."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tenuto.ids import new_id
from tenuto.model.input import InputKind
from tenuto.store.facets import inbox
from tenuto.store.facets.inbox import Inbox
from tenuto.store.rules.commit import guards
from tenuto.store.rules.commit import write as commit
from tenuto.store.rules.parts.outgoing_rules import outgoing_writes
from tenuto.store.rules.parts.usage_rules import usage_writes
from tenuto.store.rules.plan import Write

Patch = tuple[Any, str, Any]

BUGS: dict[str, Callable[[], list[Patch]]] = {}


def plant(name: str) -> None:
    """Plant a bug in this process for good."""
    for owner, attribute, value in BUGS[name]():
        setattr(owner, attribute, value)


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant a bug for a while, or none."""
    patches = BUGS[name]() if name is not None else []
    before = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    try:
        for owner, attribute, value in patches:
            setattr(owner, attribute, value)
        yield
    finally:
        for owner, attribute, value in before:
            setattr(owner, attribute, value)


def _bug(name: str) -> Callable[[Callable[[], list[Patch]]], Callable[[], list[Patch]]]:
    def add(make: Callable[[], list[Patch]]) -> Callable[[], list[Patch]]:
        BUGS[name] = make
        return make

    return add


@_bug("dropped guard")
def _dropped_guard() -> list[Patch]:
    """A commit no longer minds that something came in since it was made up."""

    def unminding(given: Any, row: Any) -> None:
        check(replace(given, expected_events=None), row)

    check = guards._check_version
    return [(guards, "_check_version", unminding)]


@_bug("skipped receipt check")
def _skipped_receipt() -> list[Patch]:
    """An input that was queued is queued once more when it is repeated under its key."""

    def forgetting(decide: Callable[..., Any]) -> Callable[..., Any]:
        def deciding(key: Any, packed: Any, *rest: Any) -> Any:
            known = packed.given.key
            unheard = None if known is None else f"{known} {new_id()}"
            return decide(key, packed._replace(given=replace(packed.given, key=unheard)), *rest)

        return deciding

    return [(inbox, name, forgetting(getattr(inbox, name))) for name in ("decide_enqueue", "decide_interrupt")]


@_bug("lost outbox row")
def _lost_outbox() -> list[Patch]:
    """Of what commits send, every third item is lost."""
    write, count = outgoing_writes, itertools.count()

    def losing(draft: Any, packed: Any, writes: list[Write]) -> list[str]:
        minted = write(draft, packed, writes)
        sent = writes.pop()
        writes.append(Write(sent.name, [row for row in sent.rows if next(count) % 3]))
        return minted

    return [(commit, "outgoing_writes", losing)]


@_bug("doubled usage row")
def _doubled_usage() -> list[Patch]:
    """What a commit counts, it counts twice."""
    write = usage_writes

    def doubling(draft: Any, writes: list[Write]) -> None:
        write(draft, writes)
        counted = writes.pop()
        again = [row._replace(ordinal=row.ordinal + len(counted.rows)) for row in counted.rows]  # type: ignore[attr-defined]
        writes.append(Write(counted.name, [*counted.rows, *again]))

    return [(commit, "usage_writes", doubling)]


@_bug("reordered inbox")
def _reordered_inbox() -> list[Patch]:
    """The two oldest messages of an inbox change places."""
    look = Inbox.list

    async def swapping(self: Inbox, key: Any, **options: Any) -> Any:
        found = await look(self, key, **options)
        if [each.kind for each in found[:2]] == [InputKind.MESSAGE] * 2:
            return (found[1], found[0], *found[2:])
        return found

    return [(Inbox, "list", swapping)]
