"""The ``session.json`` of oneringai: ``{"agentId", "context": {"core": {"history", "toolCalls", …}, …}, …}``.

Its ``memory.json`` and the files under ``plugins/`` become ``memory`` and ``plugins`` of the same document, as in
that format's full state. An agent has one session, so the agent's id is the session id.
"""

from __future__ import annotations

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.exchange.foreign.oneringai_calls import read_calls, weave_calls
from snapshot_plugin.migrate.fields import Raw, as_object, keep, lifetime, take_list, take_object, utc_text
from snapshot_plugin.migrate.v1 import read_messages

__all__ = ["oneringai_to_v1"]

_CONFIG_SECTIONS = ("permissions", "tools")
_ENTRY_TIMES = ("createdAt", "lastAccessedAt")


def oneringai_to_v1(document: Raw) -> Raw:
    """Convert an oneringai session to version 1. Other fields are kept under ``metadata.oneringai``."""
    context = take_object(document, "context")
    core = take_object(context, "core")
    rest: Raw = {}
    metadata = take_object(document, "metadata")
    _gather(metadata, "plugins", _plugins(document, context))
    _gather(metadata, "memory", _memory(document, context, rest))
    session: Raw = {
        "session_id": document.pop("agentId"),
        "provider_type": "oneringai",
        **lifetime(document.pop("createdAt", None), document.pop("lastActiveAt", None)),
        "config": _config(context, core),
        "messages": weave_calls(
            read_messages(take_list(core, "history")), read_calls(take_list(core, "toolCalls"))
        ),
        "metrics": {},
        "metadata": metadata,
    }
    _gather(context, "core", core)
    _gather(rest, "context", context)
    _gather(metadata, "oneringai", {**document, **rest})
    return session


def _gather(holder: Raw, name: str, section: Raw) -> None:
    if section:
        keep(holder, name, section)


def _config(context: Raw, core: Raw) -> Raw:
    custom = take_object(context, "config")
    for name in _CONFIG_SECTIONS:
        _gather(custom, name, take_object(context, name))
    if "instructions" in core:
        keep(custom, "instructions", core.pop("instructions"))
    config: Raw = {"custom": custom} if custom else {}
    if "systemPrompt" in core:
        config["system_prompt"] = core.pop("systemPrompt")
    return config


def _plugins(*holders: Raw) -> Raw:
    plugins: Raw = {}
    for holder in holders:
        for name, state in take_object(holder, "plugins").items():
            keep(plugins, name, state)
    return plugins


def _memory(document: Raw, context: Raw, rest: Raw) -> Raw:
    """Return memory entries by key, so that each is stored separately; version and statistics stay in *rest*."""
    memory: Raw = {}
    for holder in (document, context):
        state = take_object(holder, "memory")
        for index, raw in enumerate(take_list(state, "entries")):
            _remember(memory, as_object(raw, f"memory.entries[{index}]"), f"memory.entries[{index}]")
        _gather(rest, "memory", state)
    return memory


def _remember(memory: Raw, entry: Raw, path: str) -> None:
    key = entry.pop("key", None)
    if not isinstance(key, str):
        raise InvalidSnapshot(f"{path} has no key")
    for name in _ENTRY_TIMES:
        if entry.get(name) is not None:
            entry[name] = utc_text(entry[name], f"{path}.{name}")
    keep(memory, key, entry)
