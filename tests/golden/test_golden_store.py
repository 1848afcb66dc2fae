"""Golden stores: directories that a release wrote load for ever, as what was saved into them.

``store/<name>/`` holds a plain and an encrypted store of the same content, the key of the latter (no secret), and
``expected.json``. Frames of schema version 1 are in both. `write_store.py` says how they were made. No golden file
is ever edited; a new format or schema version adds a folder, and its lines to the manifest.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, KeyMissing, RetentionPolicy
from snapshot_plugin.codec.scan import scan
from snapshot_plugin.codec.sources import KeyFile
from snapshot_plugin.migrate import load_document
from snapshot_plugin.model import CURRENT_VERSION
from snapshot_plugin.model.times import rfc3339
from snapshot_plugin.store import rewrite
from snapshot_plugin.testing import FixedClock, make_message
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio

GOLDEN = Path(__file__).parent
FOLDERS = sorted(path for path in (GOLDEN / "store").iterdir() if path.is_dir())
KINDS = ["plain", "encrypted"]


@pytest.fixture(params=FOLDERS, ids=lambda path: str(path.name))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy: opening a store takes locks. Git keeps no 0600, which a key file must have."""
    copy = tmp_path / "golden"
    shutil.copytree(request.param, copy)
    (copy / "key.txt").chmod(0o600)
    return copy


@pytest.fixture
def expected(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "expected.json").read_bytes())
    return content


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(folder: Path, kind: str) -> FilesystemStore:
    key = KeyFile(folder / "key.txt") if kind == "encrypted" else None
    return FilesystemStore(folder / kind, key=key, create=False, clock=FixedClock())


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_every_file_of_a_golden_store_is_pinned() -> None:
    pinned = {line.split("  ", 1)[1] for line in (GOLDEN / "MANIFEST.sha256").read_text("utf-8").splitlines()}
    present = {path.relative_to(GOLDEN).as_posix() for path in (GOLDEN / "store").rglob("*") if path.is_file()}

    assert present
    assert present <= pinned


async def test_every_snapshot_loads_as_it_was_saved(
    store: FilesystemStore, kind: str, expected: dict[str, Any]
) -> None:
    async with store:
        assert {meta.session_id for meta in await store.list()} == set(expected["sessions"])
        for session_id, snapshots in expected["sessions"].items():
            roots = expected["roots"][kind][session_id]
            for meta in await store.history(session_id):
                then = snapshots.pop(str(meta.seq))
                assert await store.load(session_id, at=meta.seq) == load_document(then["document"])
                assert (meta.root, meta.state) == (roots[str(meta.seq)], "ok")
                shown = (rfc3339(meta.saved_at), meta.trigger, list(meta.snapshot_tags))
                assert shown == (then["saved_at"], then["trigger"], then["tags"])
            assert snapshots == {}


async def test_golden_store_passes_check_and_reading_changes_nothing(
    store: FilesystemStore, folder: Path, kind: str
) -> None:
    before = tree(folder / kind)
    async with store:
        for meta in await store.list():
            await store.load(meta.session_id, strict=True)
        report = await store.check()
        assert (report.ok, report.findings) == (True, ())

    assert tree(folder / kind) == before


async def test_golden_store_can_be_continued(store: FilesystemStore, expected: dict[str, Any]) -> None:
    async with store:
        for session_id, snapshots in expected["sessions"].items():
            newest = max(map(int, snapshots))
            longer = (await store.load(session_id)).append(make_message("still here"))
            assert (await store.save(longer)).seq == newest + 1
            await store.forget(session_id, RetentionPolicy(keep_last=2))
            await store.compact(session_id)
            assert await store.load(session_id, strict=True) == longer
            assert [meta.seq for meta in await store.history(session_id)] == [newest + 1, newest]
        assert (await store.check()).ok


async def test_forgetting_the_first_frame_of_a_newer_schema_leaves_a_full_frame(
    store: FilesystemStore, folder: Path, kind: str, expected: dict[str, Any]
) -> None:
    session_id = "written-by-version-1-and-later"
    snapshots = expected["sessions"][session_id]
    async with store:
        await store.list()  # opens it
        with store.frames.exclusively(session_id):
            rewrite.forget(store.frames, session_id, store.session_keys(session_id), {3})
        assert [meta.seq for meta in await store.history(session_id)] == [4, 2, 1]
        for seq in (1, 2, 4):
            assert await store.load(session_id, at=seq) == load_document(snapshots[str(seq)]["document"])
        assert (await store.check()).ok

    (path,) = (folder / kind / "sessions" / session_id).glob("*.snap.gz")
    headers = [piece.header for piece in scan(path.read_bytes()) if piece.header]
    assert [(header.v, header.lo, header.hi, header.full) for header in headers] == [
        (1, 1, 1, True),
        (1, 2, 2, False),
        (2, 3, 4, True),
    ]


async def test_deleted_sessions_can_still_be_restored(store: FilesystemStore) -> None:
    async with store:
        (trashed,) = await store.trash()
        assert await store.undelete(trashed.token) == "deleted"
        assert (await store.load("deleted")).messages[0].text == "deleted, and not yet purged"


async def test_encrypted_golden_store_needs_its_key_and_shows_no_plaintext(folder: Path) -> None:
    async with FilesystemStore(folder / "plain") as plain:
        said = [message.text for message in (await plain.load("Everyday Session/ä")).messages]
    content = b"".join(tree(folder / "encrypted").values())
    assert said
    assert not [text for text in said if text.encode(errors="replace")[:9] in content]

    with pytest.raises(KeyMissing):
        await FilesystemStore(folder / "encrypted").list()


@pytest.mark.parametrize("version", range(1, CURRENT_VERSION + 1))
def test_golden_stores_cover_every_schema_version(version: int) -> None:
    frames = b"".join(path.read_bytes() for folder in FOLDERS for path in folder.rglob("*.snap.gz"))

    assert b'"v":%d,' % version in frames
