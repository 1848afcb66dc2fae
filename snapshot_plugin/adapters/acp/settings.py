"""Mode and options of a session that came back: what has to be set again, and what the client is then told."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_plugin.acp.messages import Message
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["missing_settings", "with_setting"]


def missing_settings(record: SessionSnapshot, result: Message) -> Iterator[tuple[str, Message]]:
    """The requests (method, params without session) after which the agent is set as the record says it was.

    Args:
        record: the session as it was.
        result: what the agent answered when it brought the session back. What it does not offer is not asked for.
    """
    modes = result.get("modes") or {}
    if record.config.mode and modes and modes.get("currentModeId") != record.config.mode:
        yield "session/set_mode", {"modeId": record.config.mode}
    for option in result.get("configOptions") or []:
        wanted = record.config.options.get(str(option.get("id"))) if isinstance(option, dict) else None
        if wanted is not None and wanted != option.get("currentValue"):
            typed = {"type": "boolean"} if isinstance(wanted, bool) else {}
            yield "session/set_config_option", {"configId": option["id"], "value": wanted, **typed}


def with_setting(result: Message, params: Message, answer: Message) -> Message:
    """*result* as the agent would give it now that it has answered a request of `missing_settings`."""
    if "modeId" in params:
        return {**result, "modes": {**result["modes"], "currentModeId": params["modeId"]}}
    options = answer.get("configOptions")
    return {**result, "configOptions": options} if isinstance(options, list) else result
