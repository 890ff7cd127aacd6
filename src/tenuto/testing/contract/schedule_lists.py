"""Lists of schedules: by tenant and whether they are paused, page by page."""

from typing import Any

from tenuto.errors import InvalidInput
from tenuto.model.schedule import NewSchedule, Schedule
from tenuto.model.session import ANY_TENANT, SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import not_refused
from tenuto.testing.factories import a_key, a_session
from tenuto.testing.harness import Capability, Harness, needs
from tenuto.testing.probes import statements


async def _declared(store: Store, key: SessionKey, name: str) -> Schedule:
    return await store.schedules.declare(key, NewSchedule(name=name, body={"message": name}, every=3600.0))


async def _pages(store: Store, **given: Any) -> list[Schedule]:
    """Return a whole list, read two at a time."""
    found: list[Schedule] = []
    after: str | None = None
    while True:
        page = await store.schedules.list(**given, limit=2, after=after)
        assert len(page) <= 2
        found += page
        if (after := page.next) is None:
            return found


async def test_schedules_are_listed_by_tenant_and_pause(harness: Harness) -> None:
    """The oldest session first, whenever its schedules were declared; a tenant's own alone, unless any is asked for."""
    store = await harness.open()
    first, foreign, second, bare = a_key(), a_key(tenant="other"), a_key(), a_key()
    for key in (first, foreign, second, bare):
        await store.create(key)
    made: dict[str, Schedule] = {}
    places = [("z", second, "z"), ("a:b c", first, "a:b c"), ("é", second, "é"), ("B", first, "B"), ("f", foreign, "f")]
    places += [("A", second, "A"), ("y", foreign, "y"), ("b", first, "b")]
    for label, key, name in places:
        made[label] = await _declared(store, key, name)
    for label in ("b", "f", "é"):
        made[label] = await store.schedules.pause(made[label].key, made[label].name, f"why {label}")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["B", "a:b c", "b", "A", "z", "é"]),
        ({"paused": True}, ["b", "é"]),
        ({"paused": False}, ["B", "a:b c", "A", "z"]),
        ({"tenant": "other"}, ["f", "y"]),
        ({"tenant": "other", "paused": True}, ["f"]),
        ({"tenant": "other", "paused": False}, ["y"]),
        ({"tenant": "nobody"}, []),
        ({"tenant": ANY_TENANT}, ["B", "a:b c", "b", "f", "y", "A", "z", "é"]),
        ({"tenant": ANY_TENANT, "paused": True}, ["b", "f", "é"]),
        ({"tenant": ANY_TENANT, "paused": False}, ["B", "a:b c", "y", "A", "z"]),
    ]
    for given, expected in cases:
        assert list(await store.schedules.list(**given)) == [made[label] for label in expected], given
        assert await _pages(store, **given) == [made[label] for label in expected], given


async def test_a_list_shows_what_is_there_while_it_is_paged(store: Store) -> None:
    """What is removed behind a page's end does not move the next one, and a session made again shows its new ones."""
    key, _ = await a_session(store)
    for name in ("a", "b", "c", "d"):
        await _declared(store, key, name)
    page = await store.schedules.list(limit=2)
    assert [each.name for each in page] == ["a", "b"]
    assert await store.schedules.remove(key, "b")
    await store.schedules.pause(key, "c")
    rest = await store.schedules.list(limit=2, after=page.next)
    assert ([each.name for each in rest], rest.next) == (["c", "d"], None)
    await store.delete(key)
    assert await store.schedules.list() == await store.schedules.list(paused=True) == ()
    await store.create(key)
    again = await _declared(store, key, "a")
    assert await store.schedules.list(after=page.next) == (again,)


async def test_a_replaced_or_resumed_schedule_leaves_the_list_of_paused_ones(store: Store) -> None:
    key, _ = await a_session(store, key=a_key(tenant="other"))
    for name in ("replaced", "resumed"):
        await _declared(store, key, name)
        await store.schedules.pause(key, name)
    assert [each.name for each in await store.schedules.list(tenant="other", paused=True)] == ["replaced", "resumed"]
    await store.schedules.declare(key, NewSchedule(name="replaced", body={"message": "new"}, every=3600.0))
    await store.schedules.resume(key, "resumed")
    assert await store.schedules.list(tenant="other", paused=True) == ()
    assert len(await store.schedules.list(tenant="other", paused=False)) == 2


@needs(Capability.PROBES)
async def test_a_list_that_cannot_be_meant_is_refused_before_any_statement(store: Store) -> None:
    cursors: list[Any] = ["", "1", "1:2", "1:2:", ":2:n", "1::n", "x:2:n", f"{'9' * 30}:1:n", "-1:1:n", "\u0661:1:n", 7]
    given: dict[str, dict[str, Any]] = {f"cursor {after!r}": {"after": after} for after in cursors}
    given |= {"no tenant": {"tenant": None}, "paused": {"paused": 1}, "limit": {"limit": -1}, "half": {"limit": 1.5}}
    calls = {name: (lambda options=options: store.schedules.list(**options)) for name, options in given.items()}
    with statements(store) as seen:
        assert await not_refused(InvalidInput, calls) == {}
    assert seen == []
