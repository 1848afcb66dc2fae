"""What lies on the disk is what docs/reference/format.md says, where no other test looks."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from snapshot_plugin import (
    Conflict,
    FilesystemStore,
    RetentionPolicy,
    SnapshotError,
    SnapshotManager,
    SnapshotNotFound,
    StoreNotFound,
    StoreUnavailable,
)
from snapshot_plugin.codec.frame import Header, read_header
from snapshot_plugin.model import CURRENT_VERSION
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot
from tests.faults.support import (
    KEY,
    PLAIN_AND_ENCRYPTED,
    filled,
    forged,
    frames_of,
    names_in,
    segments_of,
    store_at,
    version,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.unknown_fields import with_unknown

pytestmark = pytest.mark.anyio
ULID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")


def headers_in(path: Path) -> dict[int, Header]:
    frames = [frame for segment in segments_of(path) for frame in frames_of(segment)]
    return {header.hi: header for header, _, _ in map(read_header, frames)}


def everything_under(path: Path) -> bytes:
    """All names and all content."""
    return b"\n".join(str(p).encode() + (p.read_bytes() if p.is_file() else b"") for p in path.rglob("*"))


def rewrite(segment: Path, frames: list[bytes]) -> None:
    segment.write_bytes(b"".join(frames))


# The directory ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-DIR-LAYOUT", "FORMAT-STORE-FILE")
@PLAIN_AND_ENCRYPTED
async def test_store_has_the_files_named_on_the_format_page(tmp_path: Path, key: str | None) -> None:
    began = datetime(2026, 11, 16, 0, 51, 47, 1, tzinfo=UTC)
    async with store_at(tmp_path, key, clock=FixedClock(began)) as store:
        await store.save(version(1))
        await store.save(version(1, "other"))
        token = (await store.delete("other")).token
    assert names_in(tmp_path) == [".create", "STORE.json", *(["keys"] if key else []), "sessions", "trash"]
    assert names_in(tmp_path / "sessions" / "session") == [".lock", "0000000001.snap.gz"]
    assert len(names_in(tmp_path / "trash")) == 1
    assert ULID.fullmatch(token.rpartition(".")[2] or token)
    settings = json.loads((tmp_path / "STORE.json").read_bytes())
    assert ULID.fullmatch(settings.pop("id"))
    assert settings == {"created": "2026-11-16T00:51:47.000001Z", "encrypted": bool(key), "format": 1}


@pytest.mark.requirement(
    "FORMAT-DIR-MODES",
    "ORBIT-SECURITY-0600",
    "TERMINAL-SECURITY-DIR",
    "TERMINAL-SECURITY-FILE",
    "TERMINAL-TEST-PERMISSIONS",
)
@PLAIN_AND_ENCRYPTED
async def test_files_are_private_whatever_the_umask(tmp_path: Path, key: str | None) -> None:
    before = os.umask(0)
    try:
        async with store_at(tmp_path / "store", key, segment_frames=2) as store:
            for number in range(1, 6):
                await store.save(version(number))
                await store.save(version(number, "other"))
            await store.forget("session", RetentionPolicy(keep_last=2))
            await store.delete("other")
    finally:
        os.umask(before)
    paths = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.requirement("FORMAT-SEAL-HIDDEN", "TERMINAL-SECURITY-NAMES")
async def test_encrypted_store_contains_no_plaintext(tmp_path: Path) -> None:
    secrets = ["confidential title", "whispered words", "memory-name", "memory-value", "a-project", "work-tag"]
    title, words, name, value, cwd, tag = secrets
    async with store_at(tmp_path, KEY) as store:
        await store.save(make_snapshot(words, title=title, memory={name: value}, config={"cwd": cwd}, tags=(tag,)))
    everything = everything_under(tmp_path)
    assert [secret for secret in secrets if secret.encode() in everything] == []


# Frames -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("FORMAT-HEADER-TIME", "FORMAT-HEADER-WRITER", "FORMAT-HEADER-TAGS")
async def test_header_records_time_writer_and_tags(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2026, 11, 16, 0, 51, 47, 1, tzinfo=UTC))
    for first in (1, 3):
        async with store_at(tmp_path, clock=clock) as store:
            for number in (first, first + 1):
                await store.save(version(number), tags=[f"tag {number}"], base=number - 1)
                clock.advance(timedelta(seconds=1))
    found = headers_in(tmp_path)
    assert [found[n].t for n in (1, 2)] == ["2026-11-16T00:51:47.000001Z", "2026-11-16T00:51:48.000001Z"]
    assert [found[n].tags for n in (1, 4)] == [("tag 1",), ("tag 4",)]
    writers = [found[n].w for n in (1, 2, 3, 4)]
    assert (writers[0], writers[2]) == (writers[1], writers[3])
    assert writers[0] != writers[2]
    assert all(ULID.fullmatch(text) for text in (*writers, *(header.id for header in found.values())))


@pytest.mark.requirement("FORMAT-HEADER-ID", "FORMAT-HEADER-LO-HI", "FORMAT-HEADER-PREV", "FORMAT-ROOT-REWRITE")
@PLAIN_AND_ENCRYPTED
async def test_rewrite_keeps_ids_and_roots_and_relinks_the_rest(tmp_path: Path, key: str | None) -> None:
    await filled(tmp_path, key, count=6, segment_frames=2)
    before = headers_in(tmp_path)
    async with store_at(tmp_path, key) as store:
        await store.forget("session", RetentionPolicy(keep_last=3))
        await store.compact("session")
    after = headers_in(tmp_path)
    assert {n: (h.lo, h.id, h.root) for n, h in after.items()} == {
        n: (lo, before[n].id, before[n].root) for n, lo in ((4, 1), (5, 5), (6, 6))
    }
    assert (after[4].full, after[4].prev) == (True, "")
    assert (after[5].prev, after[6].prev) == (before[4].root, before[5].root)


# Keys, syncs and pins -----------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "STORE-KEY-REENCRYPT",
    "FORMAT-KEYS-ROTATE",
    "FORMAT-ROOT-REWRITE",
    "FORMAT-KEYS-PRIMARY",
    "FORMAT-KEYS-DIGEST",
)
async def test_after_a_rotation_compacting_seals_old_frames_with_the_new_key(tmp_path: Path) -> None:
    segment = await filled(tmp_path, KEY)
    before, content = headers_in(tmp_path), segment.read_bytes()
    async with store_at(tmp_path, KEY) as store:
        await store.rotate_key()
        assert segment.read_bytes() == content
        keys = store.session_keys("session")
        assert keys is not None
        await store.save(version(4, "other"))
        sealed = [read_header(frame)[0].kid for each in segments_of(tmp_path, "other") for frame in frames_of(each)]
        assert sealed == [keys.primary]
        assert await store.load("session", strict=True) == version(3)  # which the old key still opens
        await store.compact("session")
        after = headers_in(tmp_path)
        assert {header.kid for header in after.values()} == {keys.primary}
        assert keys.primary not in {header.kid for header in before.values()}
        assert [after[n].root for n in after] == [before[n].root for n in before]
        assert await store.load("session", strict=True) == version(3)


@pytest.mark.requirement("FORMAT-WRITE-ONE-SYNC")
@PLAIN_AND_ENCRYPTED
async def test_save_into_an_open_segment_is_one_write_and_one_sync(
    tmp_path: Path, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def watched(name: str) -> Any:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    async with store_at(tmp_path, key) as store:
        await store.save(version(1))
        for name in ("write", "fsync", "fdatasync"):
            monkeypatch.setattr(os, name, watched(name))
        await store.save(version(2))
        monkeypatch.undo()
    assert calls == ["write", "fdatasync"]


@pytest.mark.requirement("FORMAT-THREAT-ROLLBACK")
@PLAIN_AND_ENCRYPTED
async def test_reader_that_pinned_number_and_root_detects_a_truncated_head(tmp_path: Path, key: str | None) -> None:
    segment = await filled(tmp_path, key)
    async with store_at(tmp_path, key) as store:
        pinned = (await store.read("session")).ref
    rewrite(segment, frames_of(segment)[:-1])
    async with store_at(tmp_path, key) as store:
        found = await store.read("session", strict=True)
        assert (await store.check()).ok  # the format alone cannot see it
    assert (found.ref.seq, found.ref.root) != (pinned.seq, pinned.root)


# Older versions -----------------------------------------------------------------------------------------------


@pytest.mark.requirement(
    "FORMAT-HEADER-V",
    "FORMAT-HEADER-FULL",
    "ORBIT-USE-UPDATE",
    "MANAGER-RESUME-MIGRATED",
)
@PLAIN_AND_ENCRYPTED
async def test_session_of_an_older_release_is_migrated_and_continued_with_a_full_frame(
    tmp_path: Path, key: str | None
) -> None:
    async with store_at(tmp_path, key) as store:
        await store.save(with_unknown(make_snapshot("a"), acp_session_id="theirs"))  # the name it had in version 1
        keys = store.session_keys("session")
    segment = segments_of(tmp_path)[0]
    rewrite(segment, [forged(frame, keys, to=keys, v=1) for frame in frames_of(segment)])
    async with store_at(tmp_path, key) as store:
        found = (await SnapshotManager(store).restore("session")).snapshot
        assert (found.version, found.agent_session_id, found.model_extra) == (CURRENT_VERSION, "theirs", {})
        longer = found.append(make_message("b"))
        await store.save(longer)
    async with store_at(tmp_path, key) as store:
        assert await store.load("session", at=1) == found
        assert await store.load("session", strict=True) == longer
    assert [(n, h.v, h.full) for n, h in headers_in(tmp_path).items()] == [(1, 1, True), (2, CURRENT_VERSION, True)]


async def test_checking_one_session_reports_leftovers_of_its_name_and_no_others(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        for name in ("One", "two"):
            await store.save(make_snapshot("hello", session_id=name))
        (tmp_path / "sessions" / "One").mkdir()
        (tmp_path / "sessions" / "stray").write_text("")

        one, two = await store.check("One"), await store.check("two")

        assert (one.sessions, [finding.kind for finding in one.findings]) == (1, ["misplaced"])
        assert (two.sessions, two.findings) == (1, ())
        assert [finding.kind for finding in (await store.check("stray")).findings] == ["misplaced"]
        with pytest.raises(SnapshotNotFound):
            await store.check("nobody")


async def test_hidden_system_files_among_sessions_are_not_damage(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("hello", session_id=".hidden"))
        (tmp_path / "sessions" / ".DS_Store").write_bytes(b"\0")

        assert (await store.check()).ok
        assert [meta.session_id for meta in await store.list()] == [".hidden"]


async def test_list_shows_a_session_whose_only_file_is_replaced_while_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FilesystemStore(tmp_path)
    await store.save(make_snapshot("one"))
    directory = store.session_dir("session")
    [segment] = segments_of(tmp_path)
    scandir: Callable[[Any], Any] = os.scandir
    looks: list[Any] = []

    def replaced_after_the_look(path: Any) -> Any:
        entries = scandir(path)
        if str(path) == str(directory) and not looks:
            looks.append(path)
            entries = Listed(list(entries))
            segment.rename(directory / "0000000001-0000000001.1.snap.gz")
        return entries

    monkeypatch.setattr(os, "scandir", replaced_after_the_look)
    assert [meta.session_id for meta in await FilesystemStore(tmp_path).list()] == ["session"]
    assert looks


class Listed(list[Any]):
    """Directory entries that were read before something changed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_stale_writer_sees_the_new_segments_of_another_however_soon_they_come(tmp_path: Path) -> None:
    with (
        FilesystemStore(tmp_path, background=False).sync as mine,
        FilesystemStore(tmp_path, background=False, segment_frames=1).sync as other,
    ):
        snapshot = make_snapshot("hello")
        mine.save(snapshot)
        for n in range(20):
            theirs = other.load(snapshot.session_id).append(make_message(f"theirs {n}"))
            other.save(theirs)
            with pytest.raises(Conflict):
                mine.save(snapshot.append(make_message(f"mine {n}")))
            snapshot = mine.load(snapshot.session_id)
            if n % 2:  # so that the next save of the other finds a segment of ours
                snapshot = snapshot.append(make_message(f"mine at last {n}"))
                mine.save(snapshot)

        assert mine.load(snapshot.session_id).messages[-1].text == "mine at last 19"
        assert len(mine.history(snapshot.session_id)) == 31


@pytest.mark.requirement("STORE-SAVE-SPLICE")
@pytest.mark.parametrize(
    ("changed", "splice"),
    [
        (lambda old, new: (*old, new), (6, 0, 1)),
        (lambda old, new: (*old[:2], new, *old[3:]), (2, 1, 1)),
        (lambda old, _new: old[:4], (4, 2, 0)),
        (lambda old, new: (new, *old[4:]), (0, 4, 1)),
    ],
    ids=["append", "edit", "truncation", "summary"],
)
def test_a_save_writes_only_the_messages_that_changed(
    tmp_path: Path, changed: Callable[[Any, Any], Any], splice: tuple[int, int, int]
) -> None:
    words = [f"word {n} " * 400 for n in range(6)]
    snapshot = make_snapshot(*words)
    later = snapshot.evolve(messages=changed(snapshot.messages, make_message("new")))
    with FilesystemStore(tmp_path, background=False).sync as store:
        before = store.save(snapshot)
        store.save(later)
        frame = next(tmp_path.glob("sessions/*/*.snap.gz")).read_bytes()[before.size_bytes :]
        assert store.load(before.session_id) == later

    header, _, _ = read_header(frame)
    assert (header.at, header.delete, header.insert, header.full) == (*splice, False)
    assert not any(word.encode() in frame for word in words)


@PLAIN_AND_ENCRYPTED
@pytest.mark.parametrize("is_live", [False, True], ids=["saved", "live"])
def test_store_that_was_removed_while_open_is_begun_anew(tmp_path: Path, is_live: bool, key: str | None) -> None:
    place = tmp_path / "store"
    store = FilesystemStore(place, key)
    store.sync.save(make_snapshot("one", session_id="before"))
    shutil.rmtree(place)
    if is_live and key:  # what it seals for the spool was sealed with keys that are gone
        with pytest.raises(StoreUnavailable, match="removed") as caught:
            store.session_dir("after")
        assert caught.value.retryable
    if is_live:
        store.session_dir("after")
    store.sync.save(make_snapshot("one", session_id="after"))
    assert [meta.session_id for meta in FilesystemStore(place, key, create=False).sync.list()] == ["after"]
    assert FilesystemStore(place, key, create=False).sync.check().ok


def test_store_that_was_removed_is_not_begun_anew_by_one_that_may_not_create(tmp_path: Path) -> None:
    place = tmp_path / "store"
    FilesystemStore(place).sync.save(make_snapshot("one", session_id="before"))
    store = FilesystemStore(place, create=False)
    store.sync.load("before")
    shutil.rmtree(place)
    with pytest.raises(StoreNotFound):
        store.sync.save(make_snapshot("one", session_id="after"))
    assert not place.exists()


def test_encrypted_store_whose_keys_are_gone_refuses_each_save(tmp_path: Path) -> None:
    place = tmp_path / "store"
    store = FilesystemStore(place, "secret")
    store.sync.save(make_snapshot("one", session_id="before"))
    shutil.rmtree(place / "keys")
    for name in ("after", "after", "later"):
        with pytest.raises(SnapshotError):
            store.sync.save(make_snapshot("one", session_id=name))
    with pytest.raises(SnapshotError):
        FilesystemStore(place, "secret").sync.list()


def test_a_store_that_another_process_makes_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = FilesystemStore(tmp_path), FilesystemStore(tmp_path)
    read = ours.frames.get

    def late(name: str) -> object:
        found = read(name)
        if found is None:
            monkeypatch.undo()
            others.sync.save(make_snapshot("theirs", session_id="theirs"))
        return found

    monkeypatch.setattr(ours.frames, "get", late)
    ours.sync.save(make_snapshot("ours", session_id="ours"))

    assert {meta.session_id for meta in ours.sync.list()} == {"ours", "theirs"}


def test_deleting_succeeds_although_another_process_purges_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, others = FilesystemStore(tmp_path), FilesystemStore(tmp_path)
    ours.sync.save(make_snapshot("gone", session_id="gone"))
    listed = ours.frames.areas

    def late(*args: Any) -> object:
        monkeypatch.undo()
        others.sync.purge(older_than=timedelta(0))
        return listed(*args)

    monkeypatch.setattr(ours.frames, "areas", late)
    ours.sync.delete("gone")

    assert (ours.sync.list(), ours.sync.trash()) == ([], [])
