"""Encrypting a store while programs go on saving to it: what they were told is saved is in the encrypted store."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.errors import KeyMissing
from snapshot_plugin.operations.encrypting import encrypt_existing
from snapshot_plugin.store.filesystem import FilesystemStore
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
