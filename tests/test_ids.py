"""The ids we mint and the rules for those we are given."""

import os
import time
from collections.abc import Callable
from uuid import UUID

import pytest

from tenuto import ids
from tenuto.errors import InvalidId
from tenuto.ids import check_id, check_tenant, new_id, random_id


def test_minted_ids_are_uuid7_distinct_and_in_order() -> None:
    before = time.time_ns() // 1_000_000
    minted = [new_id() for _ in range(10_000)]
    after = time.time_ns() // 1_000_000
    assert minted == sorted(set(minted))
    assert {UUID(each).version for each in minted} == {7}
    assert {UUID(each).variant for each in minted} == {"specified in RFC 4122"}
    assert before <= int(minted[0].replace("-", "")[:12], 16) <= after


@pytest.mark.parametrize(("mint", "version"), [(new_id, 7), (random_id, 4)])
def test_the_random_part_of_an_id_is_the_systems_and_used_once(
    mint: Callable[[], str], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a generator of our own draws follows from what it drew before; an id would be no secret then."""
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes((index * 7 + len(asked)) % 256 for index in range(size))

    ids._drawn.clear()
    monkeypatch.setattr(os, "urandom", urandom)
    monkeypatch.setattr("random._urandom", urandom)
    try:
        minted = [mint() for _ in range(600)]
    finally:
        ids._drawn.clear()
    assert {UUID(each).version for each in minted} == {version}
    assert {UUID(each).variant for each in minted} == {"specified in RFC 4122"}
    assert sum(asked) >= 600 * 8


def test_a_forked_process_mints_other_ids() -> None:
    new_id()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, new_id()[-16:].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(ours, 16).decode() != new_id()[-16:]
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("good", ["a", "a b", "Ünïcödé", "x" * 255, "ü" * 127, "...", "a.b", "🎼", "a:b@c#d?e"])
def test_ids_within_the_rules_pass(good: str) -> None:
    assert check_id(good) == good


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("", "0 bytes"),
        ("x" * 256, "256 bytes"),
        ("ü" * 128, "256 bytes"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a\x85b", "control"),
        ("a\x00", "control"),
        ("a/b", "slash"),
        ("a\\b", "slash"),
        (" a", "space"),
        ("a ", "space"),
        ("\u00a0a", "space"),
        (".", "folder"),
        ("..", "folder"),
        ("a\ud800", "surrogate"),
        (None, "text"),
        (7, "text"),
    ],
)
def test_each_breach_of_the_rules_is_refused_and_said(bad: object, why: str) -> None:
    with pytest.raises(InvalidId, match=why):
        check_id(bad)


def test_the_empty_tenant_is_the_default_and_others_follow_the_rules() -> None:
    assert check_tenant("") == ""
    assert check_tenant("acme") == "acme"
    with pytest.raises(InvalidId, match="tenant"):
        check_tenant("a/b")
