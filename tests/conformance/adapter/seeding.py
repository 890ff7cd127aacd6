"""Names in a checkpoint, and the progress of fan-outs that a fixture writes into one."""

from typing import Any

from tests.conformance.adapter.records import Record
from tests.conformance.adapter.vocabulary import FixtureProblem, known, listing, mapping

PROGRESS = "*"
INSTANCE = ("state", "result", "result_present", "result_is_error", "completed_inner_positions")
"""What is said of an instance. One that is not completed begins again, whatever had been done in it."""

Path = tuple[str, ...]


def name_of(path: Path, name: str) -> str:
    """Return the name under which a frame's field is kept."""
    return "/".join([*(step.replace("~", "~0").replace("/", "~1") for step in path), name]) if path else f"/{name}"


def unescaped(step: str) -> str:
    """Return a step of a path as it was."""
    return step.replace("~1", "/").replace("~0", "~")


def seeded_progress(spec: Any, record: Record) -> dict[str, list[Any]]:
    """Return the log of finished instances that a seeded progress stands for; one without any has no log."""
    found: dict[str, list[Any]] = {}
    for entry in listing(spec, "fan_out_progress"):
        keys = ("namespace", "fan_out_node_name", "instance_count", "enclosing_fan_out_lineage", "instances")
        given = known(entry, keys, "fan_out_progress")
        node = given["fan_out_node_name"]
        lineage = listing(given.get("enclosing_fan_out_lineage") or [], "enclosing_fan_out_lineage")
        outermost, at = _way((*given["namespace"], node), lineage)
        items = found.setdefault(name_of(outermost, PROGRESS), [])
        for index, each in enumerate(listing(given["instances"], "instances")):
            told = known(each, INSTANCE, "a seeded instance")
            if told["state"] != "completed":
                continue
            place = {"at": at} if at else {}
            left = _left(told, index, record.structure.collect_fields[node])
            items.append({"index": index, "of": given["instance_count"], **place, **left})
    found = {name: items for name, items in found.items() if items}
    if len(found) > 1:
        raise FixtureProblem("a checkpoint keeps the progress of one outermost fan-out at a time")
    return found


def _left(told: dict[str, Any], index: int, collect_field: str) -> dict[str, Any]:
    """Return what an instance that is done left: its result, or the record of its error."""
    if not told.get("result_is_error"):
        return {"result": {collect_field: told["result"]}}
    named = told.get("result") or {}
    record = {"fan_out_index": index, "category": "node_exception", "message": "", **mapping(named, "result")}
    return {"error": {key: str(value) for key, value in record.items()}}


def _way(path: Path, lineage: list[Any]) -> tuple[Path, list[Any]]:
    """Return the outermost fan-out's path, and the way from it down: per step the instance, the node, a first time."""
    indexes: dict[Path, int] = {}
    for entry in lineage:
        given = known(entry, ("namespace", "fan_out_node_name", "fan_out_index"), "enclosing_fan_out_lineage")
        indexes[(*given["namespace"], given["fan_out_node_name"])] = given["fan_out_index"]
    if any(path[: len(enclosing)] != enclosing or enclosing == path for enclosing in indexes):
        raise FixtureProblem(f"{path} does not run inside all of {sorted(indexes)}")
    outermost = min(indexes, key=len, default=path)
    at: list[Any] = []
    for depth in range(len(outermost), len(path)):
        at += [indexes.get(path[:depth]), path[depth], 0]
    return outermost, at
