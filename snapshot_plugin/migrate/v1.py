"""Version 1 to 2: one list of blocks per message; other fields get the names of the model.

A step must not use the model's classes, because they change and the step must not.
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.migrate.fields import Raw, as_object, keep, lifetime, take_list, take_object, utc_text

__all__ = ["read_messages", "v1_to_v2"]

_METRIC_NAMES = {"tokens_in": "input_tokens", "tokens_out": "output_tokens", "request_count": "turns"}
_CUSTOM_FIELDS: dict[str, type] = {
    "mode": str,
    "model": str,
    "instructions": str,
    "permissions": dict,
    "tools": dict,
}
"""Entries of ``custom`` in version 1 that are fields in version 2."""

_SECRET_BEARING = ("env", "headers", "args")
_OPTIONAL = ("id", "timestamp", "token_count", "tool_calls", "metadata")


def v1_to_v2(document: Raw) -> Raw:
    """Migrate a document from version 1 to 2. Unknown fields stay where they are."""
    document.update(lifetime(document.get("created_at"), document.get("updated_at")))
    document["config"] = _config(take_object(document, "config"))
    document["metrics"] = _metrics(take_object(document, "metrics"))
    messages = read_messages(take_list(document, "messages"))
    document["messages"] = [_with_inline_calls(message, index) for index, message in enumerate(messages)]
    document["metadata"] = take_object(document, "metadata")
    _name_the_agents_session(document)
    _lift_sections(document)
    return document


def _metrics(metrics: Raw) -> Raw:
    for old, new in _METRIC_NAMES.items():
        if old in metrics:
            keep(metrics, new, metrics.pop(old))
    spent = [metrics.get(name) for name in ("input_tokens", "output_tokens")]
    if "total_tokens" not in metrics and any(type(tokens) is int for tokens in spent):
        metrics["total_tokens"] = sum(tokens for tokens in spent if type(tokens) is int)
    return metrics


def _name_the_agents_session(document: Raw) -> None:
    """Rename the agent's session id. Version 1 wrote an empty string if there was no agent session or task."""
    agent_session = document.pop("acp_session_id", None)
    if agent_session:
        keep(document, "agent_session_id", agent_session)
    if document.get("current_task") == "":
        del document["current_task"]


def _lift_sections(document: Raw) -> None:
    """Move sections that version 1 kept in ``metadata``. A section of the wrong type stays there."""
    metadata = document["metadata"]
    for name in ("title", "tags", "plugins", "memory"):
        if name in metadata and name not in document and _fits(name, metadata[name]):
            document[name] = metadata.pop(name)


def _fits(name: str, value: Any) -> bool:
    if name == "title":
        return isinstance(value, str)
    if name == "tags":
        return isinstance(value, list) and all(isinstance(tag, str) for tag in value)
    return isinstance(value, dict)


# Settings --------------------------------------------------------------------------------------------------


def _config(config: Raw) -> Raw:
    """``working_dir`` becomes ``cwd``, ``custom`` becomes fields and ``options``; unknown fields stay.

    Values of environment variables, and the credentials of MCP servers, are dropped.
    """
    if config.get("working_dir"):
        keep(config, "cwd", config["working_dir"])
    config.pop("working_dir", None)
    _spread_custom(config, take_object(config, "custom"))
    _forget_environment_values(config)
    if "mcp_servers" in config:
        config["mcp_servers"] = [_server(raw, n) for n, raw in enumerate(take_list(config, "mcp_servers"))]
    return config


def _spread_custom(config: Raw, custom: Raw) -> None:
    for name, kind in _CUSTOM_FIELDS.items():
        if name in custom and name not in config and isinstance(custom[name], kind):
            config[name] = custom.pop(name)
    if custom:
        options = take_object(config, "options")
        for name, value in custom.items():
            keep(options, name, value)
        config["options"] = options


def _forget_environment_values(config: Raw) -> None:
    names = sorted(take_object(config, "environment"))
    if names:
        keep(config, "environment_names", names)


def _server(raw: Any, index: int) -> Raw:
    server = as_object(raw, f"config.mcp_servers[{index}]")
    return {name: value for name, value in server.items() if name not in _SECRET_BEARING}


# Messages --------------------------------------------------------------------------------------------------


def read_messages(raw: list[Any]) -> list[Raw]:
    """Messages with ``content`` as a list of blocks and ``timestamp`` in UTC; other fields stay as they are."""
    return [_read(as_object(message, f"messages[{i}]"), f"messages[{i}]") for i, message in enumerate(raw)]


def _read(message: Raw, path: str) -> Raw:
    for name in _OPTIONAL:
        if name in message and message[name] is None:
            del message[name]
    if "timestamp" in message:
        message["timestamp"] = utc_text(message["timestamp"], f"{path}.timestamp")
    message["content"] = _blocks(message.get("content"), f"{path}.content")
    return message


def _blocks(content: Any, path: str) -> list[Any]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidSnapshot(f"{path} is neither text nor a list of blocks")
    return content


def _with_inline_calls(message: Raw, index: int) -> Raw:
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
