"""The session files of OrbitMesh: a Go struct as JSON, ``{"SessionID", "Messages": [{"Role", …}], …}``.

Go writes field names as they are in the struct, and ``0001-01-01`` for a time that was never set.
"""

from __future__ import annotations

import re
from typing import Any

from snapshot_plugin.migrate.fields import Raw, lifetime, take_list, take_object
from snapshot_plugin.migrate.v1 import read_messages

__all__ = ["is_orbitmesh", "orbitmesh_to_v1"]

_NEVER = "0001-01-01"
_CONFIG = {
    "WorkingDir": "cwd",
    "WorkingDirectory": "cwd",
    "Cwd": "cwd",
    "CWD": "cwd",
    "Model": "model",
    "Mode": "mode",
}
_METRICS = {
    "TokensIn": "input_tokens",
    "InputTokens": "input_tokens",
    "TokensOut": "output_tokens",
    "OutputTokens": "output_tokens",
    "TotalTokens": "total_tokens",
}


def is_orbitmesh(raw: Raw) -> bool:
    """Whether *raw* is an OrbitMesh session."""
    return isinstance(raw.get("SessionID"), str) and isinstance(raw.get("Messages") or [], list)


def orbitmesh_to_v1(document: Raw) -> Raw:
    """Convert an OrbitMesh session to version 1. Other fields are kept under ``metadata.orbitmesh``."""
    config, metrics = take_object(document, "Config"), take_object(document, "Metrics")
    messages = [_lowered(each) for each in take_list(document, "Messages")]
    session: Raw = {
        "session_id": document.pop("SessionID"),
        "provider_type": document.pop("ProviderType", None) or "acp",
        **lifetime(_time(document.pop("CreatedAt", None)), _time(document.pop("UpdatedAt", None))),
        "config": _taken(config, _CONFIG),
        "messages": read_messages(messages),
        "metrics": _taken(metrics, _METRICS),
        "metadata": take_object(document, "Metadata"),
    }
    for name, ours in (("ACPSessionID", "acp_session_id"), ("CurrentTask", "current_task")):
        if value := document.pop(name, None):
            session[ours] = value
    document.pop("Version", None)
    rest = {**document, **({"Config": config} if config else {}), **({"Metrics": metrics} if metrics else {})}
    if rest:
        session["metadata"]["orbitmesh"] = rest
    return session


def _taken(fields: Raw, names: dict[str, str]) -> Raw:
    return {ours: value for name, ours in names.items() if (value := fields.pop(name, None)) not in (None, "")}


def _time(value: Any) -> Any:
    return None if isinstance(value, str) and value.startswith(_NEVER) else value


def _lowered(message: Any) -> Any:
    """A message and its blocks with ACP's names: ``ToolCallID`` is ``toolCallId``, ``Text`` is ``text``."""
    if not isinstance(message, dict):
        return message
    fields = {_name(key): _time(value) for key, value in message.items()}
    blocks = fields.get("content")
    if isinstance(blocks, list):
        fields["content"] = [
            {_name(key): value for key, value in block.items()} if isinstance(block, dict) else block
            for block in blocks
        ]
    return {key: value for key, value in fields.items() if value is not None}


def _name(key: str) -> str:
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[^A-Z]+", key)
    return "".join(word.lower() if n == 0 else word.capitalize() for n, word in enumerate(words))
