"""What a completion shows of the classes people hold: pinned, so that a name is added on purpose."""

import tenuto
from tenuto import Outcome, RunHandle, Session, SessionRuntime, Sessions, SessionView, Turn

SESSIONS = "answer create execute get list outcome schedules send session tenant waits"
NAMES: dict[type, str] = {
    Sessions: SESSIONS,
    SessionRuntime: (
        f"{SESSIONS} aclose across_tenants blocking declared_store drain for_tenant is_open programs store using work "
        "worker"
    ),
    Session: (
        "abandon_waits answer cancel delete effects_in_doubt enqueue events execute fork get info messages "
        "pause_schedule regenerate resume resume_schedule rewind runs schedule schedules send session_id settle_effect "
        "start stop tenant unschedule usage waits withdraw_stop"
    ),
    RunHandle: "events input_id result run_id session_id stop text wait",
    Outcome: (
        "can_resume completed error exception input_id output regenerated replayed reply result "
        "resume_refused retryable run_id session_id status suspended text version waits"
    ),
    Turn: (
        "add append attempt child context definition effect emit enqueue frame hand_off input log messages "
        "model open_calls origin_id record_usage resumed run_id save schedule session_id sleep state step "
        "steps tenant text trace_id unschedule update user_id wait wait_all"
    ),
    SessionView: (
        "appended cleared commit_number created_at definition document draft event_seq is_draft key logs messages "
        "metadata profile replaced resume_count schema_version session_id state status tenant updated_at version "
        "with_definition with_fields with_metadata with_profile with_status without_fields"
    ),
}


def public(value: object) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


def test_a_completion_shows_what_people_use_and_nothing_else() -> None:
    for kind, names in NAMES.items():
        assert public(kind) == sorted(names.split()), kind.__name__


def test_an_object_shows_no_more_than_its_class() -> None:
    runtime = SessionRuntime("memory://")
    assert public(runtime) == public(SessionRuntime)
    assert public(runtime.session("s")) == public(Session)
    assert public(runtime.for_tenant("t")) == public(Sessions)
    assert public(Outcome(session_id="s", status="queued")) == public(Outcome)


def test_the_package_is_small_and_knows_its_version() -> None:
    assert len(tenuto.__all__) <= 28
    assert tenuto.__version__.count(".") == 2
