"""Which answers the pause of a graph accepts, and from whom."""

from collections.abc import Iterable, Mapping
from typing import Any

from tenuto.errors import AnswerMismatch, SuspensionResumePayloadInvalid
from tenuto.model.run import Run
from tenuto.model.wait import Wait


def pause_refused(wait: Wait, why: str) -> AnswerMismatch:
    """Return the refusal of an answer to a pause that only the graph itself can resume."""
    resume = f"graph.resume({wait.wait_id!r}, {{...}})"
    return AnswerMismatch(
        f"Wait {wait.wait_id} is the pause of the graph {wait.graph!r}, which runs without a runtime, and {why}: "
        f"answer it with {resume}. Nothing was stored; the graph is still paused.",
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
