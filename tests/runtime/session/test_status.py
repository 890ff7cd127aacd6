"""The one table of session statuses."""

from itertools import product

import pytest

from tenuto.errors import StatusRefused
from tenuto.model.session import SessionKey, SessionStatus
from tenuto.runtime.session.status import TRANSITIONS, check_transition

KEY = SessionKey("s")
ALLOWED = {
    ("active", "active"),
    ("active", "suspended"),
    ("active", "completed"),
    ("active", "failed"),
    ("suspended", "active"),
    ("completed", "active"),
    ("failed", "active"),
    ("suspended", "suspended"),
    ("completed", "completed"),
    ("failed", "failed"),
}


def test_the_table_has_a_row_for_every_status() -> None:
    assert set(TRANSITIONS) == set(SessionStatus)


@pytest.mark.parametrize(("found", "wanted"), list(product(SessionStatus, SessionStatus)))
def test_each_pair_of_statuses_is_allowed_or_refused_with_what_was_found(
    found: SessionStatus, wanted: SessionStatus
) -> None:
    if (str(found), str(wanted)) in ALLOWED:
        check_transition(KEY, found, wanted, 7)
        return
    with pytest.raises(StatusRefused) as refused:
        check_transition(KEY, found, wanted, 7)
    error = refused.value
    assert error.details() == {"key": KEY, "found": found, "wanted": wanted, "version": 7}
    assert (error.category, error.bucket) == ("session_status_invalid", "user_correctable")
