"""The session's settings, from version 1 to 2."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.migrate.fields import Raw, as_object, keep, take_list, take_object

__all__ = ["config_to_v2"]

_CUSTOM_FIELDS: dict[str, type] = {
    "mode": str,
    "model": str,
    "instructions": str,
    "permissions": dict,
    "tools": dict,
}
"""Entries of ``custom`` in version 1 that are fields in version 2."""

_SECRET_BEARING = ("env", "headers", "args")


def config_to_v2(config: Raw) -> Raw:
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
