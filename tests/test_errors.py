"""One tree of errors, each with its word, its bucket and its data."""

import re

import pytest

import tenuto.errors as errors
from tenuto.errors import (
    Bucket,
    CheckpointSaveFailed,
    EffectFailed,
    LaneBusy,
    NodeException,
    NotJson,
    RunFailed,
    SessionLoadFailed,
    SessionMoved,
    SessionSaveFailed,
    StoreContended,
    StoredDataCorrupt,
    StoreUnavailable,
    SuspensionPersistenceFailed,
    TenutoError,
    VersionConflict,
    bucket_of,
    bucket_of_record,
    cause_of,
)
from tenuto.writing.error_record import error_record

RETRY, USER, OVER = Bucket.RETRYABLE_TRANSIENT, Bucket.USER_CORRECTABLE, Bucket.SESSION_TERMINATING


class Provider(Exception):
    def __init__(self, category: str | None = None, transient: bool | None = None) -> None:
        super().__init__("the model said no")
        if category is not None:
            self.category = category
        if transient is not None:
            self.transient = transient


class Nasty(Exception):
    @property
    def category(self) -> str:
        raise RuntimeError("not today")

    @property
    def transient(self) -> bool:
        raise RuntimeError("not today")


def caused(error: BaseException, *causes: BaseException) -> BaseException:
    below = error
    for cause in causes:
        below.__cause__ = cause
        below = cause
    return error


def tree(root: type[TenutoError]) -> list[type[TenutoError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


def test_every_error_is_drawn_in_the_modules_tree_under_its_parent() -> None:
    lines = (re.match(r"^([ │├└─]*)([A-Z]\w+)(\s|$)", line) for line in (errors.__doc__ or "").splitlines())
    drawn = [(len(found[1]), found[2]) for found in lines if found]
    parents: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    for depth, name in drawn:
        if name not in vars(errors):
            continue
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if stack:
            parents[name] = stack[-1][1]
        stack.append((depth, name))
    actual = {
        kind.__name__: kind.__bases__[0].__name__
        for kind in tree(TenutoError)[1:]
        if kind.__module__.startswith("tenuto.errors")
    }
    assert parents == actual


def test_every_error_has_a_word_and_a_bucket() -> None:
    for kind in tree(TenutoError):
        assert re.fullmatch(r"[a-z_]+", kind.category)
        assert kind.bucket in Bucket


def test_data_are_attributes_and_listed() -> None:
    error = VersionConflict("it moved on", expected=3, found=4)
    assert (error.expected, error.found, error.details()) == (3, 4, {"expected": 3, "found": 4})
    assert str(error) == error.message == "it moved on"
    assert error.retryable
    assert error.category == "session_write_conflict"


def test_retryable_follows_the_bucket() -> None:
    assert LaneBusy("busy").retryable
    assert not StoredDataCorrupt("broken").retryable
    assert StoredDataCorrupt.bucket is Bucket.SESSION_TERMINATING


NODE = NodeException


@pytest.mark.parametrize(
    ("error", "bucket"),
    [
        (Provider("provider_unavailable"), RETRY),
        (Provider("provider_rate_limit"), RETRY),
        (Provider("provider_model_not_loaded"), RETRY),
        (Provider("provider_invalid_request"), USER),
        (Provider("provider_authentication"), USER),
        (Provider("provider_of_another_kind"), USER),
        (Provider(transient=True), RETRY),
        (Provider("provider_unavailable", transient=False), USER),
        (ValueError(), USER),
        (caused(NODE("at a"), Provider("provider_unavailable")), RETRY),
        (caused(NODE("at a"), NODE("at b"), NODE("at c"), Provider("provider_unavailable")), RETRY),
        (caused(NODE("at a"), ValueError(), Provider("provider_rate_limit")), RETRY),
        (caused(NODE("at a"), Provider("provider_authentication"), Provider("provider_unavailable")), USER),
        (caused(NODE("at a"), StoreContended("busy")), RETRY),
        (caused(NODE("at a"), StoredDataCorrupt("broken")), OVER),
        (caused(NODE("at a"), KeyError("x")), USER),
        (caused(NODE("at a"), Nasty()), USER),
        (NODE("at a"), USER),
        (SessionSaveFailed("no"), RETRY),
        (caused(SessionSaveFailed("no"), OSError("disk")), RETRY),
        (caused(SessionSaveFailed("no"), StoreUnavailable("gone")), RETRY),
        (caused(SessionSaveFailed("no"), NotJson("x is nan", path="x")), USER),
        (caused(CheckpointSaveFailed("no"), NotJson("x is nan", path="x")), USER),
        (caused(CheckpointSaveFailed("no"), StoreUnavailable("gone")), RETRY),
        (SuspensionPersistenceFailed("no store"), USER),
        (caused(SuspensionPersistenceFailed("no"), StoreUnavailable("gone")), RETRY),
        (SessionLoadFailed("does not fit"), OVER),
        (caused(SessionLoadFailed("no"), StoreUnavailable("gone")), RETRY),
        (SessionMoved("moved"), USER),
        (EffectFailed("no", error={"category": "provider_rate_limit", "message": ""}), RETRY),
        (EffectFailed("no", error={"category": "KeyError", "message": ""}), USER),
        (RunFailed("no", error={"category": "node_exception", "cause": "store_contended"}), RETRY),
        (RunFailed("no", error=None), USER),
    ],
)
def test_the_first_link_of_the_cause_chain_that_says_so_decides_who_can_help(
    error: BaseException, bucket: Bucket
) -> None:
    assert bucket_of(error) is bucket
    if isinstance(error, TenutoError):
        assert (error.bucket, error.retryable) == (bucket, bucket is RETRY)
    record = error_record(error)
    # What is stored of it tells the same, unless nobody had anything to say.
    assert bucket_of_record(record) in (bucket, None)
    assert (bucket_of_record(record) is RETRY) == (bucket is RETRY)


def test_a_chain_that_is_a_ring_ends() -> None:
    one, two = NODE("a"), NODE("b")
    one.__cause__, two.__cause__ = two, one
    assert one.bucket is USER
    assert cause_of(one) is None


def test_a_stored_error_keeps_the_category_of_its_cause() -> None:
    limited = caused(NODE("at a"), NODE("at b"), Provider("provider_rate_limit"))
    assert error_record(limited) == {
        "category": "node_exception",
        "message": "at a",
        "cause": "provider_rate_limit",
    } | {"details": {"graph": None, "node_name": None}}
    assert "cause" not in error_record(LaneBusy("busy"))
    marked = error_record(caused(NODE("at a"), Provider(transient=True)))
    assert marked["transient"] is True


def every_error() -> list[type[TenutoError]]:
    kinds: list[type[TenutoError]] = [TenutoError]
    for kind in kinds:
        kinds += [each for each in kind.__subclasses__() if each.__module__.startswith("tenuto.")]
    return kinds


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_shows_only_details_it_declares_and_documents(kind: type[TenutoError]) -> None:
    documented = {name for each in kind.__mro__ for name in vars(each).get("__annotations__", {})}
    assert kind.public <= documented
    assert not kind.public & {"nonce", "holder", "owner", "host", "url", "sql", "key", "tenant"}


def test_a_stored_error_has_the_public_details_alone() -> None:
    busy = LaneBusy("busy", owner="host:7", generation=3, expires_at=5, holder="h", key="k")
    assert busy.public_details() == {"expires_at": 5}
    assert error_record(busy)["details"] == {"expires_at": 5}
    assert "details" not in error_record(TenutoError("undeclared", anything="secret"))

    class Own(TenutoError):
        public = frozenset({"shown"})

    assert error_record(Own("own", shown=1, hidden=2))["details"] == {"shown": 1}
