"""Small state kept between commands in the state directory. Losing it does no harm."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from snapshot_plugin.cli.call import Call

__all__ = ["UNRECORDED", "recall", "remember"]

UNRECORDED = "unrecorded"
"""Connections that ``asnap run`` could not record, by the agent's command: why, and when; for ``asnap doctor``."""


def recall(call: Call, name: str) -> dict[str, Any]:
    """Return what was stored under *name*; empty if it cannot be read."""
    try:
        known = json.loads(_file(call, name).read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def remember(call: Call, name: str, known: Mapping[str, Any]) -> None:
    """Store *known* under *name* for the next command. A disk error is ignored."""
    from snapshot_plugin.system.files import make_private_dir, replace_file

    file = _file(call, name)
    with contextlib.suppress(OSError):
        make_private_dir(file.parent)
        replace_file(file, json.dumps(known).encode())


def _file(call: Call, name: str) -> Path:
    from snapshot_plugin.manager.places import user_state_dir

    return user_state_dir(call.environ) / f"{name}.json"
