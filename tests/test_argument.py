"""Words of a closed set, as callers give them."""

from typing import Any

import pytest

from tenuto.argument import word_of
from tenuto.errors import InvalidInput
from tenuto.model.run import StopKind


@pytest.mark.parametrize("given", ["abort", StopKind.ABORT])
def test_a_word_is_known_as_text_and_as_itself(given: str) -> None:
    assert word_of(StopKind, given, "stop") is StopKind.ABORT


@pytest.mark.parametrize("given", ["ABORT", "", "pause", None, 3, ["abort"]])
def test_anything_else_is_refused_and_told_what_there_is(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"stop must be one of interrupt, abort, got"):
        word_of(StopKind, given, "stop")
