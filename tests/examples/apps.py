"""Real servers of an application in a folder, and requests to them."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.examples.programs import ROOT

PATIENCE = 60.0


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(folder: Path, *command: str, port: int, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run a server in a folder until the block ends; yield its address once it answers."""
    paths = [ROOT / "src", ROOT / "examples", folder]
    env = {**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONWARNINGS": "ignore"}
    log = (folder / "server.log").open("w")
    process = subprocess.Popen([sys.executable, "-m", *command], cwd=folder, env=env, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        _until_it_answers(address, process, folder / "server.log")
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)
        log.close()


def _until_it_answers(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urlopen(f"{address}/openapi.json", timeout=PATIENCE).close()
        except URLError as error:
            if hasattr(error, "code"):
                return  # it answers, if only that there is no such page
            time.sleep(0.02)
        else:
            return
    raise AssertionError(log.read_text())


def post(address: str, **form: str) -> Any:
    """Post a form and return the answer."""
    data = "&".join(f"{name}={value}" for name, value in form.items()).encode()
    with urlopen(Request(address, data=data, method="POST"), timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return json.loads(text) if answer.headers["content-type"] == "application/json" else text
