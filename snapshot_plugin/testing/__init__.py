"""The public testing kit: suites and tools for third-party backends and orchestrators.

`StoreContract` and `LiveContract` are pytest suites (``pip install pytest anyio trio``); the rest needs no test
framework. `docs/how-to/write-a-store-backend.md` shows them in use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from snapshot_plugin.errors import MissingExtra

if TYPE_CHECKING:
    from snapshot_plugin.testing.build import make_message, make_snapshot
    from snapshot_plugin.testing.clock import FixedClock
    from snapshot_plugin.testing.contract import StoreContract
    from snapshot_plugin.testing.faulty import Fault, FaultyCall, FaultyStore, every
    from snapshot_plugin.testing.live_contract import LiveContract

__all__ = [
    "Fault",
    "FaultyCall",
    "FaultyStore",
    "FixedClock",
    "LiveContract",
    "StoreContract",
    "every",
    "make_message",
    "make_snapshot",
]

_SUITES = {"StoreContract": "contract", "LiveContract": "live_contract"}
_HOME = {
    "FaultyCall": "faulty", "Fault": "faulty", "FaultyStore": "faulty", "every": "faulty",
    "FixedClock": "clock", "make_message": "build", "make_snapshot": "build",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that the scripted agent starts without loading the store."""
    if name in _SUITES:
        return getattr(_suite(f"{__name__}.{_SUITES[name]}"), name)
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _suite(module: str) -> Any:
    try:
        import pytest  # noqa: PLC0415 — only who runs the suite has it
    except ImportError as error:
        raise MissingExtra(
            "the contracts are pytest suites, and pytest is not installed", hint="pip install pytest trio"
        ) from error
    if module not in sys.modules:
        pytest.register_assert_rewrite(module)  # pytest then shows the compared values of a failing backend
    return import_module(module)
