"""Tool calls as other libraries write them, read as `ToolCallBlock`.

Known shapes: OpenAI ``{"id", "function": {"name", "arguments"}}``; Anthropic ``{"id", "name", "input"}``; LangChain
``{"id", "name", "args"}``; ACP ``{"toolCallId", "title", "rawInput", …}``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.frozen import check_depth, freeze

__all__ = ["CALL_ID_NAMES", "read_tool_calls"]

CALL_ID_NAMES = ("tool_call_id", "toolCallId", "tool_use_id")
"""The names of the field in a tool's result that holds the id of its call."""


def read_tool_calls(calls: Any) -> tuple[ToolCallBlock, ...]:
    """The blocks for a message's ``tool_calls``; unknown fields are kept in the block.

    Raises:
        InvalidSnapshot: one of them has another shape.
    """
    if isinstance(calls, str | Mapping) or not isinstance(calls, Iterable):
        raise _unknown("tool_calls")
    return tuple(_read(call, f"tool_calls[{index}]") for index, call in enumerate(calls))


def _read(call: Any, path: str) -> ToolCallBlock:
    if isinstance(call, ToolCallBlock):
        return call
    if not isinstance(call, Mapping):
        raise _unknown(path)
    rest = {name: value for name, value in call.items() if value is not None and name != "type"}
    if any(name in rest for name in CALL_ID_NAMES):
        return _acp(rest)
    function = rest.pop("function", None)
    if isinstance(function, Mapping):
        rest = {**function, **rest}
    for arguments in ("arguments", "input", "args"):
        if isinstance(rest.get("name"), str) and arguments in rest:
            return _named(rest, rest.pop(arguments))
    raise _unknown(path)


def _acp(rest: dict[str, Any]) -> ToolCallBlock:
    if "tool_call_id" not in rest and "tool_use_id" in rest:
        rest["tool_call_id"] = rest.pop("tool_use_id")
    return ToolCallBlock(**rest)


def _named(rest: dict[str, Any], arguments: Any) -> ToolCallBlock:
    title = rest.pop("name")
    call_id = rest.pop("id", None)
    return ToolCallBlock(
        tool_call_id=str(call_id if call_id is not None else title),
        title=title,
        raw_input=_parsed(arguments),
        **rest,
    )


def _parsed(arguments: Any) -> Any:
    """Parse arguments given as JSON text, as OpenAI does. Other text, and JSON we cannot hold, is kept as text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
        check_depth(value, "arguments")
        return freeze(value)
    except (ValueError, RecursionError):
        return arguments


def _unknown(path: str) -> InvalidSnapshot:
    return InvalidSnapshot(
        f"Message.{path} has no known shape",
        hint="give ToolCallBlock values in content, or OpenAI, Anthropic, LangChain or ACP tool calls",
    )
