"""Conversations for the converters: in our form, and in the plain form that each provider's types describe."""

import json
from typing import Any

from hypothesis import strategies as st

from tenuto.messages import UNPARSED

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)
NAMES = st.sampled_from(["look_up", "refund"])
URLS = st.sampled_from(["https://host/a.png", "data:image/png;base64,QQ=="])
PDF = "data:application/pdf;base64,QQ=="
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(TEXT, JSONS, max_size=2)
NOT_OBJECTS = st.sampled_from(["{", "[1]", "NaN", '{"a": NaN}', '{"a": "\\ud800"}', "1", '{"a": 1}}'])
_arguments = OBJECTS.map(json.dumps) | NOT_OBJECTS

_texts = TEXT.map(lambda text: {"type": "text", "text": text})
_images = URLS.map(
    lambda url: {"type": "file", "url": url, "media_type": "image/png" if url.startswith("data:") else "image/*"}
)
_documents = TEXT.map(lambda name: {"type": "file", "url": PDF, "media_type": "application/pdf", "name": name})
_user_content = TEXT | st.lists(_texts | _images | _documents, min_size=1, max_size=3)
_assistant_content = TEXT | st.lists(_texts, min_size=1, max_size=2)
_results = TEXT | st.lists(_texts, min_size=1, max_size=2)


@st.composite
def ours(draw: st.DrawFn) -> list[Any]:
    """Draw a valid conversation in our form, users and assistants in turn, with metadata and late notices."""
    messages: list[Any] = []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(_user_content), "metadata": {"secret": "no"}})
        calls = [
            {"id": f"c{turn}{n}", "name": draw(NAMES), "arguments": draw(OBJECTS)}
            for n in range(draw(st.integers(0, 2)))
        ]
        if calls:
            content = draw(st.just("") | _assistant_content)
            messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            for call in draw(st.permutations(calls)):
                if draw(st.booleans()):
                    messages.append({"role": "system", "content": "A notice."})
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": draw(_results)})
        messages.append({"role": "assistant", "content": draw(_assistant_content), "metadata": {"secret": "no"}})
    return messages


def in_parts(messages: list[Any]) -> list[Any]:
    """Return messages with every content as parts, without metadata and system messages: what all forms can say."""
    found = []
    for message in messages:
        if message["role"] == "system":
            continue
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        whole = {"role": message["role"], "content": [part for part in parts if part.get("text") != ""]}
        for name in ("tool_calls", "tool_call_id"):
            whole |= {name: message[name]} if message.get(name) else {}
        found.append(whole)
    return found


def _some(fields: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return some of these optional fields."""
    return st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in fields.items()})


def _block(kind: str, more: dict[str, Any] | None = None, **known: Any) -> st.SearchStrategy[dict[str, Any]]:
    drawn = {name: each if isinstance(each, st.SearchStrategy) else st.just(each) for name, each in known.items()}
    whole = st.fixed_dictionaries({"type": st.just(kind), **drawn})
    return st.builds(lambda one, two: {**one, **two}, whole, _some(more or {}))


_function_calls = st.builds(
    lambda call_id, name, arguments, more: {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **more,
    },
    TEXT,
    NAMES,
    _arguments,
    _some({"extra_content": {"google": {"thought_signature": "s"}}}),
)
_custom_calls = st.builds(
    lambda call_id, text: {"id": call_id, "type": "custom", "custom": {"name": "sql", "input": text}}, TEXT, TEXT
)
_chat_calls = _function_calls | _custom_calls
_image_urls = st.builds(lambda url, more: {"url": url, **more}, URLS, _some({"detail": "low"}))
_audio = st.sampled_from(["wav", "mp3"]).map(lambda form: {"data": "QQ==", "format": form})
_chat_text = _block("text", text=TEXT)
CHAT = st.one_of(
    st.builds(
        lambda role, content, more: {"role": role, "content": content, **more},
        st.sampled_from(["system", "developer"]),
        TEXT | st.lists(_chat_text, min_size=1, max_size=2),
        _some({"name": "rules"}),
    ),
    st.builds(
        lambda content, more: {"role": "user", "content": content, **more},
        TEXT
        | st.lists(
            _chat_text
            | _block("image_url", image_url=_image_urls)
            | _block("file", file=st.just({"file_data": PDF, "filename": "a.pdf"}) | st.just({"file_id": "f"}))
            | _block("input_audio", input_audio=_audio),
            min_size=1,
            max_size=3,
        ),
        _some({"name": "ada"}),
    ),
    st.builds(
        lambda content, calls, more: {"role": "assistant", "content": content, "tool_calls": calls, **more},
        st.none() | TEXT | st.lists(_chat_text | _block("refusal", refusal=TEXT), min_size=1, max_size=2),
        st.lists(_chat_calls, max_size=2),
        _some({"refusal": "no", "reasoning_content": "hm", "audio": {"id": "a"}}),
    ),
    st.builds(
        lambda call_id, content: {"role": "tool", "tool_call_id": call_id, "content": content},
        TEXT,
        st.text(max_size=2) | st.lists(_chat_text, min_size=1, max_size=2),
    ),
)
"""One message as it is sent to OpenAI's chat completions."""

_PDF_SOURCE = {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}
_CITATION = {
    "type": "page_location",
    "cited_text": "t",
    "document_index": 0,
    "document_title": None,
    "start_page_number": 1,
    "end_page_number": 2,
}
_CACHED = {"cache_control": {"type": "ephemeral"}}
_source = st.sampled_from(
    [{"type": "base64", "media_type": "image/png", "data": "QQ=="}, {"type": "url", "url": "https://h/a"}]
)
_claude_parts = (
    _block("text", _CACHED, text=TEXT)
    | _block("image", _CACHED, source=_source)
    | _block("document", _CACHED | {"title": "t", "context": "c"}, source=_PDF_SOURCE)
    | _block("document", source={"type": "text", "media_type": "text/plain", "data": "plain"})
)
_claude_results = _block(
    "tool_result",
    _CACHED | {"is_error": True},
    tool_use_id=TEXT,
    content=TEXT | st.lists(_claude_parts, min_size=1, max_size=2),
)
_claude_replies = (
    _block(
        "text",
        {
            "citations": [
                {
                    "type": "page_location",
                    "cited_text": "t",
                    "document_index": 0,
                    "document_title": None,
                    "start_page_number": 1,
                    "end_page_number": 2,
                }
            ]
        },
        text=TEXT,
    )
    | _block("thinking", thinking=TEXT, signature="s")
    | _block("redacted_thinking", data="x")
    | _block("tool_use", _CACHED, id=TEXT, name=NAMES, input=OBJECTS)
    | _block("server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "q"})
)


@st.composite
def claude(draw: st.DrawFn) -> list[Any]:
    """Draw messages as they are sent to Anthropic: in turn, results before what the user says."""
    messages: list[Any] = []
    for _ in range(draw(st.integers(1, 2))):
        results = draw(st.lists(_claude_results, max_size=2))
        content = [*results, *draw(st.lists(_claude_parts, min_size=0 if results else 1, max_size=2))]
        messages.append({"role": "user", "content": draw(TEXT) if draw(st.booleans()) else content})
        replies = TEXT | st.lists(_claude_replies, min_size=1, max_size=4)
        messages.append({"role": "assistant", "content": draw(replies)})
    return messages


_response_text = _block("output_text", text=TEXT, annotations=st.just([]))
_response_inputs = (
    _block("input_text", text=TEXT)
    | _block("input_image", image_url=URLS, detail=st.sampled_from(["auto", "low"]))
    | _block("input_file", file_data=st.just(PDF), filename=st.just("a.pdf"))
    | _block("input_file", file_id=st.just("f"))
)
_outputs = TEXT | st.lists(_response_inputs, min_size=1, max_size=2)
ITEMS = st.lists(
    st.one_of(
        _block("message", role=st.sampled_from(["user", "system", "developer"]), content=_outputs),
        _block("message", role="assistant", content=TEXT),
        _block(
            "message",
            {"phase": "commentary"},
            id=TEXT,
            role="assistant",
            status="completed",
            content=st.lists(_response_text | _block("refusal", refusal=TEXT), min_size=1, max_size=2),
        ),
        _block("reasoning", {"encrypted_content": "e"}, id=TEXT, summary=st.just([])),
        _block("function_call", {"id": "fc_1", "status": "completed"}, call_id=TEXT, name=NAMES, arguments=_arguments),
        _block("function_call_output", {"status": "completed"}, call_id=TEXT, output=_outputs),
        _block("custom_tool_call", call_id=TEXT, name="sql", input=TEXT),
        _block("custom_tool_call_output", call_id=TEXT, output=TEXT),
        _block("web_search_call", id="ws", status="completed", action={"type": "search", "query": "q"}),
    ),
    max_size=5,
)
"""Items as they are sent to OpenAI's Responses."""


def parsed(text: str) -> Any:
    """Return the arguments in a provider's text as what they mean: an object, or the text itself."""
    try:
        found = json.loads(text, parse_constant=float.fromhex)
        json.dumps(found, ensure_ascii=False).encode()
    except ValueError:
        return {UNPARSED: text}
    return found if isinstance(found, dict) else {UNPARSED: text}
