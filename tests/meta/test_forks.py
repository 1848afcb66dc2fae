"""Every lock that a forked child could find locked for ever is made by `snapshot_plugin.system.forks`."""

from __future__ import annotations

import re
from pathlib import Path

import snapshot_plugin

_ROOT = Path(snapshot_plugin.__file__).parent
_MADE = re.compile(r"threading\.(?:Lock|RLock|Condition|Event)\(\)|register_at_fork")
_PROCESSES_OF_THEIR_OWN = ("acp/hosts", "cli", "testing")
"""They run as a process and fork no Python, or are for tests."""


def test_locks_are_made_in_one_place() -> None:
    modules = {path.relative_to(_ROOT).as_posix(): path for path in _ROOT.rglob("*.py")}
    found = [
        name
        for name, path in modules.items()
        if not name.startswith(_PROCESSES_OF_THEIR_OWN) and _MADE.search(path.read_text("utf-8"))
    ]

    assert found == ["system/forks.py"]
