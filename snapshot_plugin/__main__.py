"""``asnap`` and ``python -m snapshot_plugin``."""

from __future__ import annotations

from snapshot_plugin.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
