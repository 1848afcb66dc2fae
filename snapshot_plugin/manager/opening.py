"""Open the store that settings, a path or a URL name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.store import check_place, open_store, require_encryption
from snapshot_plugin.store.arguments import check_kind
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["open_configured_store", "open_place"]


def open_configured_store(
    config: SnapshotConfig,
    *,
    key: str | KeySource | None = None,
    environ: Mapping[str, str] | None = None,
    create: bool = True,
    background: bool = True,
) -> SnapshotStore:
    """The store at ``config.storage_path``, encrypted if ``config.encryption`` asks for it; see `open_store`."""
    return open_store(
        config.storage_path,
        key=key,
        encryption=config.encryption,
        create=create,
        background=background,
        environ=environ,
    )


def open_place(
    store: SnapshotStore | str | PathLike[str] | None, config: SnapshotConfig | None = None
) -> tuple[SnapshotStore, bool]:
    """The store, and True if it was opened here and the caller has to close it.

    *store* is a store, a directory or a URL; None is ``storage_path`` of the settings, which are *config* or else
    the user's own.

    Raises:
        KeyMissing: the settings ask for encryption, and the store has no key.
        InvalidInput: *store* is none of these, or *config* is something else.
    """
    check_kind("config", config, SnapshotConfig, optional=True)
    if store is not None and not isinstance(store, str | PathLike):
        if not hasattr(store, "capabilities"):
            check_place(store)
        if config is not None and config.encryption:
            require_encryption(store)
        return store, False
    if config is None:
        config = SnapshotConfig.load()
    if store is not None:
        config = replace(config, storage_path=fspath(store))
    return open_configured_store(config), True
