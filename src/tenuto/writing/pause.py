"""Which answers the pause of a graph accepts, and from whom."""

from collections.abc import Iterable, Mapping
from typing import Any

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


def refuse_unknown(given: Mapping[str, Any], declared: Iterable[str], run: Run, wait: Wait) -> None:
    """Refuse an answer with undeclared names: a misspelt name would be dropped, and the run would resume without it."""
    known = list(dict.fromkeys(declared))
    if unknown := [name for name in given if name not in known]:
        raise SuspensionResumePayloadInvalid(
            f"Invocation {run.invocation_id!r} does not accept {', '.join(map(repr, unknown))} and is still paused; "
            f"expected {', '.join(map(repr, known))}.",
            wait_id=wait.wait_id,
            problems=[{"path": f"answer.{name}", "problem": "nobody declared it"} for name in unknown],
            invocation_id=run.invocation_id,
            unknown=unknown,
            declared=known,
        )
