"""Whose a stored session or run is: the graph or program of the code at hand that reads it."""

from collections.abc import Mapping
from typing import Any, Protocol

from tenuto.errors import ProgramNotRegistered
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.runtime.graph_program import GraphProgram
from tenuto.model.session import SessionKey, SessionSummary
from tenuto.runtime.program.program import Program, Programs, traits_of
from tenuto.runtime.session.definition import Definition
from tenuto.states.graph_reader import GraphReader, check_declared
from tenuto.states.program_reader import ProgramReader
from tenuto.states.state_reader import StateReader
from tenuto.store.store import Store


class Finder(Protocol):
    """Finds the reader of what is stored."""

    async def of_session(self, found: SessionSummary) -> StateReader | None:
        """Return the reader of a session; None if it is another's.

        Raise `ProgramNotRegistered` for a session of a program at hand that none of its versions accepts.
        """
        ...

    async def of_run(self, key: SessionKey, marks: Mapping[str, Any]) -> StateReader | None:
        """Return the reader of a run, by what its checkpoint says of its program, or else by its session."""
        ...


class OneGraph:
    """A single graph: what it created, perhaps under another name as `owner`, and, with `unowned`, what has none."""

    def __init__(self, graph: GraphPlan[Any], store: Store, *, owner: str | None = None, unowned: bool = False) -> None:
        check_declared(graph)
        self._owner = graph.name if owner is None else owner
        self._unowned = unowned
        self._store = store
        self.reader = GraphReader(graph, store, owner=self._owner)

    async def of_session(self, found: SessionSummary) -> StateReader | None:
        """See `Finder.of_session`."""
        return self._reader_of(found.agent)

    async def of_run(self, key: SessionKey, marks: Mapping[str, Any]) -> StateReader | None:
        """See `Finder.of_run`."""
        if "program" in marks or "graph" in marks:
            ours = self._owner in (str(marks.get("program", "")).rpartition("@")[0], marks.get("graph"))
            return self.reader if ours else None
        if marks and "frames" not in marks:
            return None
        head = await self._store.head(key)
        return self._reader_of(head.profile.agent if head else None)

    def _reader_of(self, owner: str | None) -> StateReader | None:
        return self.reader if (self._unowned if owner is None else owner == self._owner) else None


class AllPrograms:
    """Every program of a runtime: each session is checked with the version that would run it."""

    def __init__(self, programs: Programs, store: Store) -> None:
        self._programs = programs
        self._store = store
        self._readers = {each: _reader_of(each, store) for each in programs.by_name.values()}
        self._names = {each.name for each in self._readers}

    async def of_session(self, found: SessionSummary) -> StateReader | None:
        """See `Finder.of_session`."""
        return await self._of(found.key) if found.agent in self._names else None

    async def of_run(self, key: SessionKey, marks: Mapping[str, Any]) -> StateReader | None:
        """See `Finder.of_run`."""
        if "program" not in marks and "graph" in marks:
            graphs = (each for each in self._readers.values() if isinstance(each, GraphReader))
            return next((each for each in graphs if each.graph.name == marks["graph"]), None)
        try:
            return await self._of(key)
        except ProgramNotRegistered:
            return None  # counted with its session

    async def _of(self, key: SessionKey) -> StateReader | None:
        head = await self._store.head(key)
        if head is None or head.profile.agent not in self._names:
            return None
        definition = Definition.read(head.profile.definition)
        if definition is None:  # made by the graph itself, under the same name
            return self._readers[self._programs.latest(head.profile.agent)]
        return self._readers[self._programs.of(definition)]


def _reader_of(program: Program[Any], store: Store) -> StateReader:
    name = f"{program.name}@{program.version}"
    if isinstance(program, GraphProgram):
        return GraphReader(program.graph, store, owner=program.name, name=name)
    return ProgramReader(name, traits_of(program).state, store)
