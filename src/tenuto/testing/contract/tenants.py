"""Tenants: what one keeps, another neither finds nor moves, whatever ids it knows."""

import pytest

from tenuto.errors import SessionNotFound, VersionConflict
from tenuto.model.commit import BeginRun, Held, NewCheckpoint
from tenuto.model.session import Profile, SessionKey
from tenuto.store.store import Store
from tenuto.testing.checks import rows, unchanged
from tenuto.testing.factories import a_commit, a_save

MINE, THEIRS = SessionKey("s", tenant="mine"), SessionKey("s", tenant="theirs")


async def test_a_value_is_held_within_its_tenant_alone(store: Store) -> None:
    """Another tenant's hash is refused in the words of one that nobody holds; an equal value is kept again."""
    big = "x" * 3000
    await store.create(THEIRS, state={"big": big})
    await store.create(MINE, state={"small": 1})
    ((found,),) = await rows(store, "content", "hash")
    texts = set()
    for content in (found, "0" * 64):
        begin, held = BeginRun(run_id="r", invocation_id="i"), {"copy": Held(hash=content)}
        point = NewCheckpoint(step=1, document=held)
        for parts in ({"save": True, "document": held}, {"run": begin, "checkpoint": point}):
            async with unchanged(store):
                with pytest.raises(VersionConflict) as refusal:
                    await store.commit(a_commit(MINE, **parts))
            assert refusal.value.details()["hashes"] == [content]
            texts.add(str(refusal.value).replace(content, "?"))
    assert len(texts) == 1
    await store.commit(a_save(MINE, document={"big": big}))
    await store.commit(a_save(MINE, document={"copy": Held(hash=found)}))
    record = await store.load(MINE)
    assert record is not None
    assert record.state == {"small": 1, "big": big, "copy": big}
    assert await rows(store, "content", "tenant", "hash") == [("mine", found), ("theirs", found)]


async def test_a_value_goes_when_its_own_tenant_lets_go_of_it(store: Store) -> None:
    """By a delete or by gc; the equal value of another tenant stays, and still reads back."""
    big = "x" * 3000
    for key in (MINE, THEIRS):
        await store.create(key, state={"big": big})
    await store.commit(a_save(MINE, document={"big": 1}))
    assert (await store.upkeep.gc(grace=0)).contents == 1
    assert await rows(store, "content", "tenant") == [("theirs",)]
    await store.commit(a_save(MINE, document={"big": big}))
    assert (await store.delete(MINE)).contents == 1
    assert (await store.upkeep.gc(grace=0)).contents == 0
    record = await store.load(THEIRS)
    assert record is not None
    assert record.state == {"big": big}


async def test_an_operators_copy_goes_across_tenants_and_shares_nothing(store: Store) -> None:
    """Entries and values are the copy's own; nothing points back, and a repeat is the same copy."""
    big, target = "x" * 3000, SessionKey("copy", tenant="mine")
    profile = Profile(title="t", parent="p", root="p", tags=("a",))
    await store.create(THEIRS, state={"big": big, "m": ["one", "two"]}, logs={"m"}, profile=profile)
    receipt = await store.copy_across(THEIRS, target, operation_id="once")
    assert (await store.copy_across(THEIRS, target, operation_id="once")).commit_number == receipt.commit_number
    await store.commit(a_save(THEIRS, "three", log="m"))
    await store.delete(THEIRS)
    await store.upkeep.gc(grace=0)
    record = await store.load(target)
    assert record is not None
    assert record.state == {"big": big, "m": ["one", "two"]}
    assert record.head is not None
    copied = record.head.profile
    assert (copied.title, copied.tags, copied.parent, copied.root, copied.forked_from) == (
        "t",
        ("a",),
        None,
        None,
        None,
    )
    families = {row["family"] for row in (await store.dump())["session"]}
    assert len(families) == 2
    with pytest.raises(SessionNotFound):
        await store.copy_across(THEIRS, SessionKey("again", tenant="mine"))
