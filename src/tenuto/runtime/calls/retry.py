"""Which failed calls are made again within the call of an effect, how often, and after which pause."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias, TypeVar

from tenuto.argument import refuse
from tenuto.codec import JSON
from tenuto.errors import Bucket, InvalidInput, NodeException, TenutoError, bucket_of, bucket_of_record
from tenuto.quote import quote
from tenuto.store.bounds import check_delay, check_timeout
from tenuto.words import Seconds
from tenuto.writing.error_record import error_record

T = TypeVar("T")

MOST_RETRIES = 1000
LONGEST_PAUSE = 3600.0
"""The longest pause between two makings that is not asked for by name: by doubling, or by a server's Retry-After."""

RETRIED_STATUS = frozenset({408, 409, 429})
"""The HTTP statuses below 500 of a request that may succeed when it is repeated."""

Backoff: TypeAlias = float | Callable[[int], float]
RetryOn: TypeAlias = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a call is made again after a failure.

    `backoff` is the pause in seconds before the first repeat, twice as long before each later one, or a function of the
    number of the making that failed, from 1. `timeout` limits each making. `retry_on` are the failures after which the
    call is made again: exception types, or a function of the exception; without it, those that are transient.
    """

    retries: int = 0
    backoff: Backoff = 0.5
    timeout: Seconds | None = None
    retry_on: RetryOn | None = None

    def __post_init__(self) -> None:
        if type(self.retries) is not int or not 0 <= self.retries <= MOST_RETRIES:
            refuse("retries", f"a whole number from 0 to {MOST_RETRIES}", self.retries)
        if not callable(self.backoff):
            check_delay(self.backoff, "backoff")
        if self.timeout is not None:
            check_timeout(self.seconds, "timeout")
        if self.retry_on is not None and not _is_condition(self.retry_on):
            refuse("retry_on", "an exception type, a tuple of them, or a function of the exception", self.retry_on)

    @property
    def seconds(self) -> float | None:
        """The limit for each making, in seconds."""
        return self.timeout.total_seconds() if isinstance(self.timeout, timedelta) else self.timeout

    def check_safe(self, what: str, *, repeatable: bool) -> None:
        """Refuse retries of a call that must not be repeated, unless `retry_on` names failures that did nothing."""
        if self.retries and self.retry_on is None and not repeatable:
            raise InvalidInput(
                f"{what} is not idempotent, so it cannot be repeated after just any failure: pass `retry_on=` with the "
                "errors that prove that nothing was done, or declare it idempotent.",
                what="retries",
            )

    def repeats(self, error: Exception) -> bool:
        """Return whether a call is made again after a failure; `InvalidInput` if `retry_on` cannot say."""
        wanted = self.retry_on
        if wanted is None:
            return is_transient(error)
        if isinstance(wanted, type | tuple):
            return isinstance(error, wanted)
        answer = _asked(wanted, error, "retry_on")
        if type(answer) is not bool:
            raise InvalidInput(f"retry_on must return True or False, got {quote(answer)}.", what="retry_on")
        return answer

    def pause(self, making: int, error: Exception) -> float:
        """Return the seconds to wait after a making; `InvalidInput` if `backoff` cannot say.

        A server that asks for a longer pause gets it, up to an hour.
        """
        if callable(self.backoff):
            seconds = check_delay(_asked(self.backoff, making, "backoff"), "what backoff returns")
        else:
            seconds = min(self.backoff * 2.0 ** min(making - 1, 64), max(LONGEST_PAUSE, self.backoff))
        return max(seconds, min(retry_after(error), LONGEST_PAUSE))


NO_RETRY = Retry()


def is_transient(error: BaseException) -> bool:
    """Return whether a failed call may succeed when it is repeated.

    It may if the error or its cause says so (`bucket_of`), if the connection failed or timed out, or by the HTTP status
    that the errors of most clients have.
    """
    if isinstance(error, NodeException) and error.__cause__ is not None:
        return is_transient(error.__cause__)  # of the call in a node of a graph
    marked = _read(error, "transient")
    if isinstance(marked, bool):
        return marked
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    status = _read(error, "status_code")
    if status is None:
        status = _read(_read(error, "response"), "status_code")
    if type(status) is int:
        return status in RETRIED_STATUS or status >= 500
    return (isinstance(error, TenutoError) and error.retryable) or bucket_of(error) is Bucket.RETRYABLE_TRANSIENT


def transient_record(error: BaseException) -> JSON:
    """Return an error as plain data that says so if the same may succeed when it is repeated."""
    record = error_record(error)
    if bucket_of_record(record) is not Bucket.RETRYABLE_TRANSIENT and is_transient(error):
        return {**record, "transient": True}
    return record


def retry_after(error: BaseException) -> float:
    """Return the seconds that a server asked to wait for in its response; 0 if it asked for nothing."""
    headers = _read(_read(error, "response"), "headers")
    if (milliseconds := _number(_header(headers, "retry-after-ms"))) is not None:
        return milliseconds / 1000
    asked = _header(headers, "retry-after")
    if (seconds := _number(asked)) is not None:
        return seconds
    with suppress(Exception):  # a date, and relative to the server's clock, not to ours
        until = parsedate_to_datetime(str(asked)) - parsedate_to_datetime(str(_header(headers, "date")))
        return max(0.0, until.total_seconds())
    return 0.0


def _is_condition(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(each, type) and issubclass(each, Exception) for each in value)
    return issubclass(value, Exception) if isinstance(value, type) else callable(value)


def _asked(function: Callable[[T], Any], given: T, what: str) -> Any:
    try:
        return function(given)
    except Exception as error:
        raise InvalidInput(f"{what} raised {type(error).__name__} instead of returning a value.", what=what) from error


def _read(thing: Any, name: str) -> Any:
    """Return what an exception, or its response, says of itself; its own class may raise when it is asked."""
    with suppress(Exception):
        return getattr(thing, name, None)
    return None


def _header(headers: Any, name: str) -> Any:
    with suppress(Exception):
        if isinstance(headers, Mapping) or callable(getattr(headers, "get", None)):
            found = headers.get(name)
            return headers.get(name.title()) if found is None else found
    return None


def _number(text: Any) -> float | None:
    with suppress(TypeError, ValueError):
        value = float(text)
        return value if 0 <= value < float("inf") else None
    return None
