"""The shape of a declared state, and what cannot be one."""

from typing import Any

import pytest
from pydantic import BaseModel, Field, RootModel

from tenuto import program
from tenuto.errors import InvalidInput


class Named(BaseModel):
    messages: list[str] = []


class Versioned(BaseModel):
    schema_version: str = "1"


class Hidden(BaseModel):
    secret: str = Field("", exclude=True)


@pytest.mark.parametrize("model", [Named, Versioned, Hidden, RootModel[int], dict, "Cart"])
def test_a_model_that_cannot_be_a_state_is_refused(model: Any) -> None:
    with pytest.raises(InvalidInput):
        program(state=model)


def test_migrations_need_a_state_and_pairs_of_versions() -> None:
    with pytest.raises(InvalidInput, match="declare one"):
        program(migrations={("", "1"): dict})  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="pairs of versions"):
        program(state=BaseModel, migrations={"1": dict})  # type: ignore[dict-item]
