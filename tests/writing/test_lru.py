"""The values used last, up to a total size."""

from tenuto.writing.lru import Lru


def kept(recent: Lru[str, str], names: str) -> str:
    return "".join(name for name in names if recent.pop(name) is not None)


def test_a_value_is_found_until_it_is_taken() -> None:
    recent: Lru[str, str] = Lru(100)
    recent.put("a", "alpha", 10)
    recent.put("b", "beta", 10)
    assert (recent.get("a"), recent.get("a"), recent.get("c")) == ("alpha", "alpha", None)
    assert (recent.pop("a"), recent.pop("a"), recent.get("a")) == ("alpha", None, None)
    assert recent.get("b") == "beta"


def test_the_values_used_longest_ago_go_first_as_many_as_it_takes() -> None:
    recent: Lru[str, str] = Lru(100)
    for name in "abcd":
        recent.put(name, name, 25)
    recent.get("a")
    recent.put("e", "e", 26)
    assert kept(recent, "abcde") == "ade"


def test_values_of_just_the_limit_are_kept_and_a_bigger_one_drives_nothing_out() -> None:
    recent: Lru[str, str] = Lru(100)
    recent.put("a", "a", 60)
    recent.put("b", "b", 40)
    recent.put("c", "c", 101)
    assert kept(recent, "abc") == "ab"
    recent.put("d", "d", 100)
    assert kept(recent, "d") == "d"


def test_a_value_takes_the_place_of_the_one_under_its_key_even_if_it_is_too_big_itself() -> None:
    recent: Lru[str, str] = Lru(100)
    for size in (90, 80, 50):
        recent.put("a", f"of {size}", size)
    recent.put("b", "b", 50)
    assert recent.get("a") == "of 50"
    recent.put("a", "too big", 101)
    recent.put("c", "c", 50)
    assert kept(recent, "abc") == "bc"


def test_what_was_taken_leaves_room() -> None:
    recent: Lru[str, str] = Lru(100)
    recent.put("a", "a", 70)
    recent.put("b", "b", 30)
    recent.pop("a")
    recent.put("c", "c", 70)
    assert kept(recent, "abc") == "bc"


def test_nothing_is_kept_without_room_but_what_has_no_size() -> None:
    recent: Lru[str, str] = Lru(0)
    recent.put("a", "a", 1)
    recent.put("b", "b", 0)
    assert kept(recent, "ab") == "b"
