"""The root of all errors, and whose cause decides who can do something about one."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from inspect import get_annotations, getattr_static
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

T = TypeVar("T")

_PUBLIC = "public"
Public: TypeAlias = Annotated[T, _PUBLIC]
"""A detail of an error that anybody may see who gets to see the error; a run's record keeps it."""


class Bucket(StrEnum):
    """Who can do something about an error."""

    SESSION_TERMINATING = "session_terminating"
    RETRYABLE_TRANSIENT = "retryable_transient"
    USER_CORRECTABLE = "user_correctable"


class _OfCause:
    """The bucket of an error that passes another one on: its cause's, or `default` if that says nothing."""

    def __init__(self, default: Bucket) -> None:
        self.default = default

    def __get__(self, error: "TenutoError | None", kind: type | None = None) -> Bucket:
        return self.default if error is None else bucket_of(error)


def of_cause(default: Bucket) -> Any:
    """Return a bucket that is its cause's, or `default` if that says nothing."""
    return _OfCause(default)


class TenutoError(Exception):
    """The root of all errors raised by Tenuto."""

    category: str = "tenuto_error"
    bucket: ClassVar[Bucket] = Bucket.USER_CORRECTABLE
    public: ClassVar[frozenset[str]] = frozenset()
    """Which details anybody may see who gets to see the error: those annotated as `Public`, here or in a base class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        told = {name: getattr(hint, "__metadata__", ()) for name, hint in get_annotations(cls).items()}
        cls.public |= {name for name, marks in told.items() if _PUBLIC in marks}

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self._details = details
        for name, value in details.items():
            setattr(self, name, value)

    @property
    def retryable(self) -> bool:
        """Whether the same call may be made again unchanged, or after a reload where the message says so."""
        return self.bucket is Bucket.RETRYABLE_TRANSIENT

    def details(self) -> dict[str, Any]:
        """Return the data behind the error, by name, for code and operators: not all of it is for everybody."""
        return dict(self._details)

    def public_details(self) -> dict[str, Any]:
        """Return what of the data a run's record keeps, and a door may pass on."""
        return {name: value for name, value in self._details.items() if name in self.public}


_PROVIDERS = {
    "provider_unavailable": Bucket.RETRYABLE_TRANSIENT,
    "provider_rate_limit": Bucket.RETRYABLE_TRANSIENT,
    "provider_model_not_loaded": Bucket.RETRYABLE_TRANSIENT,
    "provider_invalid_request": Bucket.USER_CORRECTABLE,
    "provider_authentication": Bucket.USER_CORRECTABLE,
}


def bucket_of(error: BaseException) -> Bucket:
    """Return who can do something about an error, whoever raised it.

    The first link of its cause chain that says so decides: by its mark `transient`, by its own bucket unless it only
    passes another error on, or by its category. If none does, it is the bucket that the outermost carrier has by
    default, and of an error that is not ours, the user's to correct.
    """
    default: Bucket | None = None
    for each in _chain(error):
        mark = _told(each, "transient")
        if isinstance(mark, bool):
            return Bucket.RETRYABLE_TRANSIENT if mark else Bucket.USER_CORRECTABLE
        if isinstance(each, TenutoError):
            rule: Any = getattr_static(type(each), "bucket")
            if not isinstance(rule, _OfCause):
                return Bucket(rule)
            default = default or rule.default
            found = bucket_of_record(_told(each, "error"))
        else:
            found = _categories().get(str(_told(each, "category")))
        if found is not None:
            return found
    return default or Bucket.USER_CORRECTABLE


def bucket_of_record(record: Any) -> Bucket | None:
    """Return the bucket of an error that was stored as plain data; None where its categories say nothing."""
    if not isinstance(record, Mapping):
        return None
    if isinstance(mark := record.get("transient"), bool):
        return Bucket.RETRYABLE_TRANSIENT if mark else Bucket.USER_CORRECTABLE
    told = (_categories().get(str(record.get(name))) for name in ("cause", "category"))
    return next((bucket for bucket in told if bucket is not None), None)


def cause_of(error: BaseException) -> str | None:
    """Return the category of what an error that only passes another one on was caused by, if that has one."""
    for each in _chain(error):
        if not isinstance(each, TenutoError) or not isinstance(getattr_static(type(each), "bucket"), _OfCause):
            category = _told(each, "category")
            if isinstance(category, str) and category:
                return None if each is error else category
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while isinstance(error, BaseException) and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _told(error: BaseException, name: str) -> Any:
    """Return what an exception says of itself; one of the user's own may raise when it is asked."""
    with suppress(Exception):
        return getattr(error, name, None)
    return None


@cache
def _categories() -> dict[str, Bucket]:
    """Return the bucket of every category; of two errors with one word, the more general one's."""
    table = dict(_PROVIDERS)
    kinds: list[type[TenutoError]] = [TenutoError]
    for kind in kinds:
        table.setdefault(kind.category, kind.bucket)
        kinds += kind.__subclasses__()
    return table
