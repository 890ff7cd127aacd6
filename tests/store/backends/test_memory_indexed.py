"""Tables of a memory store: what an index finds is what a look at every row would find."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tenuto.store.backends.memory.indexed import Index, Indexed
from tenuto.store.backends.memory.tables import Tables


class Card(NamedTuple):
    suit: str | None
    rank: int


class Undone(Exception):
    pass


KEYS = st.integers(0, 5)
CARDS = st.builds(Card, st.sampled_from(["hearts", "spades", None]), st.integers(0, 3))
CHANGES = st.lists(st.tuples(KEYS, st.none() | CARDS), max_size=6)


def _table() -> Indexed[int, Card]:
    return Indexed(
        suit=Index(lambda card: card.suit, lambda card: card.rank),
        low=Index(lambda card: card.rank < 2 or None, lambda card: (card.rank, card.suit or "")),
    )


def _check(table: Indexed[int, Card]) -> None:
    cards = sorted((card.rank, key) for key, card in table.items() if card.suit == "hearts")
    hearts = [table[key] for _, key in cards]
    assert list(table.find("suit", "hearts")) == hearts
    for rank in range(5):
        assert list(table.find("suit", "hearts", rank)) == [card for card in hearts if card.rank >= rank]
        assert list(table.find_back("suit", "hearts", rank)) == [card for card in hearts[::-1] if card.rank < rank]
    assert set(table.places("suit")) == {card.suit for card in table.values()} - {None}
    low = [card for card in table.values() if card.rank < 2]
    assert list(table.find("low", True)) == sorted(low, key=lambda card: (card.rank, card.suit or ""))
    assert not list(table.find("suit", None))


def _change(tables: Tables, table: Indexed[int, Card], changes: list[tuple[int, Card | None]]) -> None:
    for key, card in changes:
        if card is None:
            tables.drop(table, [key])
        else:
            tables.put(table, key, card)


@given(st.lists(st.tuples(CHANGES, st.booleans()), max_size=6))
def test_an_index_finds_what_a_look_at_every_row_finds_also_after_an_undone_transaction(
    history: list[tuple[list[tuple[int, Card | None]], bool]],
) -> None:
    tables, table = Tables(), _table()
    for changes, undone in history:
        before = dict(table)
        try:
            with tables.transaction():
                _change(tables, table, changes)
                _check(table)
                if undone:
                    raise Undone
        except Undone:
            assert dict(table) == before
        _check(table)


def test_rows_written_together_and_a_row_that_is_removed_are_indexed() -> None:
    table = _table()
    table |= {1: Card("hearts", 3), 2: Card("hearts", 1)}
    table |= {1: Card("hearts", 0)}
    assert list(table.find("suit", "hearts")) == [Card("hearts", 0), Card("hearts", 1)]
    del table[1]
    assert (table.pop(2), table.pop(2, None)) == (Card("hearts", 1), None)
    assert not table.places("suit")
    assert not table.places("low")
