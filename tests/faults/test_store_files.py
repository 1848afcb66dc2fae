"""What stands where the store's own files and directories should be: links, other files, other settings, no key."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    Damaged,
    InvalidInput,
    InvalidSnapshotVersion,
    KeyMissing,
    SnapshotCorrupted,
    SnapshotError,
    StoreNotFound,
    StoreUnavailable,
    WrongKey,
)
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.store.base import StoredSnapshot
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    every_flip,
    filled,
    names_in,
    outcome,
    segments_of,
    store_at,
    version,
)
from tests.faults.test_bad_input import OPERATIONS
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio
OTHER_KEY = generate_key(random=lambda size: b"o" * size)


def contents(path: Path) -> dict[str, bytes]:
    """Every file under *path*."""
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# Links and other files ----------------------------------------------------------------------------------------


def _link_to_directory(place: Path, outside: Path) -> None:
    shutil.move(place, outside)
    place.symlink_to(outside)


def _link_to_nothing(place: Path, outside: Path) -> None:
    outside.mkdir()
    shutil.rmtree(place)
    place.symlink_to(outside / "missing")


def _file(place: Path, outside: Path) -> None:
    outside.mkdir()
    shutil.rmtree(place)
    place.write_bytes(b"not a directory")


@pytest.mark.requirement("STORE-FAULT-SYMLINK")
@pytest.mark.parametrize("put", [_link_to_directory, _link_to_nothing, _file])
async def test_non_directory_in_place_of_a_session_is_neither_followed_nor_changed(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "store"
    await filled(path)
    await filled(path, session_id="other")
    put(path / "sessions" / "session", tmp_path / "outside")
    before = contents(tmp_path)
    async with store_at(path) as store:
        for operation in OPERATIONS.values():
            with pytest.raises(StoreUnavailable):
                await operation(store, "session")
        with pytest.raises(StoreUnavailable):
            store.session_dir("session")
        assert {meta.session_id: meta.state for meta in await store.list()} == {"session": "damaged", "other": "ok"}
        report = await store.check(repair=True)
        assert [(finding.session_id, finding.kind) for finding in report.findings] == [("session", "misplaced")]
        assert await store.load("other", strict=True) == version(3, "other")
    after = contents(tmp_path)
    assert after.keys() - before.keys() <= {"store/sessions/other/.lock"}
    assert {name: after[name] for name in before} == before


@pytest.mark.requirement("STORE-FAULT-SYMLINK")
@pytest.mark.parametrize("put", [_link_to_directory, _link_to_nothing, _file])
async def test_session_replaced_between_two_saves_of_a_writer_is_neither_followed_nor_changed(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    path = tmp_path / "store"
    segment = await filled(path)
    async with store_at(path) as store:
        await store.load("session")
        await store.save(version(4))
        (segment.parent / ".lock").unlink()
        put(segment.parent, tmp_path / "outside")
        before = contents(tmp_path)
        with pytest.raises(StoreUnavailable):
            await store.save(version(5))
    assert contents(tmp_path) == before


@pytest.mark.requirement("STORE-FAULT-SYMLINK")
async def test_symlink_in_place_of_a_segment_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    segment = await filled(path)
    await filled(path, session_id="other")
    shutil.move(segment, tmp_path / "outside")
    segment.symlink_to(tmp_path / "outside")
    before = contents(tmp_path)
    async with store_at(path) as store:
        with pytest.raises(StoreUnavailable):
            await store.load("session")
        with pytest.raises(StoreUnavailable):
            await store.save(version(4))
        assert {meta.session_id: meta.state for meta in await store.list()} == {"session": "damaged", "other": "ok"}
        report = await store.check(repair=True)
        assert [(finding.session_id, finding.kind) for finding in report.findings] == [("session", "unreadable")]
    assert contents(tmp_path) == before
    assert segment.is_symlink()


async def test_symlink_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    segment = await filled(path)
    lock = segment.parent / ".lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "outside")
    async with store_at(path) as store:
        assert await store.load("session", strict=True) == version(3)
        with pytest.raises(StoreUnavailable):
            await store.save(version(4))
    assert names_in(tmp_path) == ["store"]


# STORE.json ---------------------------------------------------------------------------------------------------


def _settings(path: Path, **changes: Any) -> bytes:
    return json.dumps({**json.loads((path / "STORE.json").read_bytes()), **changes}).encode()


@pytest.mark.requirement("FORMAT-STORE-UNKNOWN", "STORE-READ-ONLY")
@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda _path: b"", SnapshotCorrupted),
        (lambda _path: b"{", SnapshotCorrupted),
        (lambda _path: b"[]", SnapshotCorrupted),
        (lambda _path: b"null", SnapshotCorrupted),
        (lambda _path: b"\xff\xfe", SnapshotCorrupted),
        (lambda _path: b'{"format": 1}', SnapshotCorrupted),
        (lambda path: _settings(path, encrypted="no"), SnapshotCorrupted),
        (lambda path: _settings(path, id=7), SnapshotCorrupted),
        (lambda path: _settings(path, format=2), InvalidSnapshotVersion),
        (lambda path: _settings(path, format="1"), InvalidSnapshotVersion),
    ],
    ids=["empty", "cut", "list", "null", "not text", "little", "no bool", "no id", "future", "format as text"],
)
async def test_a_damaged_or_newer_store_file_is_refused_and_nothing_is_touched(
    tmp_path: Path, key: str | None, make: Callable[[Path], bytes], error: type[SnapshotError]
) -> None:
    await filled(tmp_path, key)
    (tmp_path / "STORE.json").write_bytes(make(tmp_path))
    before = contents(tmp_path)
    for operation in OPERATIONS.values():
        with pytest.raises(error):
            await operation(store_at(tmp_path, key), "session")
    assert contents(tmp_path) == before


@PLAIN_AND_ENCRYPTED
def test_flipped_bit_in_the_store_file_is_refused_or_harmless(tmp_path: Path, key: str | None) -> None:
    anyio.run(filled, tmp_path, key)
    for _at in every_flip(tmp_path / "STORE.json"):
        try:
            store = store_at(tmp_path, key)
            store.prepare()
        except (Damaged, InvalidSnapshotVersion):
            continue
        result = outcome(store)
        assert isinstance(result, StoredSnapshot)
        assert (result.snapshot, result.skipped) == (version(3), ())


@pytest.mark.parametrize("key", [None, KEY], ids=["without key", "with key"])
async def test_plain_store_file_beside_keys_is_refused(tmp_path: Path, key: str | None) -> None:
    await filled(tmp_path, KEY)
    (tmp_path / "STORE.json").write_bytes(_settings(tmp_path, encrypted=False))
    await _assert_refused(tmp_path, key, SnapshotCorrupted)


async def test_encrypted_store_file_without_keys_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path)
    (tmp_path / "STORE.json").write_bytes(_settings(tmp_path, encrypted=True))
    await _assert_refused(tmp_path, None, KeyMissing)
    await _assert_refused(tmp_path, KEY, SnapshotCorrupted)


async def test_encrypted_store_without_its_keys_does_not_get_new_ones(tmp_path: Path) -> None:
    await filled(tmp_path, KEY)
    shutil.rmtree(tmp_path / "keys")
    await _assert_refused(tmp_path, KEY, SnapshotCorrupted)


async def test_encrypted_store_with_another_stores_id_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "mine", KEY)
    await filled(tmp_path / "other", KEY)
    shutil.copy(tmp_path / "other" / "STORE.json", tmp_path / "mine" / "STORE.json")
    await _assert_refused(tmp_path / "mine", KEY, Damaged)


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize("given", [None, KEY], ids=["without key", "with key"])
async def test_missing_store_file_is_refused_and_not_recreated(
    tmp_path: Path, key: str | None, given: str | None
) -> None:
    await filled(tmp_path, key)
    marker = (tmp_path / "STORE.json").read_bytes()
    (tmp_path / "STORE.json").unlink()
    await _assert_refused(tmp_path, given, SnapshotCorrupted)
    (tmp_path / "STORE.json").write_bytes(marker)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session", strict=True) == version(3)


# Keys ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS", "STORE-KEY-CLOSED")
@pytest.mark.parametrize(
    ("key", "given", "error"),
    [(KEY, OTHER_KEY, WrongKey), (KEY, None, KeyMissing), (KEY, "", KeyMissing), (None, KEY, InvalidInput)],
    ids=["wrong", "missing", "empty", "for a plain store"],
)
async def test_wrong_key_opens_and_changes_nothing(
    tmp_path: Path, key: str | None, given: str | None, error: type[SnapshotError]
) -> None:
    await filled(tmp_path, key)
    await _assert_refused(tmp_path, given, error)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session", strict=True) == version(3)


@pytest.mark.requirement("STORE-READ-ONLY")
async def test_reading_does_not_create_a_missing_store(tmp_path: Path) -> None:
    for operation in OPERATIONS.values():
        with pytest.raises(StoreNotFound):
            await operation(store_at(tmp_path / "store", create=False), "session")
    assert names_in(tmp_path) == []


async def _assert_refused(path: Path, key: str | None, error: type[SnapshotError]) -> None:
    before = contents(path)
    for operation in OPERATIONS.values():
        with pytest.raises(error):
            await operation(store_at(path, key), "session")
    with pytest.raises(error):
        await store_at(path, key).check(repair=True)
    assert contents(path) == before
    assert segments_of(path)
