"""Encrypt a store that is not: everything in it is written anew beside it, compared, and takes its place.

The store that is there stays as it is until the encrypted one was read back whole. Interrupted anywhere, the same
call goes on where it stopped:

1. ``NAME.encrypting`` is filled, session by session; what is there already is compared and left.
2. ``NAME`` becomes ``NAME.plain``, and ``NAME.encrypting`` becomes ``NAME``.
3. ``NAME.plain`` is removed. What a disk keeps of removed files is beyond a program's reach.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread

from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import Conflict, InvalidInput, SnapshotCorrupted, SnapshotNotFound
from snapshot_plugin.live.exclusive import held_alone, must_be_recovered
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.store.files import disk_errors, make_private_dir, replace_file, sync_dir
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.store.marker import MARKER, is_store, read_marker
from snapshot_plugin.store.transfer import Copied

__all__ = ["Encrypted", "encrypt_existing"]

_SET_ASIDE: Final = ("quarantine", "live.aside-")
_DONE: Final = ".complete"

Step = Callable[[str], None]


class Encrypted(NamedTuple):
    """What was encrypted."""

    sessions: int
    trashed: int


async def encrypt_existing(
    place: Path,
    source: KeySource,
    *,
    label: str = "",
    discard_set_aside: bool = False,
    step: Step = lambda _name: None,
    clock: Clock = utc_now,
) -> Encrypted:
    """Encrypt the plain store at *place*. Nothing of it is left in the clear, trash and quarantine included.

    Raises:
        InvalidInput: it is encrypted already, or holds what a repair set aside, and *discard_set_aside* is false.
        SessionLocked, Conflict: a session is live, was changed meanwhile, or has to be recovered first.
        Damaged: a session cannot be read, so it could not be written anew.
    """
    draft, plain = place.with_name(f"{place.name}.encrypting"), place.with_name(f"{place.name}.plain")
    if is_store(place) and not read_marker(place)["encrypted"]:
        aside = await anyio.to_thread.run_sync(_set_aside, place)
        if aside and not discard_set_aside:
            raise InvalidInput(
                f"{len(aside)} files that repairs set aside cannot be encrypted, as {aside[0]}",
                hint="look at them, then say --discard-set-aside to leave them out",
            )
        await anyio.to_thread.run_sync(_begin, place, draft)
        done = await _fill(place, draft, source, label=label, step=step, clock=clock)
        replace_file(draft / _DONE, f"{done.sessions} {done.trashed}".encode())
    if (draft / _DONE).exists():
        await anyio.to_thread.run_sync(_swap, place, draft, plain)
    if not is_store(place) or not (place / _DONE).exists():
        raise InvalidInput(f"the store {place} is encrypted already")
    sessions, _, trashed = (place / _DONE).read_text().partition(" ")
    await anyio.to_thread.run_sync(_finish, place, plain)
    return Encrypted(int(sessions), int(trashed))


def _set_aside(place: Path) -> list[str]:
    found = [*place.glob("sessions/*/*"), *place.glob("trash/*/*")]
    return sorted(str(path.relative_to(place)) for path in found if path.name.startswith(_SET_ASIDE))


def _begin(place: Path, draft: Path) -> None:
    """The new store has the id of the old one: undo and the keys of other programs know it by that."""
    if not is_store(draft):
        with disk_errors(f"making {draft}"):
            make_private_dir(draft)
            marker = {**read_marker(place), "encrypted": True}
            replace_file(draft / MARKER, json.dumps(marker, sort_keys=True).encode() + b"\n")


# Filling ----------------------------------------------------------------------------------------------------------


async def _fill(place: Path, draft: Path, source: KeySource, *, label: str, step: Step, clock: Clock) -> Encrypted:
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(FilesystemStore(place, create=False, background=False))
        before = [meta.session_id for meta in await old.list()]
        for session_id in before:
            await stack.enter_async_context(held_alone(old, session_id, clock, to="encrypt"))
            await must_be_recovered(old, session_id)
        async with _opened(draft, source, label) as new:
            trashed = await _fill_trash(old, new, step)
        async with _opened(draft, source, label) as new:
            for session_id in before:
                step(session_id)
                copies, present = await old.take_out(session_id), await _there(new, session_id)
                if not _is_same(copies, present):
                    await new.put_in(session_id, copies, instead_of=present)
                _same(copies, await new.take_out(session_id))
        if [meta.session_id for meta in await old.list()] != before:
            raise Conflict("sessions began or ended meanwhile", hint="stop what uses the store, and try again")
    return Encrypted(len(before), trashed)


def _opened(draft: Path, source: KeySource, label: str) -> FilesystemStore:
    store = FilesystemStore(draft, key=source, create=False, background=False)
    store.key_label = label
    return store


async def _fill_trash(old: FilesystemStore, new: FilesystemStore, step: Step) -> int:
    """First, while no session is in its way: each is put in its place and then discarded as it was."""
    trashed = await old.trash()
    there = {entry.token for entry in await new.trash()}
    for entry in trashed:
        step(entry.session_id)
        copies = await old.trashed_copies(entry)
        if entry.token not in there:
            await new.put_in(entry.session_id, copies, instead_of=await _there(new, entry.session_id))
            await new.discard_as(entry)
        _same(copies, await new.trashed_copies(entry))
    return len(trashed)


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
    with disk_errors(f"putting {draft} in the place of {place}"):
        if is_store(place):
            place.rename(plain)
        draft.rename(place)
        sync_dir(place.parent)


def _finish(place: Path, plain: Path) -> None:
    with disk_errors(f"removing {plain}"):
        if plain.exists():
            shutil.rmtree(plain)
        (place / _DONE).unlink()
        sync_dir(place.parent)
