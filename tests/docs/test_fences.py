"""Each fence of the documents says its language, and Python is in fences that are run."""

import ast
from collections import Counter

import pytest

from tests.docs.pages import FENCES, Fence, fences_of, modules_of

LANGUAGES = {"python", "pyi", "output", "sh", "text", "json", "sql", "toml", "yaml"}

NOT_WHOLE_YET: dict[str, int] = {}
"""Pages, and how many of their blocks are Python but not whole. One that becomes whole is taken out; none is added."""

SAYS_PYTHON = (
    *(
        ast.Assert,
        ast.AsyncFor,
        ast.AsyncFunctionDef,
        ast.AsyncWith,
        ast.Await,
        ast.Call,
        ast.ClassDef,
        ast.FunctionDef,
    ),
    *(ast.Import, ast.ImportFrom, ast.With),
)


def is_python(text: str) -> bool:
    """Whether a text is code, also if nothing says so: data in JSON or TOML can be parsed, but does nothing."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    return any(isinstance(node, SAYS_PYTHON) for node in ast.walk(tree))


def is_listing(body: list[ast.stmt]) -> bool:
    """Whether statements only declare: imports, annotated names, classes, and functions without a body."""
    return all(
        isinstance(each, ast.Import | ast.ImportFrom)
        or (isinstance(each, ast.AnnAssign) and each.value is None)
        or (isinstance(each, ast.Assign) and isinstance(each.value, ast.BinOp | ast.Subscript | ast.Name))
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and each.value.value is ...)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str))
        or (isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and is_listing(each.body))
        for each in body
    )


def test_every_fence_says_its_language() -> None:
    wrong = [f"{fence.place}: {fence.language or 'none'}" for fence in FENCES if fence.language not in LANGUAGES]
    pages = Counter(place.rpartition(".md")[0] + ".md" for place in wrong)
    assert pages == NOT_WHOLE_YET, "\n".join(wrong)


def test_python_is_in_no_other_fence() -> None:
    others = [fence for fence in FENCES if fence.language in LANGUAGES - {"python", "pyi"}]
    assert not [fence.place for fence in others if is_python(fence.text)]


def test_a_listing_only_declares() -> None:
    listings = [fence for fence in FENCES if fence.language == "pyi"]
    assert not [fence.place for fence in listings if not is_listing(ast.parse(fence.text, fence.place).body)]


@pytest.mark.parametrize(
    "text", ["await store.load('a')", "import os", "with a as b: ...", "print(1)", "async def f(): ..."]
)
def test_code_is_known_without_a_fence_that_says_so(text: str) -> None:
    assert is_python(text)


@pytest.mark.parametrize("text", ["make run", '{"a": [1, true]}', "[tool.x]\na = 1", "  a --+-- b", "store > graph"])
def test_data_commands_and_drawings_are_not_code(text: str) -> None:
    assert not is_python(text)


def test_a_signature_is_a_listing_and_a_call_is_not() -> None:
    text = "type_of = int | str\n\nclass Session:\n    id: str\n\n    async def get(self) -> str: ...\n"
    assert is_listing(ast.parse(text).body)
    assert not is_listing(ast.parse(f"{text}\nSession()").body)


def blocks(*texts: str, page: str = "docs/page.md") -> list[Fence]:
    return fences_of(page, "# A page\n\n" + "\n\nSome words.\n\n".join(texts))


def test_the_blocks_of_a_page_are_one_module_and_keep_their_lines() -> None:
    found = blocks("```python\nx = 1\n```", "```sh\nmake\n```", "  - A list:\n\n    ```python\n    y = x\n    ```")
    (module,) = modules_of(found)
    assert (module.name, module.output) == ("page_page", None)
    assert module.code.splitlines() == ["", "", "", "x = 1", *[""] * 13, "y = x"]


def test_a_name_in_the_first_line_begins_a_file_which_the_next_block_continues() -> None:
    found = blocks(
        "```python\na = 1\n```", "```python\n# shop.py\nb = 2\n```", "```python\nc = 3\n```", "```output\n3\n```"
    )
    page, shop = modules_of(found)
    assert (page.name, page.code.split(), page.output) == ("page_page", ["a", "=", "1"], None)
    assert (shop.name, shop.code.split()[2:], shop.output) == ("shop", ["b", "=", "2", "c", "=", "3"], "3\n")


def test_a_files_name_is_used_once() -> None:
    fence = "```python\n# shop.py\n```"
    with pytest.raises(AssertionError, match=r"docs/other.md:3: docs/page.md has a file shop.py already"):
        modules_of([*blocks(fence), *blocks(fence, page="docs/other.md")])


def test_a_module_that_awaits_at_its_top_is_one_function_and_its_texts_are_unchanged() -> None:
    (module,) = modules_of(blocks("```python\nimport a\n```", '```python\nt = """\nx\n"""\nawait a.f(t)\n```'))
    lines = module.code.splitlines()
    assert lines[2:4] == ["async def page() -> None:", "    import a"]
    assert lines[9:13] == ['    t = """', "x", '"""', "    await a.f(t)"]
    assert lines[-1] == "    asyncio.run(page())"


@pytest.mark.parametrize(
    "code", ["[x async for x in a()]", "async with a: ...", "async for b in a: ...", "if a:\n    await b"]
)
def test_every_way_to_await_is_found(code: str) -> None:
    (module,) = modules_of(blocks(f"```python\n{code}\n```"))
    assert "asyncio.run(page())" in module.code


def test_main_is_run_where_the_page_leaves_that_out() -> None:
    main = "```python\nasync def main() -> None: ...\n```"
    (left_out,), (run,) = modules_of(blocks(main)), modules_of(blocks(main, "```python\nasyncio.run(main())\n```"))
    assert left_out.code.endswith("    asyncio.run(main())\n")
    assert run.code.count("main()") == 2
