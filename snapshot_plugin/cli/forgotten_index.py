"""The search index forgets with the store: what is gone for good must not live on there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot_plugin.cli.call import Call

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["forget_index"]


async def forget_index(call: Call, store: SnapshotStore) -> None:
    """Throw the index away, if there is one; the next search makes it again."""
    import anyio

    from snapshot_plugin.manager.places import user_cache_dir

    cache = user_cache_dir(call.environ)
    if [path async for path in anyio.Path(cache).glob("search-*")]:
        from snapshot_plugin.search.index import opened_index

        name: str = getattr(store, "store_id", "") or call.config.storage_path
        async with opened_index(store, cache, name=name, rebuild=True):
            pass
