"""Encrypt a plain store: write an encrypted copy beside it, compare the two, then replace the store.

The plain store stays unchanged until the encrypted copy was read back and compared. After an interruption, the same
call continues where it stopped:

1. ``NAME.encrypting`` is filled, session by session; sessions already copied are compared and kept.
2. ``NAME`` becomes ``NAME.plain``, and ``NAME.encrypting`` becomes ``NAME``. If a program began a new plain store
   in between, that becomes ``NAME.plain-2``.
3. What programs saved and deleted meanwhile is saved and deleted in the encrypted store, and the plain stores are
   removed. Data that the disk keeps of removed files is out of reach.
4. The search index and the operation log, which are elsewhere, are sealed. Only then is the mark of 1. removed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import chain, count
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.live.owners import sessions_of
from snapshot_plugin.live.place import held_alone, must_be_recovered
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.ids import new_id, short_id
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.marker import MARKER, is_store, read_marker
from snapshot_plugin.store.transfer import Copied
from snapshot_plugin.system.files import disk_errors, make_private_dir, replace_file, sync_dir

__all__ = ["Encrypted", "begin", "encrypt_existing", "is_begun"]

_SET_ASIDE: Final = ("quarantine", "live.aside-")
_DONE: Final = ".complete"

Step = Callable[[str], None]
Seal = Callable[[FilesystemStore], Awaitable[None]]


async def _nothing_else(_store: FilesystemStore) -> None: ...


class _Contents(NamedTuple):
    """What was copied of a store: the newest frame of each session, and the tokens of its trash."""

    sessions: dict[str, str]
    trash: list[str]


_NOTHING: Final = _Contents({}, [])


class Encrypted(NamedTuple):
    """The result of encrypting a store."""

    sessions: int
    trashed: int


async def encrypt_existing(
    place: Path,
    source: KeySource,
    *,
    label: str = "",
    discard_set_aside: bool = False,
    seal: Seal = _nothing_else,
    step: Step = lambda _name: None,
    clock: Clock = utc_now,
) -> Encrypted:
    """Encrypt the plain store at *place*.

    No plaintext is left, not even in trash and quarantine. *seal* is called with the encrypted store, to seal data
    kept about it elsewhere. After an interruption, call again.

    Raises:
        InvalidInput: it is encrypted already, or has quarantined files and *discard_set_aside* is false.
        SessionLocked, Conflict: a session is live, was changed meanwhile, or has to be recovered first.
        Damaged: a session cannot be read, so it cannot be encrypted.
    """
    draft, plain = _beside(place)
    is_moved = (draft / _DONE).exists() and plain.exists()
    if is_store(place) and not read_marker(place)["encrypted"] and not is_moved:
        await anyio.to_thread.run_sync(begin, place)
        aside = await anyio.to_thread.run_sync(_set_aside, place)
        if aside and not discard_set_aside:
            raise InvalidInput(
                f"{len(aside)} files in quarantine cannot be encrypted, for example {aside[0]}",
                hint="look at them, then add --discard-set-aside to leave them out",
            )
        done = await _fill(place, draft, source, label=label, step=step, clock=clock)
        replace_file(draft / _DONE, json.dumps(done).encode())
    if (draft / _DONE).exists():
        await anyio.to_thread.run_sync(_swap, place, draft, plain)
    if not is_store(place) or not (place / _DONE).exists():
        raise InvalidInput(f"the store {place} is encrypted already")
    copied = _Contents(*json.loads((place / _DONE).read_text()))
    for each in sorted(place.parent.glob(f"{plain.name}*")):
        await _fetch_late(each, place, source, copied if each == plain else None)
        await anyio.to_thread.run_sync(_remove, each)
    async with FilesystemStore(place, key=source, create=False, background=False) as store:
        await seal(store)
    await anyio.to_thread.run_sync((place / _DONE).unlink)
    return Encrypted(len(copied.sessions), len(copied.trash))


def is_begun(place: Path) -> bool:
    """Whether an earlier call began to encrypt the store at *place* and was interrupted."""
    return is_store(_beside(place)[0]) or (place / _DONE).exists()


def begin(place: Path) -> None:
    """Mark the plain store at *place* as being encrypted.

    The mark is the new store, still empty. It keeps the id of the plain store, because undo and other programs
    refer to that id.
    """
    draft = _beside(place)[0]
    if is_store(place) and not read_marker(place)["encrypted"] and not is_store(draft):
        with disk_errors(f"making {draft}"):
            make_private_dir(draft)
            marker = {**read_marker(place), "encrypted": True}
            replace_file(draft / MARKER, json.dumps(marker, sort_keys=True).encode() + b"\n")


def _beside(place: Path) -> tuple[Path, Path]:
    """Return where the encrypted store is made, and where the plain one is moved before it is removed."""
    return place.with_name(f"{place.name}.encrypting"), place.with_name(f"{place.name}.plain")


def _set_aside(place: Path) -> list[str]:
    found = [*place.glob("sessions/*/*"), *place.glob("trash/*/*")]
    return sorted(str(path.relative_to(place)) for path in found if path.name.startswith(_SET_ASIDE))


# Filling ----------------------------------------------------------------------------------------------------------


async def _fill(place: Path, draft: Path, source: KeySource, *, label: str, step: Step, clock: Clock) -> _Contents:
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(FilesystemStore(place, create=False, background=False))
        before = [meta.session_id for meta in await old.list()]
        there = set(sessions_of(place))
        unsaved = there.difference(before, map(short_id, before))  # died before their first snapshot
        for session_id in (*before, *unsaved):
            await stack.enter_async_context(held_alone(old, session_id, clock, to="encrypt"))
            await must_be_recovered(old, session_id)
        async with _opened(draft, source, label) as new:
            trash = await _fill_trash(old, new, step)
        async with _opened(draft, source, label) as new:
            sessions = {}
            for session_id in before:
                step(session_id)
                copies, present = await old.take_out(session_id), await _there(new, session_id)
                if not _is_same(copies, present):
                    await new.put_in(session_id, copies, instead_of=present)
                _same(copies, await new.take_out(session_id))
                sessions[session_id] = copies[-1].header.id
        if set(sessions_of(place)) != there:
            raise Conflict("sessions began or ended meanwhile", hint="stop what uses the store, and try again")
    return _Contents(sessions, trash)


def _opened(draft: Path, source: KeySource, label: str) -> FilesystemStore:
    store = FilesystemStore(draft, key=source, create=False, background=False)
    store.key_label = label
    return store


async def _fill_trash(
    old: FilesystemStore, new: FilesystemStore, step: Step, copied: _Contents | None = _NOTHING
) -> list[str]:
    """Fill the trash first, before the sessions take their ids: each is put in and then discarded.

    For *copied* see `_fetch_late`. Returns the tokens of the plain trash.
    """
    there = {entry.token: entry for entry in await new.trash()}
    tokens = []
    for entry in await old.trash():
        tokens.append(entry.token)
        if copied and entry.token in copied.trash:
            continue
        step(entry.session_id)
        copies, present = await old.trashed_copies(entry), await _there(new, entry.session_id)
        kept = there.get(entry.token) or (entry if copied or not present else entry.evolve(session_id=new_id()))
        if entry.token not in there:
            await new.put_in(kept.session_id, copies, instead_of=present if copied else ())
            await new.discard_as(kept)
        _same(copies, await new.trashed_copies(kept))
    return tokens


async def _there(store: FilesystemStore, session_id: str) -> Sequence[Copied]:
    try:
        return await store.take_out(session_id)
    except SnapshotNotFound:
        return ()


def _is_same(one: Sequence[Copied], other: Sequence[Copied]) -> bool:
    return [(copy.header.hi, copy.payload) for copy in one] == [(copy.header.hi, copy.payload) for copy in other]


def _same(copies: Sequence[Copied], written: Sequence[Copied]) -> None:
    if not _is_same(copies, written):
        session_id = copies[0].header.sid
        raise SnapshotCorrupted(f"session {session_id} did not read back as it was", session_id=session_id)


# Taking its place -------------------------------------------------------------------------------------------------


def _swap(place: Path, draft: Path, plain: Path) -> None:
    others = (plain.with_name(f"{plain.name}-{number}") for number in count(2))
    with disk_errors(f"putting {draft} in the place of {place}"):
        for aside in (each for each in chain([plain], others) if not each.exists()):
            if place.exists():
                place.rename(aside)
            try:
                draft.rename(place)
                break
            except OSError:
                if not place.exists():  # otherwise a program began a new plain store in between
                    raise
        sync_dir(place.parent)


async def _fetch_late(plain: Path, place: Path, source: KeySource, copied: _Contents | None) -> None:
    """Repeat what programs saved and deleted in a plain store since *copied*. They cannot change it any more.

    With None, it is another store than the one that was copied: a session whose id is taken gets a new one.
    """
    if is_store(plain):
        async with _opened(place, source, "") as new, FilesystemStore(plain, create=False, background=False) as old:
            await _fill_trash(old, new, lambda _name: None, copied)
            await anyio.to_thread.run_sync(_fetch_sessions, old, new, copied)


def _fetch_sessions(late: FilesystemStore, encrypted: FilesystemStore, copied: _Contents | None) -> None:
    old, new = late.sync, encrypted.sync
    for session_id in [meta.session_id for meta in old.list()]:
        with late.frames.exclusively(session_id):  # a save under way ends first
            copies = old.take_out(session_id)
        present, newest = new.tip(session_id), copies[-1].header.id
        if newest in (copied and copied.sessions.get(session_id), present and present.id):
            continue
        name = session_id if copied or not present else new_id()
        new.put_in(name, copies, instead_of=new.take_out(session_id) if copied and present else ())


def _remove(plain: Path) -> None:
    with disk_errors(f"removing {plain}"):
        if plain.exists():
            shutil.rmtree(plain)
            sync_dir(plain.parent)
