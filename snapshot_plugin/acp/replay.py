"""Snapshot to updates: what ``session/load`` replays to the client. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from snapshot_plugin.acp.state import noted_in, settled_tools
from snapshot_plugin.model.content import Block, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["TOOL_BYTES", "replay"]

_NEEDS = {"compaction_update": "compaction", "compaction_summary_chunk": "compaction"}
_NOTHING = ({"type": "text", "text": ""}, {"type": "thought"})
_SHORT = 200
TOOL_BYTES = 1 << 20
"""Default limit in bytes for each replayed payload of a tool."""


def replay(
    snapshot: SessionSnapshot, client: Mapping[str, Any], *, tool_bytes: int = TOOL_BYTES, is_running: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield every update of the conversation in order, then the last plan, commands, title and usage.

    Open tool calls are shown as failed with a note, unless the turn *is_running*. Terminals are replaced by the
    text they showed. Each payload of a tool (content, input, output) is truncated to *tool_bytes*, with a marker
    that the record has more. Updates that need a capability the *client* lacks are left out.
    """
    mended = snapshot if is_running else repair(snapshot.evolve(messages=settled_tools(snapshot.messages)))[0]
    for number, message in enumerate(mended.messages, 1):
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                yield _tool_call(block, tool_bytes)
            elif _is_update(raw := thaw(block.raw())):
                yield from _kept(raw["update"], client)
            elif raw not in _NOTHING:
                # without an id, a client would join two messages of one role
                yield {**_chunk(message, block, raw), "messageId": message.id or f"asnap-{number}"}
    yield from _state(mended)


def _chunk(message: Message, block: Block, raw: dict[str, Any]) -> dict[str, Any]:
    if isinstance(block, ThoughtBlock):
        content = _text(block.text) if block.content is None else _content(block.content)
        return {"sessionUpdate": "agent_thought_chunk", "content": content}
    kind = "user_message_chunk" if message.role == "user" else "agent_message_chunk"
    return {"sessionUpdate": kind, "content": _content(raw)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(raw: Any) -> dict[str, Any]:
    """Return a content block as the client saw it; content that is not a block is shown as JSON text."""
    raw = thaw(raw)
    inner = (
        raw["content"] if isinstance(raw, dict) and raw.get("type") == "acp_content" and "content" in raw else raw
    )
    return inner if isinstance(inner, dict) else _text(json.dumps(inner))


def _is_update(raw: dict[str, Any]) -> bool:
    return raw.get("type") == "acp_update" and isinstance(raw.get("update"), dict)


def _kept(update: dict[str, Any], client: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = update.get("sessionUpdate")
    abilities = client.get("session")
    if not isinstance(kind, str):
        return
    if kind not in _NEEDS or (isinstance(abilities, dict) and abilities.get(_NEEDS[kind]) is not None):
        yield update


# Tool calls -----------------------------------------------------------------------------------------------


def _tool_call(block: ToolCallBlock, tool_bytes: int) -> dict[str, Any]:
    raw = thaw(block.raw())
    terminals = raw.pop("terminals", {})
    raw.pop("permission", None)
    del raw["type"]
    content = raw.get("content")
    if isinstance(content, list) or terminals:
        items = content if isinstance(content, list) else []
        raw["content"] = [*(_inline(item, terminals) for item in items), *_unshown(items, terminals)]
    for name in ("content", "rawInput", "rawOutput"):
        if name in raw:
            raw[name] = _Budget(tool_bytes).cut(raw[name])
    return {"sessionUpdate": "tool_call", **raw, "title": raw.get("title", "")}


def _inline(item: Any, terminals: Mapping[str, Any]) -> Any:
    """Replace a terminal by its text: its id is invalid once the client that created it has exited."""
    if not isinstance(item, dict) or item.get("type") != "terminal":
        return item
    known = terminals.get(str(item.get("terminalId"))) or {}
    output = known.get("output")
    text = output if isinstance(output, str) else "(the output of this terminal was not captured)"
    return {"type": "content", "content": _text(text)}


def _unshown(items: list[Any], terminals: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the output of terminals that the agent reported only in ``_meta``."""
    shown = {str(item.get("terminalId")) for item in items if isinstance(item, dict)}
    for name, seen in terminals.items():
        if (
            name not in shown
            and isinstance(seen, dict)
            and seen.get("meta")
            and isinstance(seen.get("output"), str)
        ):
            yield {"type": "content", "content": _text(seen["output"])}


class _Budget:
    """Truncates the long strings of one payload. Short strings, such as names and kinds, are kept."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def cut(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.cut(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.cut(inner) for inner in value]
        return self._shortened(value) if isinstance(value, str) and len(value) > _SHORT else value

    def _shortened(self, text: str) -> str:
        room = self._left
        encoded = text if text.isascii() else text.encode(errors="surrogatepass")
        self._left = max(0, room - len(encoded))
        if len(encoded) <= room:
            return text
        kept = text[:room] if isinstance(encoded, str) else encoded[:room].decode(errors="ignore")
        return f"{kept}\n[… {len(text) - len(kept)} more characters are in the record]"


# State ----------------------------------------------------------------------------------------------------


def _state(snapshot: SessionSnapshot) -> Iterator[dict[str, Any]]:
    noted: dict[str, Any] = thaw(noted_in(snapshot))
    if snapshot.plan:
        entries = [{"priority": "medium", "status": "pending", **thaw(entry.raw())} for entry in snapshot.plan]
        yield {"sessionUpdate": "plan", "entries": entries}
    if isinstance(commands := noted.get("commands"), list):
        yield {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    if snapshot.title:
        yield {"sessionUpdate": "session_info_update", "title": snapshot.title}
    context = noted.get("context")
    if isinstance(context, dict) and {"used", "size"} <= context.keys():
        yield {"sessionUpdate": "usage_update", **context, **_cost(snapshot)}


def _cost(snapshot: SessionSnapshot) -> dict[str, Any]:
    cost = snapshot.metrics.cost
    return {} if cost is None else {"cost": {"amount": cost, "currency": snapshot.metrics.currency or "USD"}}
