"""Pauses of graphs that run without a runtime: answered by resuming the graph, where it is registered as a program."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from tenuto.codec import JSON
from tenuto.errors import AnswerInvalid, LateAnswer, ProgramNotRegistered, SuspensionRecordInvalid, TenutoError
from tenuto.model.wait import Wait, WaitKind, WaitStatus
from tenuto.runtime.program.program import Programs
from tenuto.runtime.session.definition import Definition
from tenuto.runtime.session.json_schema import Problem
from tenuto.runtime.session.outcome import Outcome
from tenuto.runtime.tree.answer_form import invalid
from tenuto.store.store import Store
from tenuto.writing.pause import pause_refused


@runtime_checkable
class PausedGraph(Protocol):
    """A program that can resume the pauses of its graph."""

    @property
    def graph_name(self) -> str:
        """The name of the graph."""
        ...

    def unfit(self, wait: Wait, answer: Mapping[str, JSON]) -> list[tuple[str, str]]:
        """Return the fields of an answer to a pause that the graph's state does not take, and why."""
        ...

    async def resume_pause(self, store: Store, wait: Wait, payload: dict[str, Any]) -> Outcome[Any]:
        """Resume what waits for this, and return the outcome; a refusal is the outcome's exception."""
        ...


class GraphPauses:
    """Resumes the pauses of graphs that are registered here."""

    def __init__(self, store: Store, programs: Programs) -> None:
        self._store = store
        self._programs = programs

    async def resume(self, wait: Wait, answer: JSON, *, here: bool) -> Outcome[Any] | None:
        """Resume a paused graph with its answer and return the outcome; None if another runner resumes it.

        What is refused before the graph continues raises, and the graph is still paused.
        """
        graph = self._registered(wait)
        if graph is None:
            raise pause_refused(wait, "is not registered here")
        if not here:
            raise pause_refused(wait, "no worker resumes it")
        outcome = await graph.resume_pause(self._store, wait, dict(answer))
        error = outcome.exception
        if isinstance(error, AnswerInvalid):
            raise AnswerInvalid(error.message, wait_id=wait.wait_id, problems=error.problems) from error
        now = await self._store.waits.get(wait.wait_id, tenant=wait.tenant)
        if isinstance(error, TenutoError) and now is not None and now.status is WaitStatus.EXPIRED:
            raise LateAnswer(error.message, wait_id=wait.wait_id, found=str(now.status)) from error
        if isinstance(error, TenutoError) and now is not None and now.status is not WaitStatus.ANSWERED:
            raise error
        return None if isinstance(error, SuspensionRecordInvalid) else outcome

    async def check(self, wait: Wait, answer: JSON) -> None:
        """Refuse an answer to a graph's turn that its state does not take, for reasons that no schema states.

        Where the graph is not registered, the run finds these.
        """
        if not _takes_fields(wait) or not isinstance(answer, Mapping):
            return
        head = await self._store.head(wait.key)
        definition = None if head is None else Definition.read(head.profile.definition)
        with suppress(ProgramNotRegistered):
            program = self._programs.of(definition)
            if isinstance(program, PausedGraph) and (found := program.unfit(wait, answer)):
                raise invalid(wait, [Problem(*each) for each in found])

    def _registered(self, wait: Wait) -> PausedGraph | None:
        found = (each for each in reversed(self._programs.by_name.values()) if isinstance(each, PausedGraph))
        return next((each for each in found if each.graph_name == wait.graph), None)


def _takes_fields(wait: Wait) -> bool:
    """Return whether a wait may belong to a graph that paused in a turn: it takes some of declared fields."""
    if wait.kind != WaitKind.SIGNAL or wait.graph is not None or not isinstance(wait.schema, Mapping):
        return False
    return "properties" in wait.schema and "required" not in wait.schema
