from __future__ import annotations

import hashlib
import json
import re
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    InvalidSnapshotVersion,
    LimitExceeded,
    RetentionPolicy,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotNotFound,
)
from snapshot_plugin.codec.frame import MAGIC, encode_frame
from snapshot_plugin.exchange.bundle import is_bundle, pack, unpack
from snapshot_plugin.exchange.carrying import bring, collect, renamed
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.testing import make_snapshot
from tests.exchange.sessions import fill, memory_store
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.tries import tries

pytestmark = pytest.mark.anyio
SESSION = "Fix/auth"


async def bundle_of(store: LogStore, *, at: int | None = None) -> bytes:
    return pack(await collect(store, SESSION, at=at))


@pytest.mark.parametrize(
    ("key", "other_key"), [(None, None), (None, "b" * 20), ("a" * 20, None), ("a" * 20, "b" * 20)]
)
async def test_imported_bundle_exports_byte_for_byte(
    tmp_path: Path, key: str | None, other_key: str | None
) -> None:
    async with (
        FilesystemStore(tmp_path / "a", key=key) as store,
        FilesystemStore(tmp_path / "b", key=other_key) as other,
    ):
        await fill(store, rounds=5)
        await store.forget(SESSION, RetentionPolicy(keep_last=2, keep_tags=("start",)))
        await store.compact(SESSION)
        bundle = await bundle_of(store)
        await bring(other, unpack(bundle))

        assert await bundle_of(other) == bundle
        assert await bundle_of(store) == bundle
        assert (await other.check()).findings == ()
        numbers = [meta.seq for meta in await store.history(SESSION)]
        assert [meta.seq for meta in await other.history(SESSION)] == numbers != [1, 2, 3]
        for seq in numbers:
            assert await other.load(SESSION, at=seq) == await store.load(SESSION, at=seq)
        assert (await other.load(f"{SESSION}+memory")).memory == {"k": "v"}


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@tries(25)
@given(
    texts=st.lists(st.text(max_size=20), max_size=4),
    steps=st.lists(st.dictionaries(st.text(max_size=5), _json, max_size=3), min_size=1, max_size=4),
)
def test_any_session_round_trips_through_a_bundle(texts: list[str], steps: list[dict[str, Any]]) -> None:
    async def round_trip() -> None:
        async with memory_store() as store, memory_store() as other:
            for step in steps:
                await store.save(make_snapshot(*texts, session_id=SESSION, metadata=step, memory=step), tags=["t"])
            bundle = await bundle_of(store)
            await bring(other, unpack(bundle))
            assert await bundle_of(other) == bundle

    anyio.run(round_trip)


async def test_a_bundle_can_be_read_with_gzip_alone() -> None:
    async with memory_store() as store:
        await fill(store)
        rest, lines = await bundle_of(store), []
        while rest:
            member = zlib.decompressobj(31)
            lines += [json.loads(line) for line in member.decompress(rest).splitlines()]
            assert member.eof
            rest = member.unused_data

        assert any(line.get("message", {}).get("content", [{}])[0].get("text") == "round 2" for line in lines)


async def test_bundle_compression_does_not_depend_on_installed_libraries() -> None:
    async with memory_store() as store:
        await fill(store, memory=False)
        (copies,) = await collect(store, SESSION)
    assert pack([copies]).endswith(encode_frame(*copies[-1], None, effort="best"))


async def test_a_bundle_can_end_at_an_earlier_snapshot() -> None:
    async with memory_store() as store, memory_store() as other:
        await fill(store)
        await bring(other, unpack(await bundle_of(store, at=2)))

        assert [meta.seq for meta in await other.history(SESSION)] == [2, 1]
        with pytest.raises(SnapshotNotFound):
            await bundle_of(store, at=9)


async def test_every_changed_byte_is_detected() -> None:
    async with memory_store() as store:
        await fill(store, memory=False, rounds=1)
        bundle = await bundle_of(store)
    for at in range(len(bundle)):
        changed = bytearray(bundle)
        changed[at] ^= 0x20
        with pytest.raises((SnapshotCorrupted, InvalidInput, InvalidSnapshotVersion)):
            unpack(bytes(changed))


async def test_every_truncation_is_detected() -> None:
    async with memory_store() as store:
        await fill(store, memory=False, rounds=1)
        bundle = await bundle_of(store)
    for length in range(len(bundle)):
        with pytest.raises((SnapshotCorrupted, InvalidInput)):
            unpack(bundle[:length])
    with pytest.raises(SnapshotCorrupted):
        unpack(bundle + b"\0")
    with pytest.raises(SnapshotCorrupted):
        unpack(bundle + bundle)


def head(**about: Any) -> bytes:
    text = json.dumps(about, separators=(",", ":")).encode()
    return MAGIC + struct.pack("<H2sH", len(text) + 4, b"AB", len(text)) + text + b"\x03\x00" + bytes(8)


@pytest.mark.parametrize("version", [2, 99, "1", None, 1.0])
def test_bundle_of_another_version_is_refused_before_it_is_read(version: Any) -> None:
    with pytest.raises(InvalidSnapshotVersion):
        unpack(head(bundle=version, bytes=0, frames=0, sum="0" * 64))


@pytest.mark.parametrize(
    "data", [b"", b"\x1f\x8b", b"PK\x03\x04", b"{}", bytes(range(256)), zlib.compress(b"x"), MAGIC + b"\0\0SN\0\0"]
)
def test_file_that_is_not_a_bundle_is_named_as_such(data: bytes) -> None:
    assert not is_bundle(data)
    with pytest.raises(InvalidInput):
        unpack(data)


async def test_decompression_bomb_is_not_inflated() -> None:
    async with memory_store() as store:
        await store.save(make_snapshot("0" * 8_000_000, session_id=SESSION))
        bomb = await bundle_of(store)
    assert len(bomb) < 100_000
    with pytest.raises(LimitExceeded):
        unpack(bomb, limit=5_000_000)


def resummed(bundle: bytes) -> bytes:
    """The bundle with the checksum it should have: what an attacker does who has read the format."""
    blank = re.sub(rb'"sum":"[0-9a-f]{64}"', b'"sum":"' + b"0" * 64 + b'"', bundle, count=1)
    return blank.replace(b"0" * 64, hashlib.sha256(blank).hexdigest().encode(), 1)


async def test_bundle_with_a_false_length_is_refused() -> None:
    async with memory_store() as store:
        await fill(store, memory=False)
        bundle = await bundle_of(store)
    declared = bundle[-4:]
    for lie in (b"\xff\xff\xff\x0f", b"\0\0\0\0", bytes([declared[0] ^ 1]) + declared[1:]):
        with pytest.raises(SnapshotError):
            unpack(resummed(bundle[:-4] + lie))


@pytest.mark.parametrize("field", ["bytes", "frames"])
async def test_head_that_contradicts_the_content_is_refused(field: str) -> None:
    async with memory_store() as store:
        await fill(store, memory=False)
        bundle = await bundle_of(store)
    length = int.from_bytes(bundle[14:16], "little")
    about = json.loads(bundle[16 : 16 + length])
    for wrong in (about[field] + 1, about[field] - 1, None):
        forged = head(**{**about, field: wrong})
        with pytest.raises(SnapshotCorrupted):
            unpack(resummed(forged + bundle[16 + length + 10 :]))


async def test_encrypted_snapshots_are_not_accepted_as_a_bundle(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, key="k" * 20) as store:
        await store.save(make_snapshot("x", session_id=SESSION))
    (file,) = [path async for path in anyio.Path(tmp_path).glob("sessions/*/*.snap.gz")]
    body = await file.read_bytes()
    forged = resummed(head(bundle=1, bytes=len(body), frames=1, sum="0" * 64) + body)
    with pytest.raises(SnapshotError):
        unpack(forged)


async def test_frames_of_two_sessions_may_not_be_mixed() -> None:
    async with memory_store() as store:
        await fill(store, "a", memory=False)
        await fill(store, "b", memory=False)
        one, other = await store.take_out("a"), await store.take_out("b")
    mixed = pack([one[:1], other, one[1:]])
    with pytest.raises(SnapshotCorrupted):
        unpack(mixed)


GOLDEN = Path(__file__).parents[1] / "golden/store/format-1"


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
async def test_sessions_that_old_releases_wrote_round_trip(tmp_path: Path, kind: str) -> None:
    await anyio.to_thread.run_sync(shutil.copytree, GOLDEN / kind, tmp_path / "old")
    key = (await anyio.Path(GOLDEN / "key.txt").read_text()).strip() if kind == "encrypted" else None
    async with FilesystemStore(tmp_path / "old", key=key) as old, FilesystemStore(tmp_path / "new") as new:
        for meta in await old.list():
            bundle = pack(await collect(old, meta.session_id))
            await bring(new, unpack(bundle))

            assert pack(await collect(new, meta.session_id)) == bundle
            assert await new.load(meta.session_id) == await old.load(meta.session_id)
        assert len(await new.list()) == len(await old.list()) > 2
        assert (await new.check()).findings == ()


@pytest.mark.parametrize("name", ["..", "", "a\x00b", "x" * 20_000])
async def test_invalid_session_id_is_refused(name: str) -> None:
    async with memory_store() as store:
        await fill(store, memory=False)
        (copies,) = await collect(store, SESSION)
        forged = unpack(pack([renamed(copies, name)]))
        with pytest.raises(InvalidSessionId):
            await bring(store, forged)
