"""Imported by the fork server: what commands, hosts and their stores load or build when they are first used."""

from __future__ import annotations

import contextlib
import pkgutil
from importlib import import_module

import snapshot_plugin
from snapshot_plugin.model.value import Value, _adapter

PACKAGES = (
    "acp",
    "cli",
    "codec",
    "exchange",
    "ipc",
    "live",
    "manager",
    "memory",
    "model",
    "operations",
    "search",
    "store",
    "web",
)
FOREIGN = (
    "acp.stdio",
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "anyio._core._sockets",
    "anyio._core._streams",
    "anyio._core._subprocesses",
    "anyio.from_thread",
    "cryptography.hazmat.primitives.ciphers.aead",
    "cryptography.hazmat.primitives.kdf.hkdf",
    "cryptography.hazmat.primitives.kdf.scrypt",
    "isal.isal_zlib",
    "opentelemetry.metrics",
    "prompt_toolkit.shortcuts",
    "pydantic.plugin._loader",
    "tomllib",
)


def build(kind: type[Value]) -> None:
    """Build the validators of *kind*, of its fields and of what is derived from it."""
    kind.model_rebuild()
    for name in kind.model_fields:
        _adapter(kind, name)
    for derived in kind.__subclasses__():
        build(derived)


def warm(name: str) -> None:
    """Import *name*. An environment without the extras that it needs does without it."""
    with contextlib.suppress(ImportError):
        import_module(name)


for package in PACKAGES:
    for module in pkgutil.walk_packages(
        [f"{snapshot_plugin.__path__[0]}/{package}"], f"snapshot_plugin.{package}.", onerror=lambda _name: None
    ):
        if not module.name.endswith("__main__"):
            warm(module.name)
for name in (*FOREIGN, "tests.acp.hosted", "tests.acp_sdk.killed"):
    warm(name)
build(Value)
