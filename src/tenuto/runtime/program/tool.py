"""Tools: what a model can call, and how each is carried out."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pydantic import BaseModel

from tenuto.argument import check_flag, refuse
from tenuto.codec import dumps
from tenuto.errors import InvalidInput
from tenuto.quote import quote
from tenuto.runtime.calls.retry import NO_RETRY, Backoff, Retry, RetryOn
from tenuto.runtime.program.doc_sections import read_docstring
from tenuto.runtime.program.program_name import Named, full_name
from tenuto.runtime.program.tool_parameters import (
    Arguments,
    ArgumentsInvalid,
    Parameters,
    check_arguments,
    parameters_of,
)
from tenuto.runtime.program.turn import Turn
from tenuto.store.bounds import check_name
from tenuto.words import JSON, Seconds

if TYPE_CHECKING:
    from anthropic.types import ToolParam
    from openai.types.chat import ChatCompletionToolParam

Run: TypeAlias = Callable[[Turn[Any], dict[str, Any]], Awaitable[JSON]]
NeedsApproval: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MESSAGE: dict[str, JSON] = {
    "type": "object",
    "properties": {"message": {"type": "string", "description": "What to ask."}},
    "required": ["message"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """How a tool is carried out: by `run`, by a session of the program `child`, or by the client.

    `wait_seconds` is how long an approval or an answer may take, and `result` the schema of a client's answer.
    """

    name: str
    parameters: Parameters
    run: Run | None = None
    child: str | None = None
    idempotent: bool = False
    needs_approval: NeedsApproval = False
    retry: Retry = field(default=NO_RETRY)
    wait_seconds: float | None = None
    result: JSON = None

    def check(self, given: Any) -> Arguments:
        """Return the arguments of a call as the tool runs with them; raise `ArgumentsInvalid`."""
        return check_arguments(self.parameters, given)

    async def make(self, turn: Turn[Any], values: dict[str, Any]) -> JSON:
        """Run the tool's function once."""
        assert self.run is not None
        result = self.run(turn, values)
        if not isinstance(result, Awaitable):
            raise InvalidInput(f"The function of the tool {self.name!r} is a plain one: use `async def`, or `@tool`.")
        return await result

    def asks_first(self, arguments: Arguments) -> bool:
        """Return whether this call needs approval."""
        wanted = self.needs_approval
        return bool(wanted(arguments.data)) if callable(wanted) else wanted


class Tool:
    """Something a model can call. Without `run` and `child`, the client carries it out and sends the result.

    `run` gets the turn and the arguments. `parameters` are a Pydantic model or a JSON Schema; without them, any
    arguments are passed, to a `child` as its message. A call may be made again after a failure, `retries` times, if it
    is `idempotent`, or if `retry_on` says that nothing was done. `timeout` limits each making of a tool that runs at
    once; if a person approves it, or if a client or a child answers, it is how long that may take.
    """

    __slots__ = ("_spec", "description")

    def __init__(
        self,
        name: str,
        run: Run | None = None,
        *,
        description: str = "",
        parameters: type[BaseModel] | Mapping[str, JSON] | None = None,
        child: str | None = None,
        idempotent: bool = False,
        needs_approval: NeedsApproval = False,
        retries: int = 0,
        backoff: Backoff = 0.5,
        timeout: Seconds | None = None,
        retry_on: RetryOn | None = None,
    ) -> None:
        self.description = _text(description)
        self._spec = declare(
            name,
            parameters_of(parameters, name),
            run=run,
            child=child,
            idempotent=idempotent,
            needs_approval=needs_approval,
            retry=Retry(retries, backoff, timeout, retry_on),
        )

    @classmethod
    def _of(cls, spec: ToolSpec, description: str) -> "Tool":
        made = cls.__new__(cls)
        made._spec, made.description = spec, _text(description)
        return made

    @property
    def name(self) -> str:
        """The name a model calls it by."""
        return self._spec.name

    @property
    def parameters(self) -> Mapping[str, JSON]:
        """The JSON Schema of its arguments."""
        return self._spec.parameters.schema

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    async def call(self, turn: Turn[Any], arguments: Mapping[str, JSON]) -> JSON:
        """Check the arguments and run the function once: without approval, retries, or a record of the call.

        Arguments that do not fit raise `InvalidInput`, and so does a tool that has no function.
        """
        spec = self._spec
        if spec.run is None:
            raise InvalidInput(f"The tool {spec.name!r} is carried out by {'a child' if spec.child else 'the client'}.")
        try:
            made = spec.check(arguments)
        except ArgumentsInvalid as error:
            raise InvalidInput(f"The tool {spec.name!r} was not called. {error}") from error
        return await spec.make(turn, made.values)

    def openai(self) -> "ChatCompletionToolParam":
        """Return the tool in the form of OpenAI's chat completions."""
        described = {"description": self.description} if self.description else {}
        function = {"name": self.name, **described, "parameters": dict(self.parameters)}
        return cast("ChatCompletionToolParam", {"type": "function", "function": function})

    def anthropic(self) -> "ToolParam":
        """Return the tool in the form of Anthropic's messages."""
        described = {"description": self.description} if self.description else {}
        return cast("ToolParam", {"name": self.name, **described, "input_schema": dict(self.parameters)})


def spec_of(tool: Tool) -> ToolSpec:
    """Return how a tool is carried out."""
    return tool._spec


def tool_of(spec: ToolSpec, description: str) -> Tool:
    """Return a tool that is carried out this way."""
    return Tool._of(spec, description)


def declare(
    name: str,
    parameters: Parameters,
    *,
    run: Run | None = None,
    child: str | None = None,
    result: JSON = None,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    retry: Retry = NO_RETRY,
) -> ToolSpec:
    """Return how a tool is carried out; raise `InvalidInput` for what cannot be."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{quote(name)} cannot be a tool's name: providers take 1 to 64 of a-z, A-Z, 0-9, _ and -. Pass `name=`."
        )
    if run is not None and not callable(run):
        refuse(f"run of the tool {name!r}", "an async function of the turn and the arguments", run)
    if run is not None and child is not None:
        raise InvalidInput(f"The tool {name!r} has both `run` and `child`; pass one of them.")
    check_flag(idempotent, "idempotent")
    if not callable(needs_approval):
        check_flag(needs_approval, "needs_approval")
    if retry.retries and run is None:
        raise InvalidInput(f"The tool {name!r} is not run here, so it cannot be repeated: leave `retries` out.")
    retry.check_safe(f"The tool {name!r}", repeatable=idempotent)
    waits = run is None or needs_approval is not False
    return ToolSpec(
        name=name,
        parameters=parameters,
        run=run,
        child=None if child is None else check_name(child, "child"),
        idempotent=idempotent,
        needs_approval=needs_approval,
        retry=replace(retry, timeout=None) if waits else retry,
        wait_seconds=retry.seconds if waits else None,
        result=result,
    )


def child_tool(
    program: Named, *, name: str | None, description: str | None, timeout: Seconds | None, said: str | None
) -> Tool:
    """Return the tool that asks a session of a program; `said` is the docstring that describes it by default."""
    text = read_docstring(said).description if description is None else description
    called = program.name if name is None else name
    return Tool(called, description=text, parameters=_MESSAGE, child=full_name(program), timeout=timeout)


def _text(description: Any) -> str:
    if not isinstance(description, str):
        refuse("description", "a text", description)
    dumps(description, "description")
    return description
