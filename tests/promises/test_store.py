"""What the store promises about files, asked of the command line and of `FilesystemStore`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot, SnapshotError
from tests.promises.doors import User

READING = (
    ("list", "--all"),
    ("show", "latest"),
    ("show", "latest", "--history"),
    ("show", "latest@1", "--raw"),
    ("search", "answer"),
    ("stats",),
    ("why", "latest"),
    ("diff", "latest@1", "latest@2"),
    ("export", "latest", "--format", "markdown"),
    ("check",),
    ("doctor",),
)


def state_of(store: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its time of change and its content."""
    files = [path for path in sorted(store.rglob("*")) if path.is_file()]
    return {str(path.relative_to(store)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


@pytest.mark.requirement("STORE-READ-ONLY")
def test_no_command_that_only_reads_changes_a_file_of_the_store(user: User) -> None:
    with user.bridge() as bridge:
        for number in range(3):
            bridge.exchange(f"question {number}", f"answer {number}")
        assert bridge.close() == 0
    before = state_of(user.store)
    for words in READING:
        assert "Traceback" not in user.asnap(*words).err
        assert state_of(user.store) == before, words


@pytest.mark.requirement("STORE-CHECK-FINDINGS", "STORE-CHECK", "TERMINAL-TEST-CORRUPTED")
def test_check_says_where_what_and_which_snapshot_and_changes_nothing(user: User) -> None:
    with user.bridge() as bridge:
        for number in range(3):
            session_id = bridge.exchange(f"question {number}", f"answer {number}")["session_id"]
        assert bridge.close() == 0
    [segment] = user.store.glob(f"sessions/{session_id}/*.snap.gz")
    data = bytearray(segment.read_bytes())
    data[-20] ^= 1
    segment.write_bytes(data)
    before = state_of(user.store)
    done = user.asnap("check", "--json", fails=True)
    assert done.code == 5
    [finding] = done.json["findings"]
    assert (finding["session_id"], finding["seq"], finding["kind"]) == (session_id, 4, "corrupted")
    assert finding["file"] == segment.name
    assert 0 < finding["offset"] < len(data)
    assert finding["explanation"]
    assert state_of(user.store) == before


def turn(number: int) -> SessionSnapshot:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    said = tuple(Message(role="user", content=f"message {n} " + "word " * 300) for n in range(number))
    return SessionSnapshot(session_id="session", created_at=now, updated_at=now, messages=said)


@pytest.mark.anyio
@pytest.mark.requirement("FORMAT-WRITE-NEW-SEGMENT")
async def test_a_new_segment_never_takes_the_place_of_a_file_that_is_there(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, segment_frames=1, background=False) as store:
        await store.save(turn(1))
        foreign = tmp_path / "sessions" / "session" / "0000000002.snap.gz"
        foreign.write_bytes(b"somebody else's")
        try:
            await store.save(turn(2))
        except SnapshotError:
            """Refusing is as good as evading."""
        assert foreign.read_bytes() == b"somebody else's"
    async with FilesystemStore(tmp_path, background=False) as store:
        assert len((await store.load("session")).messages) >= 1


@pytest.fixture
def misspelling(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A disk that changes one byte of whatever is written into a temporary file, without a word."""
    struck: list[str] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        name = str(Path(f"/proc/self/fd/{fd}").readlink())
        if name.endswith(".tmp") and len(data) > 200:
            struck.append(name)
            changed = bytearray(data)
            changed[len(changed) // 2] ^= 1
            data = bytes(changed)
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        yield struck


@pytest.mark.anyio
@pytest.mark.requirement("FORMAT-WRITE-REWRITE")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the names of open files in /proc")
async def test_a_rewrite_that_reads_back_wrong_leaves_the_old_files(tmp_path: Path, misspelling: list[str]) -> None:
    async with FilesystemStore(tmp_path, background=False) as store:
        for number in range(1, 11):
            await store.save(turn(number))
        before = state_of(tmp_path / "sessions")
        with pytest.raises(SnapshotError):
            await store.compact("session")
        assert misspelling, "something was written"
        segments = {name: each for name, each in before.items() if name.endswith(".snap.gz")}
        now = state_of(tmp_path / "sessions")
        assert {name: each for name, each in now.items() if name.endswith(".snap.gz")} == segments
        assert await store.load("session", strict=True) == turn(10)
        assert (await store.check()).ok
