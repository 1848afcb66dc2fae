"""How many of our functions and modules a warm save runs through: hops that add nothing are noticed here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.testing import make_message, make_snapshot

FUNCTIONS, MODULES = 55, 17
"""What a warm save of one more message takes, from `store.sync.save` to the disk, without comprehensions.

Warm: the session was saved before, and its directory last changed long ago, so it need not be listed again.
"""


def test_a_warm_save_runs_through_few_functions(tmp_path: Path) -> None:
    seen: set[tuple[str, str]] = set()

    def note(frame: Any, event: str, _arg: object) -> None:
        name, function = frame.f_globals.get("__name__", ""), frame.f_code.co_qualname
        if event == "call" and name.startswith("snapshot_plugin.") and not function.endswith(">"):
            seen.add((name, function))

    with FilesystemStore(tmp_path, background=False).sync as store:
        snapshot = make_snapshot("hello")
        store.save(snapshot)
        (directory,) = (tmp_path / "sessions").iterdir()
        os.utime(directory, ns=(1, 1_600_000_000_000_000_001))
        snapshot = snapshot.append(make_message("one"))
        store.save(snapshot)
        longer = snapshot.append(make_message("two"))
        sys.setprofile(note)
        try:
            store.save(longer)
        finally:
            sys.setprofile(None)

    assert len(seen) <= FUNCTIONS, sorted(seen)
    assert len({module for module, _ in seen}) <= MODULES
