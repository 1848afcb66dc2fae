"""Imported by the fork server: what hosts and their stores load or build when they are first used."""

from __future__ import annotations

import anyio._core._sockets
import anyio._core._streams
import opentelemetry.metrics
import pydantic.plugin._loader

import snapshot_plugin.acp.hosts.chain
import snapshot_plugin.acp.hosts.proxy
import snapshot_plugin.cli.call
import snapshot_plugin.cli.commands.run
import snapshot_plugin.manager.config
import tests.acp.hosted
from snapshot_plugin.model.value import Value


def build(kind: type[Value]) -> None:
    """Build the validators of *kind* and of what is derived from it."""
    kind.model_rebuild()
    for derived in kind.__subclasses__():
        build(derived)


build(Value)
