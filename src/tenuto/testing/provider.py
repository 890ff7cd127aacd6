"""A provider of models that answers by a script: an HTTP server for tests, with OpenAI's and Anthropic's interfaces."""

import asyncio
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, cast

from tenuto.errors import InvalidInput
from tenuto.messages.message import AssistantMessage, assistant
from tenuto.testing.provider_replies import ANTHROPIC, CHAT, RESPONSES, Said, refusal, streamed, whole

_LONGEST_HOLD = 600.0
_SECRET = ("authorization", "x-api-key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the provider answers one request: with a message, whole or streamed as asked, or with an error.

    `status` from 400 on is an error with `error` as its text; `headers` are sent with it, such as `retry-after`. The
    answer begins after `delay` seconds and, with `hold`, once the test calls `release`; the pieces of a stream are
    `pace` seconds apart. With `drop_after=n` the connection breaks after n pieces, with 0 before the first byte.
    """

    message: AssistantMessage = field(default_factory=lambda: assistant(""))
    status: int = 200
    error: str = "The script says so."
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    hold: bool = False
    pace: float = 0.0
    drop_after: int | None = None
    input_tokens: int = 10
    output_tokens: int = 5


Step: TypeAlias = str | AssistantMessage | Answer
"""One step of a script: a text or a message is the answer with it."""

Script: TypeAlias = Callable[[Mapping[str, Any]], Step]
"""A script as a function of the request's body."""


def provider(*steps: Step | Script, log: Path | str | None = None) -> "Provider":
    """Return a provider that answers its requests with these steps in order, or as one function says.

    A request past the end of the script is refused with status 400. With `log`, each request is also a line of JSON in
    that file before it is answered, so that other processes can read it.
    """
    return Provider(steps, None if log is None else Path(log))


class Provider:
    """A server on this machine's loopback, open while its `async with`, or `with`, lasts.

    OpenAI's clients take `f"{url}/v1"` as their base URL, Anthropic's take `url`. `requests` are the requests in the
    order in which they came: `number`, `method`, `path`, `headers`, `body`, and `answer` with the status and tokens
    that the script has for it. API keys are left out.
    """

    def __init__(self, steps: Sequence[Step | Script], log: Path | None) -> None:
        self.requests: list[dict[str, Any]] = []
        self._steps = steps
        self._log = log
        self._changed = threading.Condition()
        self._asked = self._held = self._released = 0
        self._closing = False
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """Where the server is."""
        if self._server is None:
            raise InvalidInput("The provider is not open: use it within `async with provider(...) as server`.")
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self, count: int = 1) -> None:
        """Let this many of the held answers begin, in the order in which they were asked; also in advance."""
        with self._changed:
            self._released += count
            self._changed.notify_all()

    async def arrived(self, count: int, within: float = 10.0) -> list[dict[str, Any]]:
        """Wait until this many requests have come, and return them; raise `TimeoutError` after `within` seconds."""
        return await asyncio.to_thread(self.wait_for, count, within)

    def wait_for(self, count: int, within: float = 10.0) -> list[dict[str, Any]]:
        """Do as `arrived` does, in code without an event loop."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.requests) >= count, within):
                raise TimeoutError(f"{len(self.requests)} requests came in {within} seconds, not {count}.")
            return list(self.requests)

    def __enter__(self) -> Self:
        """Begin to listen."""
        server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"provider": self}))
        self._server, self._closing = server, False
        threading.Thread(target=server.serve_forever, args=(0.02,), name="provider", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End: answers that are held are not given any more."""
        server, self._server = self._server, None
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if server is not None:
            server.shutdown()
            server.server_close()

    async def __aenter__(self) -> Self:
        """Begin to listen."""
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End as `__exit__` does."""
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def taken(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> tuple[int, Answer]:
        """Log a request, and return its number and its answer."""
        with self._changed:
            number = len(self.requests) + 1
            answer = self._answer(path, body)
            request = {
                "number": number,
                "method": method,
                "path": path,
                "headers": {name: value for name, value in headers.items() if name not in _SECRET},
                "body": body,
                "answer": {
                    "status": answer.status,
                    "input_tokens": answer.input_tokens,
                    "output_tokens": answer.output_tokens,
                },
            }
            self.requests.append(request)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.write(f"{json.dumps(request)}\n")
            self._changed.notify_all()
        return number, answer

    def may_answer(self) -> bool:
        """Wait until a held answer may begin; return False if the server closes instead."""
        with self._changed:
            self._held += 1
            place = self._held
            self._changed.wait_for(lambda: self._closing or self._released >= place, _LONGEST_HOLD)
            return self._released >= place

    def _answer(self, path: str, body: Any) -> Answer:
        if path not in (CHAT, RESPONSES, ANTHROPIC):
            return Answer(status=404, error=f"There is nothing at {path}.")
        step: Any = self._steps[0] if self._steps else None
        if callable(step):
            step = step(body)
        elif self._asked < len(self._steps):
            step = self._steps[self._asked]
            self._asked += 1
        else:
            return Answer(status=400, error=f"The script has {len(self._steps)} steps, and all of them were answered.")
        if isinstance(step, Answer):
            return step
        return Answer(message=assistant(step) if isinstance(step, str) else cast("AssistantMessage", step))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that left before it was answered."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Serves one connection, in a thread."""

    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request as the script says."""
        path = self.path.partition("?")[0]
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        number, answer = self.provider.taken("POST", path, headers, body)
        time.sleep(answer.delay)
        if (answer.hold and not self.provider.may_answer()) or answer.drop_after == 0:
            self._drop()
        elif answer.status >= 400:
            self._send(answer.status, refusal(path, answer.status, answer.error), answer.headers)
        else:
            model = str(body.get("model", "scripted"))
            said = Said(number, model, answer.message, answer.input_tokens, answer.output_tokens)
            if body.get("stream"):
                self._stream(path, said, answer, body)
            elif answer.drop_after is not None:
                self._drop()
            else:
                self._send(answer.status, whole(path, said), answer.headers)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the base class has
        """Print nothing."""

    def _send(self, status: int, reply: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        data = json.dumps(reply).encode()
        self._begin(status, {**headers, "content-type": "application/json", "content-length": str(len(data))})
        self.wfile.write(data)

    def _stream(self, path: str, said: Said, answer: Answer, request: Mapping[str, Any]) -> None:
        try:
            pieces = list(streamed(path, said, request))
        except InvalidInput as error:
            self._send(400, refusal(path, 400, str(error)), {})
            return
        headers = {**answer.headers, "content-type": "text/event-stream", "transfer-encoding": "chunked"}
        self._begin(answer.status, headers)
        for sent, piece in enumerate(pieces):
            if sent == answer.drop_after:
                self._drop()
                return
            data = piece.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            time.sleep(answer.pace)
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.close_connection = True  # no connection outlives its answer, and so the server
        self.send_response(status)
        self.send_header("connection", "close")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _drop(self) -> None:
        """Break the connection, so that the client reads an error and not an end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
