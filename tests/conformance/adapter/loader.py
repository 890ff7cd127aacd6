"""Reading fixtures: documents in order, each with its cases."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.adapter.vocabulary import FixtureProblem, VersionUnsupported, listing, mapping

PROJECT = Path(__file__).parents[3]
NOWHERE = "No fixture was run: there are none in $TENUTO_CONFORMANCE or in ../shared/conformance."
DEFINITIONS = ("subgraph", "subgraphs", "inner_subgraphs", "subgraph_with_idx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One independent scenario, with what its file defines for all of them."""

    name: str
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """One file."""

    path: Path

    @property
    def name(self) -> str:
        """The folder and the file, as fixtures are spoken of."""
        return f"{self.path.parent.name}/{self.path.stem}"

    def cases(self) -> list[Case]:
        """Return the cases; a document without `cases` is itself the one."""
        try:
            document = yaml.safe_load(self.path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            raise FixtureProblem(f"{self.path} is not YAML: {error}") from error
        document = mapping(document, "the document")
        if "conformance_version" in document:
            raise VersionUnsupported(f"conformance_version {document['conformance_version']}")
        if "cases" not in document:
            return [Case(name=str(document.get("name", "case")), spec=document)]
        shared = {key: value for key, value in document.items() if key not in ("cases", "name", "description")}
        return [_case(shared, mapping(spec, "a case")) for spec in listing(document["cases"], "cases")]


def _case(shared: dict[str, Any], spec: dict[str, Any]) -> Case:
    merged = shared | spec
    for key in ("invariants", "subgraphs"):
        if key in shared and key in spec:
            merged[key] = shared[key] | spec[key]
    own = shared.get("subgraph")
    if "subgraph" in spec and isinstance(own, dict):
        # The file's own subgraph stays, beside that of the case.
        merged["subgraphs"] = {own.get("name"): own} | (merged.get("subgraphs") or {})
    return Case(name=str(spec.get("name", "case")), spec=merged)


def fixtures_in(places: Iterable[Path]) -> Iterator[Fixture]:
    """Yield the fixtures of files and folders, in order of their names."""
    for place in places:
        if place.is_dir():
            yield from (Fixture(path=path) for path in sorted(place.rglob("*.yaml")))
        elif place.is_file():
            yield Fixture(path=place)
        else:
            raise FileNotFoundError(f"There is no fixture at {place}.")


def conformance_root() -> Path | None:
    """Return where the specification's fixtures are.

    $TENUTO_CONFORMANCE, or beside the project; None if they are not there.
    """
    named = os.environ.get("TENUTO_CONFORMANCE")
    root = Path(named) if named else PROJECT.parent / "shared" / "conformance"
    return root if root.is_dir() else None
