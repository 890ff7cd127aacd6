"""The programs of the documents: what the fences of each page make together.

A fence says its language. Python has two:

- `python` is code. The blocks of a page are one module, in their order; one that begins with `# name.py` begins the
  file of that name, which the following blocks continue. All files of all pages are in one folder, so they may import
  each other, and a name is used once.
- `pyi` is a listing of signatures: declarations, never run.

What a module prints may follow it in fences of the language `output`.

A line of a module is the same line of its page. A module that awaits at its top becomes one async function; `main`, if
a module has one and does not run it, is run.
"""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

NAMED = re.compile(r"# (\w+)\.py\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One fenced block: its language, its text, and the line that opens it, counted from 1."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """The page and the line, as an editor opens them."""
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Module:
    """A file that blocks of one page make."""

    name: str
    page: str
    lines: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def take(self, fence: Fence) -> None:
        """Add a block on the lines that it has on its page."""
        self.lines.extend([""] * (fence.line - len(self.lines)))
        self.lines.extend(fence.text.splitlines())

    @property
    def output(self) -> str | None:
        """What the module prints; None if its page does not say."""
        return "".join(self.printed) if self.printed else None

    @property
    def code(self) -> str:
        """The text of the file."""
        tree = ast.parse("\n".join(self.lines), self.page)
        last = []
        if any(map(_awaits, tree.body)):
            # A name of a page may be for its reader alone.
            first = next(number for number, line in enumerate(self.lines) if line)
            lines = [*self.lines[: first - 1], "async def page() -> None:", *_indented(self.lines[first:], tree, first)]
            last = ["# pyright: reportUnusedVariable=false, reportUnusedFunction=false, reportUnusedClass=false"]
            call = "page"
        else:
            lines, call = self.lines, "main"
        if call == "page" or _leaves_main(tree):
            last += ["", 'if __name__ == "__main__":', "    import asyncio", "", f"    asyncio.run({call}())"]
        return "\n".join([*lines, *last, ""])


def _awaits(statement: ast.stmt) -> bool:
    """Whether a statement awaits outside a function."""
    inner: list[ast.AST] = [statement]
    while inner:
        node = inner.pop()
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) or (
            isinstance(node, ast.comprehension) and node.is_async
        ):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            inner.extend(ast.iter_child_nodes(node))
    return False


def _leaves_main(tree: ast.Module) -> bool:
    """Whether there is an async `main` that nothing calls."""
    defined = any(isinstance(each, ast.AsyncFunctionDef) and each.name == "main" for each in tree.body)
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return defined and "main" not in called


def _indented(lines: list[str], tree: ast.Module, first: int) -> Iterator[str]:
    """Yield lines further in, except those that begin inside a string."""
    strings = [
        range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
    ]
    inside = {number for each in strings for number in each}
    for number, line in enumerate(lines, first + 1):
        yield f"    {line}" if line and number not in inside else line


def fences_of(page: str, text: str) -> list[Fence]:
    """Return the fenced blocks of a text, those in lists and quotes included."""
    found = [token for token in MarkdownIt().parse(text) if token.type in ("fence", "code_block") and token.map]
    return [
        Fence(page=page, line=token.map[0] + 1, language=token.info.strip(), text=token.content)
        for token in found
        if token.map
    ]


def modules_of(fences: Iterable[Fence]) -> list[Module]:
    """Return the files that the blocks of some pages make."""
    modules: dict[str, Module] = {}
    latest: Module | None = None
    for fence in fences:
        if latest is not None and latest.page != fence.page:
            latest = None
        if fence.language == "python":
            named = NAMED.match(fence.text)
            if named or latest is None:
                name = named[1] if named else f"page_{Path(fence.page).stem.lower()}"
                assert name not in modules, f"{fence.place}: {modules[name].page} has a file {name}.py already."
                latest = modules[name] = Module(name, fence.page)
            latest.take(fence)
        elif fence.language == "output":
            assert latest is not None, f"{fence.place}: there is no program whose output this could be."
            latest.printed.append(fence.text)
    return list(modules.values())


FENCES = [fence for path in PAGES for fence in fences_of(path.relative_to(ROOT).as_posix(), path.read_text())]
MODULES = modules_of(FENCES)


BESIDE = {"my_backend": ROOT / "tests" / "example_backend" / "small_backend.py"}
"""What a page leaves to its reader and its files import."""


def write(folder: Path, modules: Sequence[Module] = MODULES) -> list[Path]:
    """Write the files of pages into a folder, with what is to be beside them, and return their paths."""
    for name, path in BESIDE.items():
        (folder / f"{name}.py").write_text(path.read_text())
    paths = [folder / f"{module.name}.py" for module in modules]
    for path, module in zip(paths, modules, strict=True):
        path.write_text(module.code)
    return paths


def environment() -> dict[str, str]:
    """Return the environment for a program in any folder: it imports this source, whatever else is installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
