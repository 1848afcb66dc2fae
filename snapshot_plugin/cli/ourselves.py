"""Start our own and other programs: no imports from the current directory, no keys passed on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from snapshot_plugin.system.processes import without_keys

__all__ = ["keys_hidden", "our_module"]


def our_module(name: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this package; ``-P`` ignores the current directory."""
    return [sys.executable, "-P", "-m", name, *arguments]


@contextlib.contextmanager
def keys_hidden() -> Iterator[None]:
    """Hide the store's keys from programs started in this block."""
    kept = without_keys(os.environ)
    hidden = {name: value for name, value in os.environ.items() if name not in kept}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
