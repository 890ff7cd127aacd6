"""The form in which each kind of wait is answered, and the check that an answer has to pass."""

from collections.abc import Mapping, Sequence
from typing import Any

from tenuto.codec import JSON, dumps
from tenuto.errors import AnswerInvalid, InvalidInput
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.quote import quote
from tenuto.runtime.session.json_schema import JsonSchema, Problem, sentence, shown

_APPROVAL: dict[str, JSON] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
    "additionalProperties": False,
}
_IN_DOUBT: dict[str, JSON] = {
    "type": "object",
    "properties": {"outcome": {"enum": ["done", "failed", "retry"]}, "result": {}, "error": {}},
    "required": ["outcome"],
    "additionalProperties": False,
}


def checked(wait: Wait, value: JSON, error: JSON) -> JSON:
    """Return an answer in the form that is stored; raise `AnswerInvalid` if it is not what the wait takes.

    A child's answer comes from the child alone, and no answer wakes a sleeping run.
    """
    dumps(value, "answer")
    dumps(error, "error")
    if error is not None and wait.kind not in (WaitKind.TOOL_RESULT, WaitKind.CHILD):
        raise invalid(wait, [Problem("error", f"A wait of kind {wait.kind!r} takes a value, not an error.")])
    match wait.kind:
        case WaitKind.APPROVAL:
            answer: Any = {"approved": value} if isinstance(value, bool) else value
            _check(wait, answer, _APPROVAL)
            return dict(answer)
        case WaitKind.TOOL_RESULT:
            if error is not None:
                return {"error": error_data(error)}
            _check(wait, value, wait.schema)
            return {"result": value}
        case WaitKind.CHILD:
            ended: Any = value
            return dict(ended) if error is None else {"error": error_data(error)}
        case WaitKind.IN_DOUBT:
            _check(wait, value, _IN_DOUBT)
            settled: Any = value
            found = settled.get("error")
            return dict(settled) if found is None else {**settled, "error": error_data(found)}
        case _:
            _check(wait, value, wait.schema)
            return value


def refuse_foreign(wait: Wait) -> None:
    """Refuse what somebody else answers: a child's end, and the clock."""
    match wait.kind:
        case WaitKind.CHILD:
            child = wait.metadata.get("child")
            raise invalid(wait, [Problem("", f"Only the child {quote(child)} answers it, when its turn ends.")])
        case WaitKind.TIME:
            way = "Only the clock wakes a sleeping run; `abandon_waits`, or a new message, ends its sleep."
            raise invalid(wait, [Problem("", way)])


def same_json(one: JSON, other: JSON) -> bool:
    """Return whether two JSON values are equal: true is not 1, and the order of names does not count."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_json(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def error_data(error: JSON) -> JSON:
    """Return an error in the form that is stored: a category, a message, and any other fields passed."""
    if isinstance(error, Mapping):
        return {"category": "tool_error", "message": "", **error}
    return {"category": "tool_error", "message": str(error)}


def _check(wait: Wait, value: JSON, schema: Any) -> None:
    """Check a value whole against a schema; without one, everything fits."""
    if schema is None:
        return
    try:
        declared = JsonSchema(schema, "schema")
    except InvalidInput as error:  # opened by a version that did not check it
        raise invalid(wait, [Problem("", f"{error.message} Abandon the wait.")]) from error
    if found := declared.problems(value):
        raise invalid(wait, found)


def invalid(wait: Wait, problems: Sequence[Problem]) -> AnswerInvalid:
    """Return the refusal of an answer, with its problems by their paths within it."""
    placed = [Problem(f"answer{_joined(path)}", problem) for path, problem in problems]
    state = "still open" if wait.status is WaitStatus.OPEN else wait.status
    return AnswerInvalid(
        f"Wait {wait.wait_id} ({wait.signal_id or wait.kind}) of {wait.key} is {state}: the answer does not fit, "
        f"and nothing was stored. {sentence(placed)}",
        wait_id=wait.wait_id,
        problems=shown(placed),
    )


def _joined(path: str) -> str:
    return path if not path or path.startswith("[") else f".{path}"
