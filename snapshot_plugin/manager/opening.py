"""Opening the store that settings, a path or a URL name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from snapshot_plugin.codec.sources import KeySource, source_from_environment
from snapshot_plugin.errors import KeyMissing
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.store import open_store
from snapshot_plugin.store.base import SnapshotStore
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["open_configured_store", "open_place"]


def open_configured_store(
    config: SnapshotConfig, *, key: str | KeySource | None = None, environ: Mapping[str, str] | None = None
) -> SnapshotStore:
    """The store at ``config.storage_path``. The key is *key*, or else what the environment names.

    Raises:
        KeyMissing: ``config.encryption`` asks for a key and there is none.
    """
    source = key if key is not None else source_from_environment(os.environ if environ is None else environ)
    if config.encryption and source is None:
        raise KeyMissing(f"the settings ask for encryption, and there is no key for {config.storage_path}")
    if "://" in config.storage_path:
        return open_store(config.storage_path)
    return FilesystemStore(config.storage_path, key=source)


def open_place(store: SnapshotStore | str | Path | None) -> tuple[SnapshotStore, bool]:
    """The store that is meant, and whether it was opened here and is to be closed by the caller."""
    if store is None:
        return open_configured_store(SnapshotConfig.load(project_dir=None)), True
    if isinstance(store, str | Path):
        return open_configured_store(SnapshotConfig(storage_path=str(store))), True
    return store, False
