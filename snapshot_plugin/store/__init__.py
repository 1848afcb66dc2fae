"""WHERE: the store contract, and the stores that keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot_plugin.errors import InvalidInput

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["open_store"]


def open_store(url: str) -> SnapshotStore:
    """The store a URL names: ``file:///path``, ``memory:``, or any scheme a package registers.

    A backend registers a function ``open(url) -> SnapshotStore`` under its scheme in the entry-point group
    ``snapshot_plugin.stores``.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 — 25 ms that a plain directory does not need

    scheme, colon, _ = url.partition(":")
    known = {entry.name: entry for entry in entry_points(group="snapshot_plugin.stores")}
    if not colon or scheme not in known:
        raise InvalidInput(
            f"no store is registered for the URL {url!r}", hint=f"schemes here: {', '.join(sorted(known))}"
        )
    store: SnapshotStore = known[scheme].load()(url)
    return store
