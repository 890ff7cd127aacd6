"""A field of the state gets another name, and nothing of what the old code kept is lost."""

import pytest

from apps.renamed import Before, Customer, greet, old_greet
from tenuto import Store
from tenuto.errors import ProgramNotRegistered
from tests.runtime.runtimes import opened


async def test_a_session_of_the_old_code_is_migrated_by_its_next_turn(store: Store) -> None:
    old = await opened(store, [old_greet])
    session = await old.create(old_greet, Before(mail="a@b.c"), session_id="ada")
    assert (await session.send("hi")).output == "a@b.c: visit 1"
    await old.create(old_greet, session_id="bob")

    new = await opened(store, [greet])
    assert (await new.send("ada", "hi")).output == "a@b.c, visit 2"
    view = await new.get("ada")
    assert view.state(Customer) == Customer(email="a@b.c", visits=2)
    assert dict(view.document) == {"email": "a@b.c", "visits": 2}
    assert (await new.send("bob", "hi")).output == "None, visit 1"


async def test_while_both_run_the_old_code_refuses_what_the_new_one_wrote(store: Store) -> None:
    old = await opened(store, [old_greet])
    new = await opened(store, [greet])
    session = await new.create(greet, Customer(email="a@b.c"), session_id="ada")
    assert (await session.send("hi")).output == "a@b.c, visit 1"
    assert (await new.get("ada")).document == {"email": "a@b.c", "visits": 1}
    with pytest.raises(ProgramNotRegistered, match="greet@2"):
        await old.send("ada", "hi")
    assert (await new.get("ada")).document == {"email": "a@b.c", "visits": 1}
