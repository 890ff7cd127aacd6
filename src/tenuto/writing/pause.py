"""What the pause of a graph takes for an answer, and who may give it."""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.codec import JSON
from tenuto.errors import AnswerMismatch, SuspensionResumePayloadInvalid
from tenuto.model.run import Run
from tenuto.model.session import Kind
from tenuto.model.wait import Wait, WaitKind
from tenuto.store.store import Store


async def refuse_pause_of_graph(store: Store, run: Run, wait: Wait) -> None:
    """Refuse an answer to what `graph.run` paused for: only the graph itself can go on with it, by its invocation."""
    if wait.kind != WaitKind.SIGNAL:
        return
    if run.key.kind is Kind.SESSION:
        checkpoint = await store.checkpoints.latest(run.key, run_id=run.run_id)
        cursor: Any = checkpoint.cursor if checkpoint else None
        if not isinstance(cursor, Mapping) or "frames" not in cursor or "program" in cursor:
            return
    resume = f"graph.run(resume_invocation={run.invocation_id!r}, signal_payload=...)"
    raise AnswerMismatch(
        f"Wait {wait.wait_id} is a pause of a graph that was run by itself, which no runtime can go on with: answer it "
        f"with {resume}. Nothing was stored, and it is still paused.",
        wait_id=wait.wait_id,
        expected=resume,
        given="an answer",
    )


def declared_names(schema: JSON) -> list[str] | None:
    """Return the names a paused graph takes in an answer, if its wait says so."""
    if not isinstance(schema, Mapping) or schema.get("additionalProperties") is not False:
        return None
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else None


def refuse_unknown(given: Mapping[str, Any], declared: Iterable[str], invocation_id: str) -> None:
    """Refuse an answer with names that nobody declared: one that is misspelt would be dropped, and the run go on."""
    known = list(dict.fromkeys(declared))
    if unknown := [name for name in given if name not in known]:
        raise SuspensionResumePayloadInvalid(
            f"Invocation {invocation_id!r}, which is still paused, does not know {', '.join(map(repr, unknown))}; it "
            f"takes {', '.join(map(repr, known))}.",
            invocation_id=invocation_id,
            unknown=unknown,
            declared=known,
        )
