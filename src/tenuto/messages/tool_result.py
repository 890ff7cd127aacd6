"""The messages that report to a model what happened to a tool call."""

from collections.abc import Mapping
from typing import Any

from tenuto.codec import JSON, encode

NOT_EXECUTED = "not_executed"
"""The metadata field of a result whose call was never carried out."""

OUTCOME_UNKNOWN = "outcome_unknown"
"""The metadata field of a result whose call may have been carried out."""


def not_executed(call_id: str, reason: str) -> dict[str, Any]:
    """Return the result message of a call that was not carried out, with the reason."""
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": f"Not executed: {reason}.",
        "metadata": {NOT_EXECUTED: reason},
    }


def outcome_unknown(call_id: str) -> dict[str, Any]:
    """Return the result message of a call of which it is unknown whether it was carried out."""
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "content": "Outcome unknown: the call was started, but it is not known whether it was carried out.",
        "metadata": {OUTCOME_UNKNOWN: True},
    }


def result_message(call_id: str, result: JSON, error: JSON = None) -> dict[str, Any]:
    """Return the message that reports a call's result to the model; an error is also stored whole as metadata."""
    if error is None:
        content = result if isinstance(result, str) else encode(result)
        return {"role": "tool", "tool_call_id": call_id, "content": content}
    record: Any = error if isinstance(error, Mapping) else {"category": "error", "message": str(error)}
    content = f"Error: {record.get('message')}"
    return {"role": "tool", "tool_call_id": call_id, "content": content, "metadata": {"error": dict(record)}}
