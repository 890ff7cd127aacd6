"""`@tool`: a function as a tool, by its signature and docstring."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, overload

from tenuto.argument import check_flag
from tenuto.errors import InvalidInput
from tenuto.runtime.calls.retry import Backoff, Retry, RetryOn
from tenuto.runtime.program.tool import NeedsApproval, Run, Tool, declare, tool_of
from tenuto.runtime.program.tool_signature import ToolSignature, read_signature
from tenuto.runtime.program.turn import Turn
from tenuto.words import JSON, Seconds


@overload
def tool(function: Callable[..., object], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    client: bool = False,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    retries: int = 0,
    backoff: Backoff = 0.5,
    timeout: Seconds | None = None,
    retry_on: RetryOn | None = None,
) -> Callable[[Callable[..., object]], Tool]: ...
def tool(
    function: Callable[..., object] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    client: bool = False,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    retries: int = 0,
    backoff: Backoff = 0.5,
    timeout: Seconds | None = None,
    retry_on: RetryOn | None = None,
) -> Any:
    """Make a function a tool: `@tool`, or `@tool(needs_approval=True, ...)`.

    Its name, description and parameters come from the function. A parameter annotated as `Turn` gets the turn, and the
    model does not see it. A plain function runs in a thread and cannot take the turn. With `client`, the function is
    never run: the client answers, with what the function is annotated to return. The other options are those of `Tool`.
    """

    def made(body: Callable[..., object]) -> Tool:
        signature = read_signature(body, name, description)
        check_flag(client, "client")
        if signature.turn is not None and (client or not signature.is_async):
            why = "is run by the client" if client else "runs in a thread: declare it with `async def`"
            raise InvalidInput(f"The tool {signature.name!r} takes the turn as {signature.turn!r}, but {why}.")
        spec = declare(
            signature.name,
            signature.parameters,
            run=None if client else _run_of(body, signature),
            result=signature.result_schema() if client else None,
            idempotent=idempotent,
            needs_approval=needs_approval,
            retry=Retry(retries, backoff, timeout, retry_on),
        )
        return tool_of(spec, signature.description)

    return made if function is None else made(function)


def _run_of(body: Callable[..., Any], signature: ToolSignature) -> Run:
    async def run(turn: Turn[Any], values: dict[str, Any]) -> JSON:
        given = values if signature.turn is None else {**values, signature.turn: turn}
        result = body(**given) if signature.is_async else await asyncio.to_thread(_in_thread, body, given)
        return signature.plain(await result if isawaitable(result) else result)

    return run


def _in_thread(body: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call a function; a `StopIteration` cannot leave the thread, its caller would wait forever."""
    try:
        return body(**given)
    except StopIteration as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
