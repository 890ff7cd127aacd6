"""Which part of a crash matrix a run takes: every eighth moment, from a start that changes with the commit."""

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

T = TypeVar("T")

EIGHTH, ALL = 8, 1

MATRIX = pytest.mark.long("each moment of a matrix is a process of its own that is killed")


@cache
def seed() -> str:
    """Return what decides about the samples: `TENUTO_SEED`, or the hash of the commit."""
    if given := os.environ.get("TENUTO_SEED"):
        return given
    asked = ["git", "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def sample(moments: Sequence[T], every: int, matrix: str) -> Sequence[T]:
    """Return every so-manieth moment of a matrix; eight commits in a row are likely to take most of it."""
    return moments[Random(f"{seed()} {matrix}").randrange(every) :: every]
