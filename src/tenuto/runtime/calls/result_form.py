"""What the result of a call is declared to be: how it is stored, and what a program gets, now and at every replay."""

from functools import lru_cache
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from tenuto.codec import JSON, encode, loads
from tenuto.errors import InvalidInput
from tenuto.plain_data import plain
from tenuto.quote import quote

T = TypeVar("T")

Returns: TypeAlias = type[T] | TypeAdapter[T]


class ResultForm(Generic[T]):
    """The declared type of a call's result."""

    __slots__ = ("_adapter",)

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        self._adapter = adapter

    def stored(self, result: Any, where: str) -> JSON:
        """Return a result as plain data that is read back unchanged; `InvalidInput` if it is not of the type."""
        return plain(self._checked(result, where), self._dumped, lambda data: self.again(data, where), where)

    def read(self, text: str, where: str) -> T:
        """Return the result that JSON text stands for; `InvalidInput` if the type does not fit it any more."""
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise _misfit(error, f"What is stored as the {where}") from error

    def again(self, data: JSON, where: str) -> T:
        """Return a recorded result."""
        return self.read(encode(data), where)

    def _checked(self, result: Any, where: str) -> T:
        try:
            return self._adapter.validate_python(result)
        except ValidationError as error:
            raise _misfit(error, f"The {where}") from error

    def _dumped(self, value: T) -> JSON:
        return self._adapter.dump_python(value, mode="json", by_alias=True, round_trip=True)


class PlainForm:
    """The form of results without a declared type: JSON, of which the program gets a copy."""

    __slots__ = ()

    def stored(self, result: JSON, where: str) -> JSON:  # noqa: ARG002
        """Return the result; whether it is JSON is found out when it is written."""
        return result

    def read(self, text: str, where: str) -> JSON:
        """Return a copy: changes by the program do not affect the record."""
        return loads(text, where)

    def again(self, data: JSON, where: str) -> JSON:  # noqa: ARG002
        """Return a recorded result."""
        return data


PLAIN = PlainForm()


def form_of(returns: Any) -> ResultForm[Any] | PlainForm:
    """Return the form of a declared type, or of a `TypeAdapter`; without one, that of JSON."""
    if returns is None:
        return PLAIN
    if isinstance(returns, TypeAdapter):
        return ResultForm(returns)
    if isinstance(returns, str):
        raise _no_type(returns)
    try:
        return _known(returns)
    except TypeError:  # it cannot be hashed
        return _made(returns)


def _made(returns: Any) -> ResultForm[Any]:
    try:
        return ResultForm(TypeAdapter(returns))
    except (PydanticUserError, TypeError, NameError) as error:
        raise _no_type(returns) from error


_known = lru_cache(maxsize=256)(_made)


def _no_type(returns: Any) -> InvalidInput:
    return InvalidInput(
        f"returns must be a type that Pydantic can write and read, or a TypeAdapter, got {quote(returns)}.",
        what="returns",
    )


def _misfit(error: ValidationError, what: str) -> InvalidInput:
    fault = error.errors(include_url=False, include_context=False)[0]
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in fault["loc"])
    where = f" at {path.removeprefix('.')}" if path else ""
    return InvalidInput(f"{what} does not fit what the call is declared to return{where}: {fault['msg']}.")
