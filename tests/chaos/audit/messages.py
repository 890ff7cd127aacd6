"""Messages: each that was accepted stands once in its log, in the order of arrival, and has one outcome."""

from collections.abc import Iterator

from tests.chaos.audit.evidence import ROLLED_BACK, Evidence, Story, seconds, twice
from tests.chaos.audit.violation import Violation
from tests.chaos.programs import marker_of
from tests.chaos.tables import Row

_TAKES_BACK = ("RewindSession", "ClearSession", "GoBack")


def judge_messages(evidence: Evidence) -> Iterator[Violation]:
    """Judge every message that was sent."""
    said = evidence.said
    for sid, markers in said.items():
        for marker in twice(markers):
            yield Violation("once", evidence.name(sid), f"{marker} stands {markers.count(marker)} times in the log")
    for story in evidence.stories.values():
        row = evidence.alive.get(story.session)
        there = row is not None and story.key in said[row["sid"]]
        if there and all(each.refused for each in story.tries):
            told = [each.told for each in story.tries]
            yield Violation("refused", story.session, f"{story.key} was refused and is in the log", f"{told}")
        if story.acks:
            if not there and (why := _lost(evidence, story, row)) is not None:
                yield Violation("lost", story.session, f"{story.key} was accepted and is not in the log: {why}")
            yield from _outcomes(evidence, story)
    for sid in said:
        yield from _order(evidence, sid)
        yield from _turns(evidence, sid)


def _lost(evidence: Evidence, story: Story, row: Row | None) -> str | None:
    """Return why the absence of an accepted message is a loss; None means that somebody took it back."""
    begun = min(float(each.intent["at"]) for each in story.acks)
    if row is None or begun < seconds(row["created_at"]):
        return None if _was_deleted(evidence, story) else "its session is gone, and nobody deleted it"
    inputs = [each for each in evidence.rows("input", row["sid"]) if each["key"] == story.key]
    if not inputs:
        return None if _taken_back(evidence, row["sid"], 0) else "its input is gone"
    (given,) = inputs
    if given["status"] == "cancelled":
        asked = any(each.intent["input"] == given["input_id"] for each in evidence.done("cancel"))
        # One that is not to wait is taken back when its session is closed to it before its turn.
        impatient = any(each.intent.get("when_busy") == "reject" for each in story.tries)
        return None if asked or impatient else "it was cancelled, and nobody asked for it"
    if given["status"] == "open":
        return "it is still queued"
    runs = {run["run_id"]: run for run in evidence.rows("run", row["sid"])}
    run = runs.get(given["run_id"] or "")
    if given["rolled_back"] or (run is not None and run["holds"] & ROLLED_BACK):
        return None
    return None if _taken_back(evidence, row["sid"], given["seq"]) else f"nothing took it back: {given}"


def _was_deleted(evidence: Evidence, story: Story) -> bool:
    if story.session.startswith("brief."):
        return True
    return any(
        each.intent["session"] == story.session and (each.told is None or each.told["at"] >= story.begun_at)
        for each in evidence.done("delete")
    )


def _taken_back(evidence: Evidence, sid: int, since: int) -> bool:
    return any(
        event.name == "session_action_executed" and event.data["action"] in _TAKES_BACK and event.seq > since
        for event in evidence.streams.get(sid, ())
    )


def _outcomes(evidence: Evidence, story: Story) -> Iterator[Violation]:
    """A repeat under a key is the same message, with the same outcome, as long as its session lives."""
    row = evidence.alive.get(story.session)
    born = seconds(row["created_at"]) if row else float("inf")
    acks = [each.told for each in story.acks if each.told is not None and float(each.intent["at"]) >= born]
    inputs = {told["input"] for told in acks if told.get("input")}
    if len(inputs) > 1:
        yield Violation("keys", story.session, f"{story.key} is known as {len(inputs)} inputs", f"{acks}")
    said = {str(told["said"]) for told in acks if told.get("status") == "completed"}
    if len(said) > 1:
        yield Violation("keys", story.session, f"{story.key} has {len(said)} outcomes", f"{acks}")


def _order(evidence: Evidence, sid: int) -> Iterator[Violation]:
    """What arrived first is first; what was meant for later, or for the turn under way, has an order of its own."""
    inputs = {row["key"]: row for row in evidence.rows("input", sid) if row["key"]}
    last: Row | None = None
    steered: dict[tuple[str, str], Row] = {}
    for entry in evidence.heads[sid]:
        row = inputs.get(marker_of(entry.body.get("content"))) if entry.body["role"] == "user" else None
        if row is None or entry.session != sid or row["due_at"] is not None:
            continue
        if row["boundary"] is None:
            if last is not None and row["seq"] < last["seq"]:
                what = f"{row['key']} (event {row['seq']}) stands after {last['key']} (event {last['seq']})"
                yield Violation("order", evidence.name(sid), what)
            last = row
        else:
            place = (row["run_id"], row["boundary"])
            before = steered.get(place)
            if before is not None and row["seq"] < before["seq"]:
                yield Violation("order", evidence.name(sid), f"{row['key']} was steered in after {before['key']}")
            steered[place] = row


def _turns(evidence: Evidence, sid: int) -> Iterator[Violation]:
    """A message begins one turn, or is taken in by one."""
    begun = [
        event.data["input_id"]
        for event in evidence.streams.get(sid, ())
        if event.name == "run_started" and event.data.get("input_id") and event.data.get("attempt", 1) == 1
    ]
    for input_id in twice(begun):
        yield Violation("once", evidence.name(sid), f"the input {input_id} began {begun.count(input_id)} turns")
    for row in evidence.rows("input", sid):
        if row["kind"] == "message" and row["status"] == "consumed" and row["run_id"] is None:
            yield Violation("lost", evidence.name(sid), f"the message {row['key']} was consumed by no turn", f"{row}")
