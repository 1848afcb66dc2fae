"""``STORE.json``: what a store on disk says of itself, and needs no key to say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted

__all__ = ["FORMAT", "MARKER", "is_store", "read_marker"]

MARKER = "STORE.json"
FORMAT = 1
"""The version of the directory layout and of frames (docs/reference/format.md)."""


def is_store(path: Path) -> bool:
    """Whether there is a store at *path*, readable or not."""
    return (path / MARKER).exists()


def read_marker(path: Path) -> dict[str, Any]:
    """What the store at *path* says of itself: ``format``, ``id``, ``encrypted``, ``created``. Needs no key."""
    marker = path / MARKER
    try:
        data = json.loads(marker.read_bytes())
        format_, known = data["format"], isinstance(data["id"], str) and isinstance(data["encrypted"], bool)
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotCorrupted(
            f"{marker} is damaged", hint="restore it from a backup; frames are untouched"
        ) from error
    if format_ != FORMAT:
        raise InvalidSnapshotVersion(f"the store {marker.parent} has format {format_}; this release reads {FORMAT}")
    if not known:
        raise SnapshotCorrupted(f"{marker} is damaged", hint="restore it from a backup; frames are untouched")
    return dict(data)
