"""The world outside the graphs: files that remember how often something was done to them."""

import os
from pathlib import Path


def do(folder: str, what: str) -> None:
    """Append a line to the file of this deed and have it on the disk before returning, as a payment is at the bank."""
    with (Path(folder) / f"{what}.txt").open("a") as file:
        file.write(f"{what}\n")
        file.flush()
        os.fsync(file.fileno())


def times(folder: str, what: str) -> int:
    """Return how often it was done."""
    path = Path(folder) / f"{what}.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0
