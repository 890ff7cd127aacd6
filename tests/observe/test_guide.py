"""The guide's example tells the truth."""

import json
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import MODULES, environment


def test_the_guides_example_prints_a_line_that_names_the_span_it_was_written_in(tmp_path: Path) -> None:
    example = next(module for module in MODULES if module.page == "docs/observe.md")
    (tmp_path / "example.py").write_text(example.code)
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    node, invocation = map(json.loads, done.stdout.replace("}\n{", "}\x00{").split("\x00"))
    assert (node["name"], invocation["name"]) == ("price", "openarmature.invocation")
    assert done.stderr == f"pricing, tenant acme, span {node['context']['span_id'].removeprefix('0x')}\n"
