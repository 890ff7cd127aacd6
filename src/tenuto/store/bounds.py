"""What those who write later need of the rules now: its checks, so that a value is refused where it is given."""

from tenuto.argument import check_flag, check_items, check_map, refuse
from tenuto.codec import JSON, dumps
from tenuto.model.effect import EffectKind
from tenuto.model.schedule import NewSchedule
from tenuto.model.token_usage import NewUsage
from tenuto.store.rules.commit.pack import handle_of
from tenuto.store.rules.encoding import digest_of
from tenuto.store.rules.fields import USAGE
from tenuto.store.rules.limits import (
    check_delay,
    check_label,
    check_limit,
    check_moment,
    check_name,
    check_text,
    check_timeout,
    check_word,
)
from tenuto.store.rules.verbs.schedule_rules import pack_schedule

__all__ = [
    "check_delay",
    "check_effect",
    "check_flag",
    "check_items",
    "check_key",
    "check_limit",
    "check_map",
    "check_moment",
    "check_name",
    "check_new_usage",
    "check_schedule",
    "check_text",
    "check_timeout",
    "check_word",
    "handle_of",
    "refuse",
    "request_digest",
]


def check_effect(key: str, namespace: str, call_id: str | None) -> None:
    """Refuse names of an effect that no commit would take."""
    check_name(key, "the effect's key")
    check_label(namespace, "the effect's namespace")
    if call_id is not None:
        check_name(call_id, "the effect's call_id")


def request_digest(kind: EffectKind, request: JSON) -> str:
    """Return what is kept of a request when its body is dropped."""
    return digest_of(check_word(kind, EffectKind, "kind"), dumps(request, "request"))


def check_new_usage(usage: NewUsage) -> None:
    """Refuse what no commit would take."""
    USAGE(usage, "usage")


def check_schedule(new: NewSchedule) -> None:
    """Refuse a schedule that no store would declare."""
    pack_schedule(new)


def check_key(key: str) -> str:
    """Return a sender's key, or refuse one that no input would take."""
    return check_name(key, "key")
