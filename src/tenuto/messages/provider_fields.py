"""What only one provider understands, kept in a message's content as `other` parts.

The data of such a part is the provider's own part, whole. If it has an `of`, it is fields instead: `message`, of the
message; `part`, of the part before it; `tool_call`, of the call with that `index`, which then has its place there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tenuto.codec import encode
from tenuto.errors import InvalidInput
from tenuto.messages.message import FilePart, OtherPart, TextPart
from tenuto.quote import quote

_OURS = ("text", "file", "other")


def other(provider: str, data: Mapping[str, Any]) -> OtherPart:
    """Return a part that only this provider understands."""
    return {"type": "other", "provider": provider, "data": data}


def fields(provider: str, of: str, values: Mapping[str, Any], **more: Any) -> OtherPart:
    """Return a part with further fields of a message, of the part before it, or of a tool call."""
    return other(provider, {"of": of, "fields": values, **more})


def with_fields(provider: str, content: Any, own: Mapping[str, Any], *more: OtherPart) -> Any:
    """Return a content, a text or parts, with further fields of its message beside it if there are any."""
    if not own and not more:
        return content
    is_text = isinstance(content, str)
    parts = content if not is_text else [text_part(content)] if content else []
    return [*parts, fields(provider, "message", own, **({"content": "text"} if is_text else {})), *more]


def text_part(text: str) -> TextPart:
    """Return a text as a part."""
    return {"type": "text", "text": text}


def file_part(url: str, media_type: str, name: str | None = None) -> FilePart:
    """Return a file as a part."""
    part: FilePart = {"type": "file", "url": url, "media_type": media_type}
    return part if name is None else {**part, "name": name}


def data_url(url: str) -> tuple[str, str] | None:
    """Return media type and Base64 text of a `data:` address; None for any other."""
    media_type, found, data = url.removeprefix("data:").partition(";base64,")
    return (media_type, data) if found and url.startswith("data:") and media_type else None


def without(given: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the fields besides those that are known, and besides those that say nothing."""
    return {name: value for name, value in given.items() if name not in known and value is not None and value != []}


@dataclass(slots=True)
class Entry:
    """A part of a message on its way to a provider, or the place of a tool call (`call`)."""

    part: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    call: int | None = None


@dataclass(slots=True)
class Sent:
    """The content of a message on its way to one provider: its parts, and the fields that only this one understands.

    `was_text` says that the content was one text; it may have become parts only to keep fields beside it.
    """

    entries: list[Entry] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    was_text: bool = False

    @classmethod
    def of(cls, message: Mapping[str, Any], provider: str) -> "Sent":
        """Read a message. Parts of other providers are left out; the result of a tool may be any JSON."""
        content: Any = message.get("content")
        if isinstance(content, str):
            return cls([Entry(text_part(content))], was_text=True)
        if not _are_parts(content):
            if message["role"] == "tool":
                return cls([Entry(text_part(encode(content)))], was_text=True)
            if content:
                raise InvalidInput(
                    f"A message with role {message['role']!r} has content of another form: {quote(content)}. Expected "
                    "a text, or parts of type 'text', 'file' or 'other'; keep a provider's own part as "
                    "{'type': 'other', 'provider': ..., 'data': ...}."
                )
            return cls(was_text=True)
        sent = cls()
        for part in content:
            sent._take(part, provider)
        return sent

    def _take(self, part: Mapping[str, Any], provider: str) -> None:
        if part["type"] != "other":
            self.entries.append(Entry(part))
            return
        data = part.get("data")
        if part.get("provider") != provider or not isinstance(data, Mapping):
            self.was_text = True  # as far as this provider is concerned, if the others are texts
            return
        match data.get("of"):
            case "message":
                self.fields |= data["fields"]
                self.was_text = self.was_text or data.get("content") == "text"
            case "part" if self.entries:
                self.entries[-1].fields = data["fields"]
            case "tool_call":
                self.entries.append(Entry({}, data["fields"], data["index"]))
            case _:
                self.entries.append(Entry(data))

    @property
    def as_text(self) -> bool:
        """Whether the content is to be sent as one text: nothing in it is anything else."""
        parts = [entry for entry in self.entries if entry.call is None]
        return self.was_text and all(entry.part.get("type") == "text" and not entry.fields for entry in parts)

    def text(self) -> str:
        """Return the text alone."""
        return "".join(entry.part["text"] for entry in self.entries if entry.part.get("type") == "text")

    def with_calls(self, calls: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Entry, Mapping[str, Any] | None]]:
        """Yield the parts, and with the entry of its place each call; a call without a place comes at the end."""
        placed = set[int]()
        for entry in self.entries:
            if entry.call is None:
                yield entry, None
            elif entry.call < len(calls):
                placed.add(entry.call)
                yield entry, calls[entry.call]
        for index, call in enumerate(calls):
            if index not in placed:
                yield Entry({}, call=index), call


def _are_parts(content: Any) -> bool:
    return (
        isinstance(content, Sequence)
        and bool(content)
        and all(isinstance(each, Mapping) and each.get("type") in _OURS for each in content)
    )
