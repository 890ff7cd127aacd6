"""Whether a commit makes sense by itself, before anything is asked of the store."""

from tenuto.errors import InvalidInput
from tenuto.model.commit import Commit
from tenuto.quote import quote
from tenuto.store.rules.commit.next_run import check_next
from tenuto.store.rules.fields import COMMIT
from tenuto.store.rules.parts.effect_rules import check_effect_shape
from tenuto.store.rules.parts.input_rules import check_inputs
from tenuto.store.rules.parts.profile_rules import PROFILE_COLUMNS


def check_shape(commit: Commit) -> None:
    """Refuse a commit whose parts are out of range or do not go together."""
    COMMIT(commit)
    if commit.heard is not None and commit.heard == commit.operation_id:
        raise InvalidInput("A commit cannot have been heard of before it is made; `heard` names an earlier one.")
    for name in commit.logs:
        if name in commit.document:
            raise InvalidInput(f"{name!r} is given both as a log and as a document field.", field=name)
    if commit.inputs or commit.consume:
        check_inputs(commit)
    if commit.effects:
        check_effect_shape(commit)
    if commit.next_run:
        check_next(commit, commit.next_run)
    _check_combination(commit)


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
        raise InvalidInput(f"Unknown or fixed profile fields: {', '.join(sorted(map(quote, unknown)))}.")
