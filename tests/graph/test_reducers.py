"""How an update joins what a field held before."""

from typing import Any

import pytest
from pydantic import BaseModel

from tenuto.errors import ReducerError
from tenuto.graph import (
    State,
    append,
    bounded_append,
    concat_flatten,
    dedupe_append,
    last_write_wins,
    merge,
    merge_all,
    merge_by_key,
)
from tenuto.graph.reducers import Reducer
from tenuto.graph.state import Schema


def joined(reducer: Reducer, prior: Any, update: Any) -> Any:
    return reducer.reduce(prior, update, lambda value: value)


@pytest.mark.parametrize(
    ("reducer", "prior", "update", "expected"),
    [
        (last_write_wins, [1], [2], [2]),
        (append, [1], [2, 3], [1, 2, 3]),
        (append, [1], [], [1]),
        (merge, {"a": 1, "b": 1}, {"b": 2}, {"a": 1, "b": 2}),
        (concat_flatten, [1], [[2], [3, [4]]], [1, 2, 3, [4]]),
        (concat_flatten, [1], [], [1]),
        (merge_all, {"a": 1}, [{"b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        (merge_all, {"a": 1}, [], {"a": 1}),
        (bounded_append(3), [1, 2], [3, 4], [2, 3, 4]),
        (bounded_append(2), [1, 2, 3], [], [1, 2, 3]),
        (dedupe_append(), [1, 1], [1, 2, 2], [1, 1, 2]),
        (dedupe_append(lambda d: d["id"]), [{"id": 1, "v": 0}], [{"id": 1, "v": 9}], [{"id": 1, "v": 0}]),
        (
            merge_by_key(lambda d: d["id"]),
            [{"id": 1, "v": 0}, {"id": 2, "v": 0}, {"id": 1, "v": 1}],
            [{"id": 1, "v": 9}, {"id": 3, "v": 0}, {"id": 3, "v": 4}],
            [{"id": 1, "v": 0}, {"id": 2, "v": 0}, {"id": 1, "v": 9}, {"id": 3, "v": 4}],
        ),
    ],
)
def test_each_reducer_joins_as_it_says(reducer: Reducer, prior: Any, update: Any, expected: Any) -> None:
    before = repr(prior)
    assert joined(reducer, prior, update) == expected
    assert repr(prior) == before


@pytest.mark.parametrize(
    ("reducer", "prior", "update"),
    [
        (append, [1], 2),
        (append, [1], (2,)),
        (merge, {}, [1]),
        (concat_flatten, [], [1]),
        (concat_flatten, [], [[1], 2]),
        (merge_all, {}, [1]),
        (merge_all, {}, {"a": 1}),
        (bounded_append(2), [], "ab"),
        (dedupe_append(), [], 1),
        (merge_by_key(lambda d: d), [], {}),
    ],
)
def test_what_a_reducer_cannot_take_it_refuses(reducer: Reducer, prior: Any, update: Any) -> None:
    with pytest.raises(TypeError):
        joined(reducer, prior, update)


def test_impossible_arguments_are_remembered_for_the_compiler() -> None:
    assert bounded_append(0).fault
    assert merge_by_key(None).fault
    assert not bounded_append(1).fault


class Item(BaseModel):
    id: int
    text: str = ""


def test_prior_items_and_updates_have_the_same_shape() -> None:
    from typing import Annotated

    class Box(State):
        items: Annotated[list[Item], merge_by_key(lambda item: item.id)] = []

    schema = Schema(Box)
    state = schema.merge(Box(), {"items": [{"id": 1, "text": "a"}]}, "graph", "node")
    state = schema.merge(state, {"items": [Item(id=1, text="b"), {"id": 2}]}, "graph", "node")
    assert state.items == [Item(id=1, text="b"), Item(id=2)]


def test_a_reducers_error_names_field_reducer_and_node_and_keeps_the_cause() -> None:
    from typing import Annotated

    class Box(State):
        items: Annotated[list[int], append] = []

    box = Box(items=[1])
    with pytest.raises(ReducerError) as refused:
        Schema(Box).merge(box, {"items": 7}, "shop", "read")
    assert (refused.value.field, refused.value.reducer, refused.value.node_name) == ("items", "append", "read")
    assert refused.value.recoverable_state is box
    assert isinstance(refused.value.__cause__, TypeError)
