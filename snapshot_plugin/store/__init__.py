"""Stores: the contract of a snapshot store, and the stores that keep it. `open_store` opens a path or a URL.

====================  =======================================================================================
`base`                `SnapshotStore`: every promise, in its docstring
`engine`, `sync`      `LogStore`: the contract over any log, for event loops and for threads; `Turns`
`core`                save, load, list, forget, delete as synchronous functions; `views`: reading parts
`arguments`           checks of what callers pass
`log`                 `FrameLog`: the port to whatever holds the frames
`writer`              what is remembered of a session, so that a save costs only what changed
`walk`                the one walk over frames: finding a snapshot, and going through all of them
`check`               verifying and repairing; `salvage`: rebuilding; `rewrite`: packing and re-encrypting
`trash`, `small_files` deleted sessions, copies, quarantine; keys and operation lines: once, for all backends
`filesystem`          `FilesystemStore`; `segments`, `directories`: its files, locks and areas
`s3`                  buckets; `objects`, `area_objects`, `ledger`, `bucket`: compare-and-swap; `archive`: copies
`memory`, `postgres`  `MemoryStore`; `PostgresStore`
`keyed`, `keychain`   encrypted stores, and the secrets that open them
`hop`                 the way to a worker thread and back
====================  =======================================================================================

Promises: durable on return; a stale save is refused; reading takes no lock and changes nothing; damage is reported,
never hidden.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from snapshot_plugin.errors import InvalidInput, KeyMissing

if TYPE_CHECKING:
    from snapshot_plugin.codec.sources import KeySource
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["check_place", "is_url", "open_store", "require_encryption"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|$)")
"""Two letters at least: one is a drive."""


def open_store(
    place: str | os.PathLike[str],
    *,
    key: str | KeySource | None = None,
    encryption: bool = False,
    create: bool = True,
    background: bool = True,
    environ: Mapping[str, str] | None = None,
) -> SnapshotStore:
    """The store at *place*: a directory, or a URL such as ``file:///path``, ``s3://bucket/prefix`` or ``memory:``.

    Other schemes are added by packages that register a function ``open(url, *, key, create, background)`` under
    the scheme in the entry-point group ``snapshot_plugin.stores``. Keywords that it does not take are left out.

    Args:
        place: a directory or a URL.
        key: opens an encrypted store, and encrypts a new one; default: the key that *environ* names.
        encryption: refuse to keep sessions in the clear.
        create: whether a missing store is made or refused with `StoreNotFound`.
        background: compress finished segments better in a background thread.
        environ: default: the process's own environment.

    Raises:
        KeyMissing: *encryption* is set, and there is no key.
        InvalidInput: *place* is no path; no store is registered for the URL; or it cannot be encrypted, and a key
            was given.
    """
    check_place(place)
    from snapshot_plugin.codec.sources import source_from_environment  # noqa: PLC0415 — most imports need no store

    source = key if key is not None else source_from_environment(os.environ if environ is None else environ)
    if encryption and source is None:
        raise KeyMissing(f"the settings ask for encryption, and there is no key for {os.fspath(place)}")
    options: dict[str, Any] = {"key": source, "create": create, "background": background}
    if isinstance(place, str) and is_url(place):
        store = _opened(place, _opener(place), options)
    else:
        from snapshot_plugin.store.filesystem import FilesystemStore  # noqa: PLC0415 — as above

        store = FilesystemStore(place, **options)
    if encryption:
        require_encryption(store)
    return store


def require_encryption(store: SnapshotStore) -> None:
    """Raise `KeyMissing` unless *store* encrypts what it is given.

    A store that was given a key is encrypted or refuses to open, so nothing has to be read to check this.
    """
    if not getattr(store, "has_key", False):
        raise KeyMissing(
            f"the settings ask for encryption, and this {type(store).__name__} was opened without a key"
        )


def is_url(place: str) -> bool:
    """Whether *place* names a store by URL: it is ``scheme:`` or begins with ``scheme:/``, which no path does."""
    return "://" in place or _SCHEME.match(place) is not None


def check_place(place: object) -> None:
    """Raise `InvalidInput` unless *place* can be a path or a URL."""
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else None
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(text, str) and text and b"\0" not in os.fsencode(text):
            return
    raise InvalidInput(
        f"{place!r} is not the place of a store", hint="name a directory or a URL such as file:///path"
    )


def _opener(url: str) -> Callable[..., SnapshotStore]:
    from importlib.metadata import entry_points  # noqa: PLC0415 — 25 ms that a plain directory does not need

    scheme = url.partition(":")[0]
    known = {entry.name: entry for entry in entry_points(group="snapshot_plugin.stores")}
    if scheme not in known:
        raise InvalidInput(
            f"no store is registered for the URL {url!r}", hint=f"schemes here: {', '.join(sorted(known))}"
        )
    opener: Callable[..., SnapshotStore] = known[scheme].load()
    return opener


def _opened(url: str, opener: Callable[..., SnapshotStore], options: dict[str, Any]) -> SnapshotStore:
    import inspect  # noqa: PLC0415 — for URLs alone

    parameters = inspect.signature(opener).parameters.values()
    names = {each.name for each in parameters}
    takes_all = any(each.kind is each.VAR_KEYWORD for each in parameters)
    if options["key"] is not None and "key" not in names and not takes_all:
        raise InvalidInput(
            f"the store {url} cannot be encrypted, and a key was given", hint="open it without a key"
        )
    return opener(url, **{name: value for name, value in options.items() if takes_all or name in names})
