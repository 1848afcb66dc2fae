"""The public testing kit: what a third-party backend or orchestrator tests itself with.

`StoreContract` is a pytest suite (``pip install pytest anyio trio``); everything else needs no test framework.
`docs/how-to/write-a-store-backend.md` shows both in use.
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
    from snapshot_plugin.testing.faulty import Call, Fault, FaultyStore, every

__all__ = [
    "Call",
    "Fault",
    "FaultyStore",
    "FixedClock",
    "StoreContract",
    "every",
    "make_message",
    "make_snapshot",
]

_SUITE = "snapshot_plugin.testing.contract"
_HOME = {
    "Call": "faulty", "Fault": "faulty", "FaultyStore": "faulty", "every": "faulty",
    "FixedClock": "clock", "make_message": "build", "make_snapshot": "build",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what is asked for: the scripted agent, which lives here too, starts without the store."""
    if name == "StoreContract":
        return _suite().StoreContract
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _suite() -> Any:
    try:
        import pytest  # noqa: PLC0415 — only who runs the suite has it
    except ImportError as error:
        raise MissingExtra(
            "the store contract is a pytest suite, and pytest is not installed", hint="pip install pytest trio"
        ) from error
    if _SUITE not in sys.modules:
        pytest.register_assert_rewrite(_SUITE)  # a failing backend sees values, not just "AssertionError"
    return import_module(_SUITE)
