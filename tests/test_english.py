"""Sentences and file names are plain English.

Every docstring, comment, error, log line and help text of `src`, `bench`, `demos` and `examples`, and every document,
is searched for turns of phrase that a native engineer would not write. `python -m tests.test_english` lists what is
found, rooms of `NOT_YET` included; `python -m tests.test_english runtime docs` lists only those rooms.
"""

import ast
import io
import re
import sys
import tokenize
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "tenuto"
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]

NOT_YET: set[str] = set()
"""Rooms and documents that the tests skip until their wording is done."""

PATTERNS = {
    r"(?<!there )\b(is|are|was|were|be) no (?!longer|more|less|fewer|later|earlier|different|doubt|need|one|good)\w+": (
        'write "is not a ..."'
    ),
    r"\b(has|have|had) not(?=[.,;:)]|$)": 'write "does not have", "does not declare"',
    r"\b(go|goes|gone|went) on\b|(?<!is )\bgoing on\b": 'write "continue" or "resume"',
    r"\btold\b": 'write "reported", "passed", "informed"',
    r"\btells?\b": 'write "return", "report", "say"',
    r"\bhears?\b|\bheard of\b": 'write "receives", "learns"',
    r"\bletting go\b|\blets? go\b": 'write "release"',
    r"\b(took|takes?|taken) in hand\b": 'write "start"',
    r"\bthis very\b": 'name the race: "raced with ...: retry"',
    r"\bof (its|their|your|our|my) own(?! (branch|class|function|message|name|state|tables)\b)\b": (
        'write "its own ...", "separate", "dedicated"'
    ),
    r"\b(put|puts|putting) (up|over|past)\b": 'write "build", "create", "apply"',
    r"\b(given|gave|give|gives|giving) up\b(?! after| to\b)": 'write "abandon"',
    r"[;,:] (known|registered|allowed|possible) are\b": 'write "expected one of"',
    r"\b(is|are) the (most|least)(?=[.,;:)]|$)": 'write "the limit is"',
    r"\b(as|what) (it|they) (is|are|was|were|stands?|stood)(?=[.,;:)]| (now|then|there)\b|$)": (
        'write "unchanged", "the current ..."'
    ),
    r"\bstand(s|ing)? (in (the|a|its|line|rows)|on (the|a|its|that|those)|there|already)\b": (
        'write "is stored", "is", "applies"'
    ),
    r"\b(brings?|brought|comes?|came|takes?|taken|took|rides?) along\b": 'write "with", "includes"',
    r"\bno more (is|are)\b": 'write "nothing else is"',
    r"\bnobody (here )?(knows|can know|knew)\b": 'write "it is unknown"',
    r"\b(became|becomes?|becoming) of\b": 'write "what happened to"',
    r"\b(came|comes?) of (it|them|that|this|each)\b": 'write "the result"',
    r"\b(only|at most|for|than|up to|of|suffice for) so (many|much|long)\b": "name the number",
    r"\b(a|another|one|the|cheap|first|each) looks?\b(?! like| up)": 'write "read", "check", "query"',
    r"\bfor ever\b": 'write "forever", "without end"',
    r"\bbut for\b": 'write "except"',
    r"\b(is|are|was|were) of (a|an|the|another|this|that|no|one)\b": 'write "belongs to"',
    r"\banew\b": 'write "again", "from the start"',
    r"\b(thereof|therein|thereby|hereby|whereby|whence|hitherto)\b": "write it in modern English",
    r"\bgoes without saying\b": "say what is left out",
    r"\bdoubled\b": 'write "duplicated"',
    r"\bno way leads\b": 'write "there is no path"',
    r"\bjudg(e|es|ed|ing)\b": 'write "validate", "check"',
    r"\bknow(s|n)? (no|nothing of|of no)\b": 'write "does not know"',
    r"\b(take|takes|took|taken|taking) (stock|notice) of\b": 'write "note", "recompute"',
    r"\b(at|in) one look\b|\blook again\b": 'write "in one read", "retry"',
    r"\bwhat (stands|is there|came in|comes in)\b": 'write "what is stored", "what arrived"',
    r"\b(the one|those|one) who (asked|asks|waits?|comes?|came|has|have)\b": 'name the role: "the caller"',
    r"\bwho(ever)? (has it|comes|came|is there|was there)\b": 'name the role: "the holder", "the caller"',
}
"""What to look for in a sentence, and what to write instead."""

ALLOWED: dict[str, set[str]] = {}
"""Patterns, and the files in which what they find is right."""

NOUNS_IN_ING = {"encoding", "timing", "listing"}
"""File names that end in -ing and are nouns: an encoding, the timing, a listing."""

NOT_NOUNS = {"ahead", "former", "found", "given", "held", "kept", "live", "lost", "made", "own", "recent", "warm"}
"""File names that say nothing about what is inside; so are those that end in -ing or -ed."""

PUBLIC_ADJECTIVES = {"blocking.py"}
"""Files whose names users import, and that are not nouns."""

PARALLEL = ("store/backends/sqlite", "store/backends/postgres", "store/backends/memory", "testing/contract")
"""Folders whose files have the names of files elsewhere because they are about the same thing."""


class Sentence(NamedTuple):
    """Text of one docstring, string, comment or document, as its words with their lines."""

    words: list[str]
    lines: list[int]


class Hit(NamedTuple):
    """A turn of phrase that was found."""

    room: str
    place: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text!r}: {self.advice}"


def sentence(text: str, line: int) -> Sentence:
    words, lines = [], []
    for number, part in enumerate(text.splitlines(), line):
        for word in part.split():
            words.append(word)
            lines.append(number)
    return Sentence(words, lines)


def strings_of(tree: ast.AST) -> Iterator[Sentence]:
    """Yield docstrings and every other string that has several words."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            text = "".join(part for part in parts if isinstance(part, str))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        if " " in text.strip():
            yield sentence(text, node.lineno)


def comments_of(source: str) -> Iterator[Sentence]:
    """Yield comments; those on lines that follow each other are one."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != block[-1][0] + 1:
            yield sentence("\n".join(text for _, text in block), block[0][0])
            block = []
        block.append((token.start[0], token.string.lstrip("# ")))
    if block:
        yield sentence("\n".join(text for _, text in block), block[0][0])


def sentences_of(path: Path) -> Iterator[Sentence]:
    text = path.read_text()
    if path.suffix == ".py":
        yield from strings_of(ast.parse(text))
        yield from comments_of(text)
    elif path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("--"):
                yield sentence(line.strip("- "), number)
    else:
        yield sentence(text, 1)


def room_of(path: Path) -> str:
    """Return the room of a file: its folder below `src/tenuto`, its name there, or its folder or name at the root."""
    inside = path.relative_to(SOURCE if path.is_relative_to(SOURCE) else ROOT)
    if inside.as_posix() in NOT_YET:
        return inside.as_posix()
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def look(text: Sentence) -> Iterator[tuple[str, int, str]]:
    """Yield the pattern, the line and the words of what is found in a text."""
    starts, at = [], 0
    for word in text.words:
        starts.append(at)
        at += len(word) + 1
    flat = " ".join(text.words)
    for pattern in PATTERNS:
        for match in re.finditer(pattern, flat, re.IGNORECASE):
            first = bisect_right(starts, match.start()) - 1
            around = " ".join(text.words[max(0, first - 3) : first + len(match[0].split()) + 3])
            yield pattern, text.lines[first], around


def hits_of(paths: Iterable[Path]) -> Iterator[Hit]:
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        for text in sentences_of(path):
            for pattern, line, around in look(text):
                if name not in ALLOWED.get(pattern, ()):
                    yield Hit(room_of(path), f"{name}:{line}", around, PATTERNS[pattern])


def sources() -> list[Path]:
    """Return the files that have sentences; a migration that was applied somewhere is not edited."""
    found = [path for room in (SOURCE, *map(ROOT.joinpath, ("bench", "demos", "examples"))) for path in room.rglob("*")]
    found = [path for path in found if path.suffix in {".py", ".sql"}]
    return sorted(path for path in found if path.parent.name != "migrations")


def wrong_names(paths: Iterable[Path]) -> list[str]:
    """Return the files whose names are not nouns."""
    return [
        path.relative_to(SOURCE).as_posix()
        for path in paths
        if path.stem in NOT_NOUNS or (path.stem.endswith(("ing", "ed")) and path.stem not in NOUNS_IN_ING)
    ]


def repeated_names(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return the names that several files have, but for those of parallel folders."""
    found = defaultdict(list)
    for path in paths:
        inside = path.relative_to(SOURCE).as_posix()
        if not inside.startswith(PARALLEL) and not path.stem.startswith("__"):
            found[path.stem].append(inside)
    return {name: files for name, files in found.items() if len(files) > 1}


def modules(*, all_rooms: bool = False) -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if all_rooms or room_of(path) not in NOT_YET]


@pytest.mark.long("it reads every sentence of the sources and the documents")
def test_every_sentence_is_plain_english() -> None:
    hits = [str(hit) for hit in hits_of([*sources(), *DOCUMENTS]) if hit.room not in NOT_YET]
    assert not hits, "\n".join(hits)


def test_files_are_named_by_nouns() -> None:
    assert set(wrong_names(modules())) == PUBLIC_ADJECTIVES


def test_no_file_name_occurs_twice() -> None:
    assert not repeated_names(modules())


def test_what_is_allowed_is_there() -> None:
    wrong = []
    for pattern, names in ALLOWED.items():
        for name in names:
            found = any(each == pattern for text in sentences_of(ROOT / name) for each, _, _ in look(text))
            wrong += [] if found else [f"{name}: {pattern}"]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "quaint",
    [
        "'x' leads to 'y', which is no node of it.",
        "updates 'x', which {} has not.",
        "interrupt can be gone on with, abort cannot",
        "ending: no more is taken in hand",
        "An exception is told to the model",
        "Unknown kind 'x'; known are a, b.",
        "has 5000000 characters; 4194304 are the most.",
        "answered at this very moment: look again",
        "all it held is let go of, and lets go",
        "No way leads from '1' to '3'",
    ],
)
def test_a_quaint_sentence_is_found(quaint: str) -> None:
    assert list(look(sentence(quaint, 1)))


@pytest.mark.parametrize(
    "plain",
    [
        "There is no session 'x'.",
        "The run is no longer live.",
        "A stop interrupts the run; another worker resumes it.",
        "The limit is 4194304 characters.",
    ],
)
def test_a_plain_sentence_is_left_alone(plain: str) -> None:
    assert not list(look(sentence(plain, 1)))


def test_a_phrase_is_found_across_lines_and_in_every_kind_of_text(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('"""It is\nno node."""\n# It is\n# no edge.\nx = f"{1} is no field"\n')
    found = [(line, around) for text in sentences_of(path) for _, line, around in look(text)]
    assert found == [(1, "It is no node."), (5, "{} is no field"), (3, "It is no edge.")]


def main(rooms: list[str]) -> None:
    """Print what is found, and how much of it in each room."""
    hits = [hit for hit in hits_of([*sources(), *DOCUMENTS]) if not rooms or hit.room in rooms]
    for hit in hits:
        print(hit)
    every = [path for path in modules(all_rooms=True) if not rooms or room_of(path) in rooms]
    for name in wrong_names(every):
        print(f"src/tenuto/{name}: not a noun")
    for name, files in repeated_names(modules(all_rooms=True)).items():
        print(f"{name}: {', '.join(files)}")
    for room, count in sorted(Counter(hit.room for hit in hits).items()):
        print(f"{count:5} {room}")


if __name__ == "__main__":
    main(sys.argv[1:])
