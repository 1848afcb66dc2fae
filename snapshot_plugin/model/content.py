"""The blocks of a message: ACP's content blocks, thoughts and tool calls, in the order they happened.

Field names on the wire are ACP's own (``mimeType``, ``toolCallId``); in Python they are ``mime_type`` and so
on. A block of an unknown kind is an `UnknownBlock` and is written back verbatim.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, SerializeAsAny, Tag, TypeAdapter, ValidationError, WrapValidator
from pydantic import ValidatorFunctionWrapHandler as Reader
from pydantic.alias_generators import to_camel
from pydantic.config import ConfigDict

from snapshot_plugin.model.frozen import check_depth
from snapshot_plugin.model.value import Json, JsonObject, Value, with_text_names

__all__ = [
    "AudioBlock",
    "Block",
    "Blocks",
    "ImageBlock",
    "ResourceBlock",
    "ResourceLinkBlock",
    "TextBlock",
    "ThoughtBlock",
    "ToolCallBlock",
    "UnknownBlock",
    "parse_block",
]


class _Block(Value):
    model_config = ConfigDict(alias_generator=to_camel)
    _takes_unknown = True


class TextBlock(_Block):
    """Text of the message."""

    type: Literal["text"] = "text"
    text: str
    annotations: Json = None


class ThoughtBlock(_Block):
    """A thought of the model (ACP: ``agent_thought_chunk``). `content` holds a thought that is not text."""

    type: Literal["thought"] = "thought"
    text: str = ""
    content: Json = None


class ImageBlock(_Block):
    """An image, inline as base64, with its URI if it has one."""

    type: Literal["image"] = "image"
    data: str
    mime_type: str
    uri: str | None = None
    annotations: Json = None


class AudioBlock(_Block):
    """Audio, inline as base64."""

    type: Literal["audio"] = "audio"
    data: str
    mime_type: str
    annotations: Json = None


class ResourceBlock(_Block):
    """A resource embedded whole: ``{"uri", "mimeType"?, "text" | "blob"}``."""

    type: Literal["resource"] = "resource"
    resource: JsonObject
    annotations: Json = None


class ResourceLinkBlock(_Block):
    """A reference to a resource the agent can reach."""

    type: Literal["resource_link"] = "resource_link"
    uri: str
    name: str = ""
    mime_type: str | None = None
    title: str | None = None
    description: str | None = None
    size: int | None = None
    annotations: Json = None


class ToolCallBlock(_Block):
    """One tool call, with every update merged into it.

    `content` and `locations` are ACP's lists (text, diffs, terminal output); they may be large, so they stay
    raw JSON. `status` is ACP's: pending, in_progress, completed, failed.
    """

    type: Literal["tool_call"] = "tool_call"
    tool_call_id: str
    title: str = ""
    kind: str | None = None
    status: str | None = None
    content: Json = None
    locations: Json = None
    raw_input: Json = None
    raw_output: Json = None

    @property
    def is_open(self) -> bool:
        """Whether the call has no outcome yet."""
        return self.status in (None, "pending", "in_progress")


class UnknownBlock(Value):
    """A block of a kind this release does not know, or that does not fit its kind; kept verbatim."""

    _takes_unknown = True

    @property
    def type(self) -> str | None:
        """The value of its ``type`` field, if it has one."""
        kind = (self.model_extra or {}).get("type")
        return kind if isinstance(kind, str) else None


_KNOWN = frozenset({"text", "thought", "image", "audio", "resource", "resource_link", "tool_call"})


def _kind(block: Any) -> str:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    return "known" if isinstance(kind, str) and kind in _KNOWN else "unknown"


def _or_verbatim(block: Any, read: Reader) -> Any:
    if isinstance(block, UnknownBlock):
        return block
    try:
        return read(block)
    except ValidationError:
        if not isinstance(block, dict):
            raise
        named = with_text_names(block)
        return UnknownBlock.model_validate(block) if named == block else _or_verbatim(named, read)


_Known = TextBlock | ThoughtBlock | ImageBlock | AudioBlock | ResourceBlock | ResourceLinkBlock | ToolCallBlock
Block = Annotated[
    Annotated[_Known, Field(discriminator="type"), Tag("known")] | Annotated[UnknownBlock, Tag("unknown")],
    Discriminator(_kind),
    WrapValidator(_or_verbatim),
]


def _several(content: Any, read: Reader) -> Any:
    """Read all blocks together; if one is invalid, read each by itself."""
    content = ({"type": "text", "text": content},) if isinstance(content, str) else content
    try:
        return read(content)
    except ValidationError:
        return _any_blocks().validate_python(content)


if TYPE_CHECKING:
    Blocks = tuple[Block, ...]
else:
    # Each block is serialised by its own class, because the union does not name blocks of unknown kinds.
    _AnyKnown = SerializeAsAny[Annotated[_Known, Field(discriminator="type")]]
    Blocks = Annotated[tuple[_AnyKnown, ...], WrapValidator(_several)]
"""Blocks in order; plain text becomes one text block."""


@cache
def _any_blocks() -> TypeAdapter[tuple[Block, ...]]:
    return TypeAdapter(tuple[Block, ...])


@cache
def _any_block() -> TypeAdapter[Block]:
    return TypeAdapter(Block)


def parse_block(raw: dict[str, Any]) -> Block:
    """Read a block from JSON. A block that does not fit its kind is kept verbatim.

    Raises:
        InvalidSnapshot: it is nested more than `MAX_DEPTH` deep.
    """
    check_depth(raw, "block")
    return _any_block().validate_python(raw)
