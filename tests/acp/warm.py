"""Imported by the fork server: what hosts and their stores load or build when they are first used."""

from __future__ import annotations

from importlib import import_module

from snapshot_plugin.model.value import Value

for name in (
    "anyio._core._sockets",
    "anyio._core._streams",
    "opentelemetry.metrics",
    "pydantic.plugin._loader",
    "snapshot_plugin.acp.hosts.chain",
    "snapshot_plugin.acp.hosts.proxy",
    "snapshot_plugin.cli.call",
    "snapshot_plugin.cli.commands.run",
    "snapshot_plugin.manager.config",
    "tests.acp.hosted",
):
    import_module(name)


def build(kind: type[Value]) -> None:
    """Build the validators of *kind* and of what is derived from it."""
    kind.model_rebuild()
    for derived in kind.__subclasses__():
        build(derived)


build(Value)
