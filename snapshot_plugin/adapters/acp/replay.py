"""From the record back to the client: the updates that show a session again, as `session/load` must send them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["replay"]

_NEEDS = {"compaction_update": "compaction", "compaction_summary_chunk": "compaction"}
_CHUNK = {"user": "user_message_chunk", "assistant": "agent_message_chunk"}


def replay(snapshot: SessionSnapshot, client: Mapping[str, Any], *, tool_bytes: int) -> Iterator[dict[str, Any]]:
    """Every update of the conversation in order, then the last plan, commands, title and usage.

    Tool calls that were open are shown as failed with a note; dead terminals as the text they showed; tool
    payloads over *tool_bytes* are cut there, and say so (the record keeps them whole).
    """
    mended, _ = repair(snapshot)
    for message in mended.messages:
        yield from _message(message, client, tool_bytes)
    yield from _state(mended)


def _message(message: Message, client: Mapping[str, Any], tool_bytes: int) -> Iterator[dict[str, Any]]:
    chunk = _CHUNK.get(message.role, "agent_message_chunk")
    for block in message.content:
        if isinstance(block, ThoughtBlock):
            content = thaw(block.content) if block.content is not None else {"type": "text", "text": block.text}
            yield {"sessionUpdate": "agent_thought_chunk", "content": content}
        elif isinstance(block, ToolCallBlock):
            yield _tool_call(block, tool_bytes)
        else:
            yield from _other(block, chunk, client)


def _other(block: Block, chunk: str, client: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    raw = thaw(block.raw())
    if raw.get("type") == "acp_update":
        update = raw["update"]
        needs = _NEEDS.get(update.get("sessionUpdate"))
        if needs is None or (client.get("session") or {}).get(needs) is not None:
            yield update
    elif raw.get("type") == "acp_content":
        yield {"sessionUpdate": chunk, "content": raw["content"]}
    elif not (isinstance(block, TextBlock) and not block.text):
        yield {"sessionUpdate": chunk, "content": raw}


def _tool_call(block: ToolCallBlock, tool_bytes: int) -> dict[str, Any]:
    raw = thaw(block.raw())
    terminals = raw.pop("terminals", {})
    raw.pop("permission", None)
    del raw["type"]
    if isinstance(raw.get("content"), list):
        raw["content"] = [_inline(item, terminals, tool_bytes) for item in raw["content"]]
    for name in ("rawInput", "rawOutput"):
        if name in raw:
            raw[name] = _bounded(raw[name], tool_bytes)
    return {"sessionUpdate": "tool_call", **raw, "title": raw.get("title", "")}


def _inline(item: Any, terminals: Mapping[str, Any], tool_bytes: int) -> Any:
    """A terminal's id died with the client that made it; what it showed did not."""
    if isinstance(item, dict) and item.get("type") == "terminal":
        known = terminals.get(item.get("terminalId", "")) or {}
        text = known.get("output") or "(the output of this terminal was not captured)"
        return {"type": "content", "content": {"type": "text", "text": _bounded(text, tool_bytes)}}
    return _bounded(item, tool_bytes)


def _bounded(value: Any, limit: int) -> Any:
    """Strings in *value* that are longer than *limit*, cut with a note."""
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}\n[… {len(value) - limit} more characters are in the record]"
    if isinstance(value, dict):
        return {key: _bounded(inner, limit) for key, inner in value.items()}
    if isinstance(value, list):
        return [_bounded(inner, limit) for inner in value]
    return value


def _state(snapshot: SessionSnapshot) -> Iterator[dict[str, Any]]:
    acp = snapshot.metadata.get("acp") or {}
    if snapshot.plan:
        entries = [{"priority": "medium", "status": "pending", **thaw(entry.raw())} for entry in snapshot.plan]
        yield {"sessionUpdate": "plan", "entries": entries}
    if isinstance(commands := acp.get("commands"), list):
        yield {"sessionUpdate": "available_commands_update", "availableCommands": thaw(commands)}
    if snapshot.title:
        yield {"sessionUpdate": "session_info_update", "title": snapshot.title}
    context = acp.get("context") or {}
    if isinstance(context.get("used"), int) and isinstance(context.get("size"), int):
        cost = snapshot.metrics.cost
        extra = (
            {"cost": {"amount": cost, "currency": snapshot.metrics.currency or "USD"}} if cost is not None else {}
        )
        yield {"sessionUpdate": "usage_update", "used": context["used"], "size": context["size"], **extra}
