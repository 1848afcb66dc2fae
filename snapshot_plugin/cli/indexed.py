"""The search index as commands use it: in the user's cache, with a bar while it is brought up to date."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.text import cut, plain

if TYPE_CHECKING:
    from snapshot_plugin.search.find import Found
    from snapshot_plugin.search.index import SearchIndex, Step
    from snapshot_plugin.search.ready import Choose
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["ask_ready", "indexing", "search_index", "tell_unreadable"]

T = TypeVar("T")
_NAMED = 3
_KEYS = ("ASNAP_KEY", "ASNAP_PASSPHRASE")


def ask_ready(call: Call, choose: Choose[T]) -> tuple[Found, T] | None:
    """What the index answers as it is, without opening the store; None if the store has to be opened for it."""
    from snapshot_plugin.manager.places import user_cache_dir
    from snapshot_plugin.search.ready import answered

    where = call.config.storage_path
    has_key = any(name.startswith(_KEYS) for name in call.environ)
    if "://" in where or has_key or call.config.encryption:  # the store is opened to refuse what does not fit
        return None
    return answered(where, user_cache_dir(call.environ), choose)


@asynccontextmanager
async def search_index(call: Call, store: SnapshotStore, *, rebuild: bool = False) -> AsyncIterator[SearchIndex]:
    """The index of *store*, in the user's cache."""
    from snapshot_plugin.manager.places import user_cache_dir
    from snapshot_plugin.search.index import opened_index

    cache, name = user_cache_dir(call.environ), _name(call, store)
    async with opened_index(store, cache, name=name, rebuild=rebuild) as index:
        yield index


def indexing(call: Call, total: int) -> AbstractContextManager[Step]:
    """A bar for the sessions that have to be read."""
    from snapshot_plugin.cli.progress import progress

    return progress(call.out, "indexing", total)


def _name(call: Call, store: SnapshotStore) -> str:
    """What tells this store from others: its id where it has one, or else where it is."""
    from snapshot_plugin.store.filesystem import FilesystemStore
    from snapshot_plugin.store.marker import read_marker

    return str(read_marker(store.path)["id"]) if isinstance(store, FilesystemStore) else call.config.storage_path


def tell_unreadable(call: Call, unreadable: Sequence[str]) -> None:
    """Say which sessions could not be looked into; being quiet about it would be a lie."""
    if unreadable:
        names = ", ".join(cut(plain(name), 40) for name in unreadable[:_NAMED])
        more = " …" if len(unreadable) > _NAMED else ""
        call.out.warn(f"{len(unreadable)} cannot be read: {names}{more}; see asnap check", fg="yellow")
