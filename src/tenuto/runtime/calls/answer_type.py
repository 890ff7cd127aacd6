"""What an answer is declared to be: the schema that it is checked with when it is given, and the value made of it."""

from functools import lru_cache
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from tenuto.codec import JSON, encode
from tenuto.errors import AnswerInvalid, InvalidInput
from tenuto.model.wait import Wait
from tenuto.quote import quote
from tenuto.runtime.session.json_schema import ClosedSchema, Problem, path_of, sentence, shown

T = TypeVar("T")


class AnswerType(Generic[T]):
    """A declared type, by Pydantic. Names that it does not declare are refused, unless the type allows them."""

    __slots__ = ("_adapter", "schema")

    def __init__(self, adapter: TypeAdapter[T]) -> None:
        self._adapter = adapter
        self.schema: dict[str, JSON] = adapter.json_schema(schema_generator=ClosedSchema)

    def read(self, wait: Wait, answer: JSON) -> T:
        """Return the value that an answer stands for.

        It fits the schema; the type's own validators may still refuse it, now and at every replay.
        """
        try:
            return self._adapter.validate_json(encode(answer))
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            problems = [Problem(path_of(("answer", *each["loc"])), each["msg"]) for each in faults]
            raise AnswerInvalid(
                f"The answer to wait {wait.wait_id} ({wait.signal_id}) of {wait.key} is refused by the type that the "
                f"program declares. {sentence(problems)}",
                wait_id=wait.wait_id,
                problems=shown(problems),
            ) from error


def answer_type(returns: Any) -> AnswerType[Any]:
    """Return what a type, or a `TypeAdapter`, says of an answer; `InvalidInput` if it has no JSON Schema."""
    try:
        return _known(returns)
    except TypeError:  # it cannot be hashed
        return _made(returns)


def _made(returns: Any) -> AnswerType[Any]:
    try:
        return AnswerType(returns if isinstance(returns, TypeAdapter) else TypeAdapter(returns))
    except (PydanticUserError, TypeError, ValueError, NameError, AttributeError) as error:
        said = str(error).partition("\n")[0]
        raise InvalidInput(
            f"`returns` must be a type that Pydantic can describe by a JSON Schema, got {quote(returns)}: {said}"
        ) from error


_known = lru_cache(maxsize=256)(_made)
