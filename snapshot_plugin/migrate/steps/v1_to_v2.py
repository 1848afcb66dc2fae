"""Version 1 to 2: one list of blocks per message; other fields get the names of the model."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.migrate.fields import Raw, keep, lifetime, take_list, take_object
from snapshot_plugin.migrate.steps.messages import read_messages
from snapshot_plugin.migrate.steps.v1_config import config_to_v2
from snapshot_plugin.migrate.steps.v1_tool_calls import with_inline_calls

__all__ = ["v1_to_v2"]

_METRIC_NAMES = {"tokens_in": "input_tokens", "tokens_out": "output_tokens", "request_count": "turns"}


def v1_to_v2(document: Raw) -> Raw:
    """Migrate a document from version 1 to 2. Unknown fields stay where they are."""
    document.update(lifetime(document.get("created_at"), document.get("updated_at")))
    document["config"] = config_to_v2(take_object(document, "config"))
    document["metrics"] = _metrics(take_object(document, "metrics"))
    messages = read_messages(take_list(document, "messages"))
    document["messages"] = [with_inline_calls(message, index) for index, message in enumerate(messages)]
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
