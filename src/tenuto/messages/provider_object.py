"""What a provider's library returns, as plain data; that library is not imported."""

from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from tenuto.argument import MAPPING, refuse
from tenuto.errors import InvalidInput
from tenuto.quote import quote


class ProviderObject(Protocol):
    """An object of a provider's library: a Pydantic model, such as a `ChatCompletion`."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool, warnings: bool) -> dict[str, Any]:
        """Return the object as plain data."""
        ...


Native: TypeAlias = ProviderObject | Mapping[str, object]
"""A message in a provider's form: an object of its library, or a mapping of the same fields."""

Stream: TypeAlias = AsyncIterable[Native] | Awaitable[AsyncIterable[Native]]
"""A stream of a provider's library, or the request for one, which has not been awaited."""


async def opened(stream: Stream) -> AsyncIterable[Native]:
    """Return the stream, after awaiting the request for it."""
    return await stream if isinstance(stream, Awaitable) else stream


@contextmanager
def understood_as(what: str, value: Any) -> Iterator[None]:
    """Refuse a value in whose place something else was expected within it."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        raise InvalidInput(f"This is not {what}: {quote(value)}.") from error


def plain(value: Any) -> Any:
    """Return a value as plain data: objects with all fields that were set, and any other collection as a list."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, MAPPING):
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [plain(each) for each in value]
    return refuse("a message", "an object of a provider's library, a mapping, or a list of them", value)
