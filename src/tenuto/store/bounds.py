"""The store's own checks, for what is taken now and written by a later commit: it is refused where it is given."""

from tenuto.argument import check_flag, check_items, check_kind, check_map, refuse
from tenuto.store.rules.limits import (
    MAX_TEXT_BYTES,
    check_delay,
    check_moment,
    check_name,
    check_text,
    check_timeout,
    check_word,
)

__all__ = [
    "MAX_TEXT_BYTES",
    "check_delay",
    "check_flag",
    "check_items",
    "check_kind",
    "check_map",
    "check_moment",
    "check_name",
    "check_text",
    "check_timeout",
    "check_word",
    "refuse",
]
