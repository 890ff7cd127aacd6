"""Which answers the pause of a graph accepts, and from whom."""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import AnswerMismatch, SuspensionResumePayloadInvalid
from tenuto.model.run import Run
from tenuto.model.session import Kind
from tenuto.model.wait import Wait, WaitKind
from tenuto.store.store import Store


async def refuse_pause_of_graph(store: Store, run: Run, wait: Wait) -> None:
    """Refuse an answer to a pause of `graph.run`: only the graph itself can resume it, by its invocation."""
    if wait.kind != WaitKind.SIGNAL:
        return
    if run.key.kind is Kind.SESSION:
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        cursor: Any = checkpoint.cursor if checkpoint else None
        if not isinstance(cursor, Mapping) or "frames" not in cursor or "program" in cursor:
            return
    resume = f"graph.resume({wait.wait_id!r}, {{...}})"
    raise AnswerMismatch(
        f"Wait {wait.wait_id} is the pause of a graph that runs without a runtime: answer it with {resume}. Nothing "
        f"was stored; the graph is still paused.",
        wait_id=wait.wait_id,
        expected=resume,
        given="an answer",
    )


def declared_names(schema: JSON) -> list[str] | None:
    """Return the names that a paused graph accepts in an answer, if its wait declares them."""
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return None
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else None


def refuse_unknown(given: Mapping[str, Any], declared: Iterable[str], invocation_id: str) -> None:
    """Refuse an answer with undeclared names: a misspelt name would be dropped, and the run would resume without it."""
    known = list(dict.fromkeys(declared))
    if unknown := [name for name in given if name not in known]:
        raise SuspensionResumePayloadInvalid(
            f"Invocation {invocation_id!r} does not accept {', '.join(map(repr, unknown))} and is still paused; "
            f"expected {', '.join(map(repr, known))}.",
            invocation_id=invocation_id,
            unknown=unknown,
            declared=known,
        )
