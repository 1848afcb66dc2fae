"""Start ourselves and other programs: nothing is imported from the current directory, and no key is passed on."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from snapshot_plugin.codec.sources import without_keys

__all__ = ["keys_hidden", "our_module"]


def our_module(name: str, *arguments: str) -> list[str]:
    """The command line that runs a module of this package. ``-P``: the current directory is no place for code."""
    return [sys.executable, "-P", "-m", name, *arguments]


@contextlib.contextmanager
def keys_hidden() -> Iterator[None]:
    """Programs started in this block do not get the keys of the store from our environment."""
    kept = without_keys(os.environ)
    hidden = {name: value for name, value in os.environ.items() if name not in kept}
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)
