"""Comparing what was expected with what was recorded."""

from typing import Any

from tenuto.graph import SignalDescriptor
from tenuto.graph.engine.cause import category_of
from tenuto.graph.events.node_event import FailureIsolatedEvent, NodeEvent
from tests.conformance.adapter.decisions import Decision
from tests.conformance.adapter.records import RECORDER, Record, Run, plain
from tests.conformance.adapter.vocabulary import known, mapping


class Check:
    """The expectations of one case: every difference is noted, none stops the others.

    They are about `run`; with `whole`, those that count something are about all runs.
    """

    def __init__(self, spec: dict[str, Any], record: Record) -> None:
        self.spec = spec
        self.record = record
        self.main = RECORDER
        self.run = Run(number=-1, initial={})
        self.whole = False
        self.problems: list[str] = []
        self.deviations: list[tuple[str, Decision]] = []
        self._passed: set[tuple[int, str]] = set()

    def deviates(self, place: str, decision: Decision) -> bool:
        """Tell whether the fixture is one that deviates like this; if so, note that it does here."""
        if decision not in self.record.decisions:
            return False
        self.deviations.append((place, decision))
        return True

    def note(self, name: str, problems: int) -> None:
        """Note that an expectation was checked for the run; it passed if there were as many problems before it."""
        if len(self.problems) == problems:
            self._passed.add((self.run.number, name))

    def passed(self, *names: str) -> bool:
        """Tell whether one of these expectations was checked for the run, and passed."""
        return any(name in names and self.is_about(run) for run, name in self._passed)

    def equal(self, what: str, expected: Any, found: Any) -> None:
        """Note a difference."""
        if expected != found or (isinstance(expected, bool) != isinstance(found, bool)):
            self.problems.append(f"{what}: expected {expected!r}, found {found!r}")

    def holds(self, what: str, true: bool, found: Any = None) -> None:
        """Note that something does not hold."""
        if not true:
            self.problems.append(what if found is None else f"{what}: found {found!r}")

    def subset(self, what: str, expected: dict[str, Any], found: dict[str, Any]) -> None:
        """Compare only the keys that are named; null also stands for a field that is not there."""
        for key, value in expected.items():
            if key not in found and value is not None:
                self.problems.append(f"{what}.{key}: expected {value!r}, but it is not there")
            else:
                self.equal(f"{what}.{key}", value, found.get(key))

    def same_runs(self) -> None:
        """Compare all runs of a case with the first."""
        first, *others = self.record.runs
        for run in others:
            self.equal(f"final state of run {run.number}", first.state, run.state)
            orders = self.record.execution_order(first), self.record.execution_order(run)
            self.equal(f"execution order of run {run.number}", *orders)

    def is_about(self, run: int) -> bool:
        """Tell whether what happened in a run counts."""
        return self.whole or run == self.run.number

    def events(self) -> list[NodeEvent]:
        """Return the node events of the run, as its recording observer saw them."""
        return self.record.events(self.main, self.run)

    def isolated(self) -> list[FailureIsolatedEvent]:
        """Return the failure-isolation events of the run."""
        seen = self.record.isolated[self.main]
        return [event for event in seen if event.scope.invocation_id == self.run.invocation_id]

    def event(self, what: str, expected: dict[str, Any], found: NodeEvent) -> None:
        """Compare an event by the keys that are named."""
        told = {
            "step": found.step,
            "phase": str(found.phase),
            "node_name": found.node_name,
            "namespace": list(found.namespace),
            "attempt_index": found.attempt_index,
            "fan_out_index": found.fan_out_index,
            "branch_name": found.branch_name,
            "pre_state": plain(found.pre_state),
            "post_state": plain(found.post_state),
            "parent_states": plain(found.parent_states),
        }
        rest = dict(known(expected, (*told, "error", "descriptor"), what))
        if "descriptor" in rest:
            self.descriptor(f"{what}.descriptor", rest.pop("descriptor"), found.descriptor)
        if "error" in rest:
            wanted = rest.pop("error")
            category = known(wanted, ("category",), f"{what}.error")["category"] if isinstance(wanted, dict) else wanted
            self.equal(f"{what}.error", category, category_of(found.error))
            if category is not None:
                self.equal(f"{what}.post_state beside an error", None, told["post_state"])
        self.subset(what, rest, told)

    def descriptor(self, what: str, expected: Any, found: SignalDescriptor | None) -> None:
        """Compare a descriptor: its metadata as a whole, or as far as it is listed."""
        if expected is None:
            self.equal(what, None, found)
            return
        given = known(expected, ("signal_id", "metadata", "metadata_includes"), what)
        if found is None:
            self.problems.append(f"{what}: there is none")
            return
        if "signal_id" in given:
            self.equal(f"{what}.signal_id", given["signal_id"], found.signal_id)
        if "metadata" in given:
            self.equal(f"{what}.metadata", given["metadata"] or {}, dict(found.metadata))
        wanted = mapping(given.get("metadata_includes") or {}, f"{what}.metadata_includes")
        self.subset(f"{what}.metadata", wanted, dict(found.metadata))
