"""``STORE.json``, the store's marker. It can be read without a key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snapshot_plugin.errors import InvalidSnapshotVersion, SnapshotCorrupted

__all__ = ["FORMAT", "MARKER", "is_store", "parse_marker", "read_marker", "without_marker"]

MARKER = "STORE.json"
FORMAT = 1
"""The version of the directory layout and of frames (docs/reference/format.md)."""
_FROM_A_BACKUP = "restore it from a backup; frames are untouched"


def is_store(path: Path) -> bool:
    """Whether there is a store at *path*, readable or not."""
    return (path / MARKER).exists()


def read_marker(path: Path) -> dict[str, Any]:
    """The marker of the store at *path*: ``format``, ``id``, ``encrypted``, ``created``. Needs no key."""
    return parse_marker((path / MARKER).read_bytes(), str(path))


def parse_marker(data: bytes, place: str) -> dict[str, Any]:
    """The same from the marker's bytes; *place* is for the errors."""
    damaged = SnapshotCorrupted(f"{MARKER} of {place} is damaged", hint=_FROM_A_BACKUP)
    try:
        marker = json.loads(data)
        format_, known = marker["format"], isinstance(marker["id"], str) and isinstance(marker["encrypted"], bool)
    except (ValueError, KeyError, TypeError) as error:
        raise damaged from error
    if format_ != FORMAT:
        raise InvalidSnapshotVersion(f"the store {place} has format {format_}; this release reads {FORMAT}")
    if not known:
        raise damaged
    return dict(marker)


def without_marker(place: str) -> SnapshotCorrupted:
    """The error for a place that holds sessions or keys but no marker."""
    return SnapshotCorrupted(f"{place} holds a store without its {MARKER}", hint=_FROM_A_BACKUP)
