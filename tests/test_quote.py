"""How errors show what they were given."""

from typing import Any

import pytest

from tenuto.quote import quote


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10_000_000,
        b"x" * 1000,
        10**5000,
        -(10**5000),
        [10**5000],
        Unshowable(),
        [Unshowable()],
        _endless(),
        "\ud800",
        list(range(100_000)),
        {n: n for n in range(1000)},
        ["y" * 1000] * 50,
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_is_given_is_shown_in_a_few_words(value: Any) -> None:
    assert 0 < len(quote(value)) < 100


def test_what_is_short_is_shown_as_it_is_and_what_is_cut_has_a_mark() -> None:
    assert [quote("a"), quote(5), quote(None), quote(["a"])] == ["'a'", "5", "None", "['a']"]
    assert quote("x" * 100).endswith("…")
    assert not quote("x" * 50).endswith("…")
