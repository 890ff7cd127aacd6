"""Whether a commit makes sense by itself, before anything is asked of the store."""

from tenuto.errors import InvalidInput
from tenuto.ids import check_id
from tenuto.model.commit import Append, BeginRun, Commit, TakeRun
from tenuto.model.run import RunRef
from tenuto.model.session import LogEnd
from tenuto.store.rules.effects import check_effect_shape
from tenuto.store.rules.inputs import check_inputs
from tenuto.store.rules.limits import check_count, check_name, check_text, check_timeout, check_ttl
from tenuto.store.rules.next_run import check_next
from tenuto.store.rules.profile import PROFILE_COLUMNS
from tenuto.store.rules.usage import check_usage


def check_shape(commit: Commit) -> None:
    """Refuse a commit whose parts are out of range or do not go together."""
    check_name(commit.operation_id, "operation_id")
    if commit.heard is not None and check_name(commit.heard, "heard") == commit.operation_id:
        raise InvalidInput("A commit cannot have been heard of before it is made; `heard` names an earlier one.")
    check_count(commit.life, "life")
    for value, what in (
        (commit.generation, "generation"),
        (commit.expected_version, "expected_version"),
        (commit.expected_commit, "expected_commit"),
        (commit.steps, "steps"),
        (commit.checkpoint.step if commit.checkpoint else None, "checkpoint.step"),
    ):
        if value is not None:
            check_count(value, what)
    for name, write in commit.logs.items():
        check_name(name, "a log")
        base = write.base if isinstance(write, Append) else write.keep
        if base is not None:
            check_end(base, name)
        if name in commit.document:
            raise InvalidInput(f"{name!r} is given both as a log and as a document field.", field=name)
    for removed in commit.removed:
        check_name(removed, "a removed field")
    if commit.schema_version is not None:
        check_text(commit.schema_version, "schema_version")
    if commit.checkpoint:
        check_text(commit.checkpoint.schema_version, "checkpoint.schema_version")
    for wait in commit.open_waits:
        if wait.timeout is not None:
            check_timeout(wait.timeout)
    if commit.inputs or commit.consume or commit.rolls_back is not None:
        check_inputs(commit)
    if commit.effects:
        check_effect_shape(commit)
    if commit.usage:
        check_usage(commit.usage)
    for settled in commit.settle_waits:
        check_name(settled.wait_id, "wait_id")
    if commit.rearm:
        check_ttl(commit.rearm.ttl)
        check_name(commit.rearm.nonce, "nonce")
    if commit.run:
        _check_run(commit.run)
    if commit.next_run:
        _check_run(commit.next_run.begin)
        check_next(commit, commit.next_run)
    _check_combination(commit)


def _check_run(run: RunRef | BeginRun | TakeRun) -> None:
    check_name(run.run_id, "run_id")
    match run:
        case RunRef():
            check_count(run.attempt, "attempt")
        case TakeRun():
            check_count(run.attempt, "attempt")
            check_ttl(run.ttl)
        case BeginRun():
            check_ttl(run.ttl)
            check_id(run.invocation_id, "invocation_id")
            for text, what in ((run.origin_id, "origin_id"), (run.correlation_id, "correlation_id")):
                if text is not None:
                    check_name(text, what)
    if isinstance(run, RunRef):
        return
    if run.worker is not None:
        check_text(run.worker, "worker")
    if run.base_version is not None:
        check_count(run.base_version, "base_version")
    for ends in (run.ends or {}, run.base_ends or {}):
        for name, end in ends.items():
            check_end(end, name)


def check_end(end: LogEnd, name: str) -> None:
    """Refuse a point in a log whose numbers are out of range."""
    for part, what in zip(end, end._fields, strict=True):
        check_count(part, f"{name}.{what}")


def _check_combination(commit: Commit) -> None:
    if not commit.save:
        if commit.document or commit.removed or commit.schema_version is not None or commit.carries:
            raise InvalidInput("document, removed, schema_version and carries move the head: set save=True.")
        if commit.logs and commit.run is None:
            raise InvalidInput("Log writes belong to a head or to a run: set save=True or name the run.")
    run_parts = commit.end or commit.steps is not None or commit.open_waits or commit.sees_stop
    if commit.run is None and run_parts:
        raise InvalidInput("end, steps, open_waits and sees_stop belong to a run: name it.")
    if commit.run is None and any("/" in name for name in commit.logs):
        raise InvalidInput("A log with a slash in its name belongs to a run: name it.")
    if commit.rearm and (commit.generation is None or commit.expected_commit is None):
        raise InvalidInput("rearm needs the generation and commit number of the cached copy.")
    if commit.disarm and commit.generation is None:
        raise InvalidInput("disarm needs the lane's generation.")
    unknown = commit.profile.keys() - PROFILE_COLUMNS
    if unknown:
        raise InvalidInput(f"Unknown or fixed profile fields: {', '.join(sorted(map(str, unknown)))}.")
