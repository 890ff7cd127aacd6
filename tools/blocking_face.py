"""Write the blocking face of the runtime from the async one: `python -m tools.blocking_face`.

Each class of handles gets a twin with the same verbs, signatures and types; each verb calls the async one through a
portal. `tests/runtime/test_blocking.py` checks that the file is what this writes.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / "src" / "tenuto" / "runtime"
TARGET = HOME / "blocking_face.py"

TWINS = {
    "RunHandle": ("run_handle", "BlockingRun"),
    "Session": ("handle", "BlockingSession"),
    "Forked": ("handle", "BlockingFork"),
    "Sessions": ("sessions", "BlockingSessions"),
    "Operator": ("operator", "BlockingOperator"),
    "SessionRuntime": ("runtime", "BlockingRuntime"),
}
"""The async classes, from the lowest up: the module of each, and its twin's name."""

LEFT_OUT = {"aclose", "blocking", "store", "using", "work", "worker"}
"""What belongs to an event loop, or opens and closes."""

HEAD = '''"""The blocking face of the runtime: the same verbs for code without an event loop.

Written by `python -m tools.blocking_face`; change the async classes instead.
"""

from __future__ import annotations

'''


def main() -> None:
    """Write the file."""
    TARGET.write_text(face())


def face() -> str:
    """Return the text of the blocking face."""
    trees = {module: ast.parse((HOME / f"{module}.py").read_text()) for module, _ in TWINS.values()}
    classes = [_twin(_class(trees[module], name), name, twin) for name, (module, twin) in TWINS.items()]
    body = "\n\n".join([*classes, _wrapping(), _opening()])
    text = HEAD + _imports(trees, body) + "\n\n" + body
    return _formatted(text)


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _twin(found: ast.ClassDef, name: str, twin: str) -> str:
    bases = ", ".join(_mapped(ast.unparse(base)) for base in found.bases)
    lines = [f"class {twin}({bases}):" if bases else f"class {twin}:", f'    """The blocking face of `{name}`."""']
    if not any(base.split("[")[0] in TWINS for base in map(ast.unparse, found.bases)):
        lines += ["", f"    def __init__(self, portal: Portal, wrapped: {_of(found, name)}) -> None:"]
        lines += ["        self._portal = portal", "        self._wrapped = wrapped"]
    else:
        lines += ["", f"    _wrapped: {_of(found, name)}"]
    if name in ("RunHandle", "Session"):
        lines += [
            "",
            "    def __repr__(self) -> str:",
            f'        return "{twin}" + repr(self._wrapped).removeprefix("{name}")',
        ]
    lines += _slots(found)
    for node in found.body:
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name[0] != "_"
            and node.name not in LEFT_OUT
        ):
            lines += ["", *_verb(node, name)]
    return "\n".join(lines)


def _of(found: ast.ClassDef, name: str) -> str:
    generic = any("OutT_co" in ast.unparse(base) for base in found.bases)
    return f"{name}[OutT_co]" if generic else name


def _slots(found: ast.ClassDef) -> list[str]:
    """Return properties for the public attributes that the class keeps in slots."""
    kept = [node for node in found.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"]
    names = [name for node in kept for name in ast.literal_eval(node.value) if not name.startswith("_")]
    types = {"input_id": "str", "run_id": "str | None", "outcome": "Outcome[OutT_co] | None"}
    lines = []
    for name in names:
        lines += ["", "    @property", f"    def {name}(self) -> {types[name]}:"]
        lines += [f'        """See `{found.name}.{name}`."""', f"        return self._wrapped.{name}"]
    return lines


def _verb(node: ast.FunctionDef | ast.AsyncFunctionDef, owner: str) -> list[str]:
    decorators = [ast.unparse(each) for each in node.decorator_list]
    lines = [f"    @{each}" for each in decorators]
    returns = ast.unparse(node.returns).strip("'\"") if node.returns else "None"
    lines.append(f"    def {node.name}({ast.unparse(node.args)}) -> {_mapped(returns)}:")
    if "overload" in decorators:
        lines[-1] += " ..."
        return lines
    lines.append(f'        """See `{owner}.{node.name}`."""')
    inner = f"self._wrapped.{node.name}" + ("" if "property" in decorators else f"({_forwarded(node.args)})")
    if returns.startswith("AsyncGenerator["):
        return [*lines, f"        return self._portal.iterate(lambda: {inner})"]
    call = f"self._portal.call({inner})" if isinstance(node, ast.AsyncFunctionDef) else inner
    name = returns.split("[")[0]
    if name in TWINS:
        call = f"{TWINS[name][1]}(self._portal, {call})"
    elif returns == "Any":
        call = f"_wrapped(self._portal, {call})"
    return [*lines, f"        {'' if returns == 'None' else 'return '}{call}"]


def _forwarded(arguments: ast.arguments) -> str:
    given = [each.arg for each in (*arguments.posonlyargs, *arguments.args) if each.arg != "self"]
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    given += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    given += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return ", ".join(given)


def _mapped(hint: str) -> str:
    hint = re.sub(r"AsyncGenerator\[(.*), None\]$", r"Iterator[\1]", hint)
    return re.sub(r"\b(" + "|".join(TWINS) + r")\b(?=$|\[|\])", lambda found: TWINS[found[1]][1], hint)


def _wrapping() -> str:
    return '''
def _wrapped(portal: Portal, result: Any) -> Any:
    """Return a result with a blocking face, if it is a handle."""
    match result:
        case Forked():
            return BlockingFork(portal, result)
        case Session():
            return BlockingSession(portal, result)
    return result
'''


def _opening() -> str:
    return '''
@contextmanager
def opened(runtime: SessionRuntime) -> Iterator[BlockingRuntime]:
    """Open a runtime in a dedicated event loop, in a thread, for code that has none."""
    portal = Portal()
    with portal.opened(runtime):
        yield BlockingRuntime(portal, runtime)
'''


def _imports(trees: dict[str, ast.Module], body: str) -> str:
    """Return the imports of names that the body uses, from where the async modules have them."""
    lines = ["from collections.abc import Iterator", "from contextlib import contextmanager", "from typing import Any"]
    lines += ["from tenuto.runtime.portal import Portal"]
    lines += [f"from tenuto.runtime.{module} import {name}" for name, (module, _) in TWINS.items()]
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = alias.asname or alias.name
                    if re.search(rf"\b{name}\b", body):
                        lines.append(
                            f"from {node.module} import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                        )
    if re.search(r"\bOutT\b", body):
        lines.append("from tenuto.runtime.sessions import OutT")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _formatted(text: str) -> str:
    ruff = [str(Path(sys.executable).parent / "ruff")]
    for command in (["check", "--fix", "--quiet", "--select", "I,F401,UP"], ["format"]):
        done = subprocess.run(
            [*ruff, *command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
