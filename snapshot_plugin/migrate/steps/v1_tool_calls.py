"""Tool calls, from a list on the message (version 1) to blocks inside it (version 2)."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.migrate.fields import Raw, as_object, keep, take_list

__all__ = ["with_inline_calls"]


def with_inline_calls(message: Raw, index: int) -> Raw:
    """*message* with its ``tool_calls`` as ``tool_call`` blocks after its other content, in order."""
    calls = take_list(message, "tool_calls")
    message["content"] += [_block(call, index, n) for n, call in enumerate(calls)]
    return message


def _block(raw: Any, index: int, n: int) -> Raw:
    """A call without an id gets one from its position, so that the same document always gets the same ids."""
    call = as_object(raw, f"messages[{index}].tool_calls[{n}]")
    failed = call.get("error") is not None
    block: Raw = {
        "type": "tool_call",
        "toolCallId": str(call.pop("id", None) or f"call-{index}-{n}"),
        "title": call.pop("tool", None) or "",
        "status": call.pop("status", None) or ("failed" if failed else "completed"),
    }
    if "args" in call:
        block["rawInput"] = call.pop("args")
    for name in ("result", "error"):
        if call.get(name) is not None and "rawOutput" not in block:
            block["rawOutput"] = call.pop(name)
    for name, value in call.items():
        keep(block, name, value)
    return block
