"""Encrypting a store while programs go on saving to it: what they were told is saved is in the encrypted store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore, KeyMissing
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.operations.encrypting import encrypt_existing
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend

__all__ = ["anyio_backend"]

pytestmark = pytest.mark.anyio
KEY = Passphrase(generate_key())


async def test_saves_during_the_encryption_are_kept(tmp_path: Path) -> None:
    place = tmp_path / "store"
    writer = FilesystemStore(place, background=False).sync
    for name in "ab":
        writer.save(make_snapshot("first", session_id=name))

    def save_to_both(_session_id: str) -> None:
        for name in "ab":
            writer.save(writer.load(name).append(make_message("late")))

    await encrypt_existing(place, KEY, step=save_to_both)

    with pytest.raises(KeyMissing):
        writer.save(writer.load("a").append(make_message("too late")))
    with FilesystemStore(place, KEY, background=False).sync as store:
        for name in "ab":
            assert [message.text for message in store.load(name, strict=True).messages] == ["first", "late", "late"]
            assert [meta.seq for meta in store.history(name)] == [3, 2, 1]
        assert store.check().ok
    assert not list(tmp_path.glob("store.*"))  # noqa: ASYNC240 — a test


def at_rename(number: int, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Call *action* before the rename of that *number*: the first moves the plain store, the second the new one."""
    renames, rename = count(1), Path.rename

    def watched(self: Path, target: Path) -> Path:
        if self.name.startswith("store") and next(renames) == number:
            action()
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", watched)


def killed() -> None:
    raise KeyboardInterrupt


def store_with(place: Path, *names: str) -> FilesystemStore:
    store = FilesystemStore(place, background=False)
    for name in names:
        store.sync.save(make_snapshot(f"first of {name}", session_id=name))
    return store


@pytest.mark.parametrize("is_killed", [False, True])
async def test_program_that_begins_the_store_anew_between_the_renames_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    place = tmp_path / "store"
    store_with(place, "a", "b")
    if is_killed:
        at_rename(2, monkeypatch, killed)
        with pytest.raises(KeyboardInterrupt):
            await encrypt_existing(place, KEY)
        store_with(place, "new", "a").sync.delete("new")
    else:
        at_rename(2, monkeypatch, lambda: store_with(place, "new", "a").sync.delete("new"))
    await encrypt_existing(place, KEY)

    with FilesystemStore(place, KEY, background=False).sync as store:
        texts = sorted(store.load(meta.session_id).messages[0].text for meta in store.list())
        assert texts == ["first of a", "first of a", "first of b"]
        assert [entry.session_id for entry in store.trash()] == ["new"]
        assert store.check().ok
    assert not list(tmp_path.glob("store.*"))  # noqa: ASYNC240 — a test


@pytest.mark.parametrize("number", [1, 2])
async def test_session_deleted_at_the_end_of_the_encryption_stays_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    place = tmp_path / "store"
    writer = store_with(place, "a", "b")
    moved = place if number == 1 else tmp_path / "store.plain"
    at_rename(number, monkeypatch, lambda: FilesystemStore(moved, background=False).sync.delete("b"))
    await encrypt_existing(place, KEY)
    writer.close()

    with FilesystemStore(place, KEY, background=False).sync as store:
        assert [meta.session_id for meta in store.list()] == ["a"]
        (entry,) = store.trash()
        assert store.undelete(entry.token) == "b"
        assert store.load("b").messages[0].text == "first of b"
