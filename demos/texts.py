"""The words of a long conversation."""

import random
import string
from collections.abc import Iterator

_LETTERS = string.ascii_letters + string.digits + "    "
SIZE = 480


def texts() -> Iterator[str]:
    """Return random texts without end, the same in every run; random, so that no storage can compress them."""
    chance = random.Random(20_251)
    while True:
        yield "".join(chance.choices(_LETTERS, k=SIZE))
