"""What the store promises about files, asked of the command line and of `FilesystemStore`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    FilesystemStore,
    Message,
    SessionSnapshot,
    SnapshotConfig,
    SnapshotError,
    SnapshotManager,
    StoreUnavailable,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
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
def test_check_names_place_kind_and_snapshot_and_changes_nothing(user: User) -> None:
    with user.bridge() as bridge:
        answers = [bridge.exchange(f"question {number}", f"answer {number}") for number in range(3)]
        assert bridge.close() == 0
    session_id = answers[-1]["session_id"]
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
async def test_new_segment_takes_nothing_over_from_a_leftover_of_its_name(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, segment_frames=1, background=False) as store:
        await store.save(turn(1))
        leftover = tmp_path / "sessions" / "session" / "0000000002.snap.gz"
        leftover.write_bytes(bytes(99_999))  # what a power cut leaves of a file that had its length only
        ref = await store.save(turn(2))
        assert leftover.stat().st_size == ref.size_bytes
        assert await store.load("session", strict=True) == turn(2)
        assert (await store.check()).findings == ()


@pytest.mark.anyio
@pytest.mark.requirement("FORMAT-WRITE-NEW-SEGMENT")
async def test_new_segment_never_replaces_an_existing_file(tmp_path: Path) -> None:
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
async def test_rewrite_that_reads_back_wrong_keeps_the_old_files(tmp_path: Path, misspelling: list[str]) -> None:
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


def refusing(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Make the system refuse to write, as a full or a read-only disk does. It needs no root, unlike a real one."""
    real_open, real_write = os.open, os.write
    code = errno.EROFS if fault == "read-only" else errno.ENOSPC

    def open_(path: Any, flags: int, *args: Any, **options: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        creates = flags & os.O_CREAT and not Path(path).exists()
        if (fault == "read-only" and writes) or (fault == "no inodes" and creates):
            raise OSError(code, os.strerror(code), str(path))
        return real_open(path, flags, *args, **options)

    def write(fd: int, data: Any) -> int:
        if fault == "no bytes" and "/sessions/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(code, os.strerror(code))
        return real_write(fd, data)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "write", write)


class Chat:
    """A session that said so much."""

    session_id, said = "session", 1

    def snapshot(self) -> SessionSnapshot:
        return turn(self.said)


@pytest.mark.anyio
@pytest.mark.requirement("MANAGER-AUTO-CATCH-UP", "MANAGER-AUTO-NEVER-RAISES")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the names of open files in /proc")
@pytest.mark.parametrize("fault", ["read-only", "no bytes"])
async def test_session_continues_while_the_disk_fails_and_is_saved_when_it_works_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    chat, failed, saved = Chat(), anyio.Event(), anyio.Event()
    config = SnapshotConfig(
        enable_persistence=True, snapshot_on_signal=False, snapshot_interval=0.01, retry_first=0.01
    )
    async with (
        FilesystemStore(tmp_path, segment_frames=1, background=False) as store,
        SnapshotManager(store, config) as manager,
    ):
        await manager.start_auto_snapshot(chat)
        await manager.snapshot(chat)
        manager.events.subscribe(lambda event: failed.set() if event.name == "snapshot_failed" else None)
        with monkeypatch.context() as patch, anyio.fail_after(60):
            refusing(patch, fault)
            chat.said = 2
            await failed.wait()
            assert await store.load("session") == turn(1)
        manager.events.subscribe(lambda event: saved.set() if event.name == "snapshot_created" else None)
        with anyio.fail_after(60):
            await saved.wait()
        assert await store.load("session") == turn(2)


@pytest.mark.anyio
@pytest.mark.requirement(
    "STORE-FAULT-READ-ONLY", "STORE-FAULT-FULL-BYTES", "STORE-FAULT-FULL-INODES", "STORE-ERRORS"
)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="finds the names of open files in /proc")
@pytest.mark.parametrize("fault", ["read-only", "no bytes", "no inodes"])
async def test_failing_disk_loses_nothing_saved_and_the_next_save_catches_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async with FilesystemStore(tmp_path, segment_frames=1, background=False) as store:
        await store.save(turn(1))
        with monkeypatch.context() as patch:
            refusing(patch, fault)
            for number in (2, 3):
                with pytest.raises(StoreUnavailable) as refused:
                    await store.save(turn(number))
                assert refused.value.retryable
            assert await store.load("session") == turn(1)
        assert (await store.save(turn(4))).seq == 2
    async with FilesystemStore(tmp_path, background=False) as store:
        assert [await store.load("session", at=seq) for seq in (1, 2)] == [turn(1), turn(4)]
        assert (await store.check()).ok


THEIR_PROJECT = """
from snapshot_plugin import FilesystemStore
from snapshot_plugin.testing import StoreContract

class TheirStore(FilesystemStore):
    async def save(self, snapshot, **options):
        return await super().save({saved}, **options)

class TestTheirStore(StoreContract):
    def open(self, place, clock):
        return TheirStore(place, clock=clock)
"""


@pytest.mark.requirement("STORE-KIT")
@pytest.mark.parametrize(
    ("saved", "outcome"),
    [("snapshot", "passed"), ("snapshot.evolve(messages=snapshot.messages[:1])", "failed")],
    ids=["a good backend", "a backend that loses messages"],
)
def test_another_project_runs_the_contract_suite_with_a_few_lines(user: User, saved: str, outcome: str) -> None:
    (user.work / "test_theirs.py").write_text(THEIR_PROJECT.format(saved=saved))
    some = "another_store_object_loads or continues_the_numbers or base_zero"
    done = user.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", some, "test_theirs.py")
    assert outcome in done.out
    assert (done.code == 0) == (outcome == "passed")


@pytest.mark.requirement("STORE-KEY-SOURCES", "STORE-KEY-FIVE-ERRORS")
@pytest.mark.parametrize("source", ["ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_PASSPHRASE", "ASNAP_KEY_COMMAND"])
def test_store_opens_with_a_key_from_each_source_and_no_other_key(tmp_path: Path, source: str) -> None:
    secret = "correct horse battery staple"
    (tmp_path / "key").write_text(f"{secret}\n")
    (tmp_path / "key").chmod(0o600)
    given = {"ASNAP_KEY_FILE": str(tmp_path / "key"), "ASNAP_KEY_COMMAND": f"cat {tmp_path / 'key'}"}
    owner = User(tmp_path / "home", **{source: given.get(source, secret)})
    with owner.bridge() as bridge:
        session_id = bridge.exchange("question", "answer")["session_id"]
        assert bridge.close() == 0
    assert (owner.store / "keys").is_dir()
    assert len(owner.stored(session_id)["messages"]) == 2
    missing = User(tmp_path / "home").asnap("show", session_id, "--no-input", "--json", fails=True)
    wrong = User(tmp_path / "home", ASNAP_KEY="wrong").asnap("show", session_id, "--json", fails=True)
    assert (missing.code, wrong.code) == (7, 7)
    assert '"key_missing"' in missing.err
    assert '"wrong_key"' in wrong.err


@pytest.mark.requirement(
    "MANAGER-CONFIG-LAYERS", "MANAGER-CONFIG-ORIGIN", "MANAGER-CONFIG-UNKNOWN", "MANAGER-CONFIG-REFUSED"
)
def test_settings_come_from_variables_and_the_user_with_their_origin(tmp_path: Path) -> None:
    user = User(tmp_path / "home", ASNAP_EVENT_DEBOUNCE="4")
    settings = user.home / ".config" / "asnap"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(
        "event_debounce = 5\nspool_flush_interval = 5\nexit_timeout = 1\nretry_first = 2\ntypo = 1\n"
    )
    shown = user.asnap("config", "show", "--origin", "--json").json
    found = {each["name"]: (each["value"], each["layer"]) for each in shown["settings"]}
    assert found["event_debounce"] == (4.0, "environment")
    assert found["spool_flush_interval"] == (5.0, "user")
    assert found["retry_first"] == (2.0, "user")
    assert found["snapshot_interval"] == (300.0, "default")
    assert "typo" not in found
    assert any("typo" in notice for notice in shown["notices"])
    refused = User(tmp_path / "home", ASNAP_SNAPSHOT_INTERVAL="soon").asnap("config", "show", fails=True)
    assert refused.code == 2
    assert "ASNAP_SNAPSHOT_INTERVAL" in refused.err


TURNS = """
import sys
if "without" in sys.argv:
    sys.modules["isal"] = None
from datetime import UTC, datetime
from snapshot_plugin import FilesystemStore, Message, RetentionPolicy, SessionSnapshot
from snapshot_plugin.codec.compress import accelerated
assert accelerated() == ("without" not in sys.argv)
now = datetime(2026, 1, 1, tzinfo=UTC)
turns = [
    SessionSnapshot(
        session_id="session", created_at=now, updated_at=now,
        messages=[Message(role="user", content=f"{n} words " * 9000) for n in range(count)],
    )
    for count in range(1, 9)
]
with FilesystemStore(sys.argv[1], background=False).sync as store:
    if "write" in sys.argv:
        for turn in turns:
            store.save(turn)
        store.compact("session")
    assert [store.load("session", at=seq) for seq in range(1, 9)] == turns
    assert store.check().ok
    store.save(store.load("session").append(Message(role="user", content="x" * 99_999), title=str(sys.argv)))
"""


@pytest.mark.requirement("STORE-KEY-FAST")
@pytest.mark.parametrize("order", [("with", "without"), ("without", "with")], ids=["fast first", "fast second"])
def test_store_is_the_same_with_and_without_the_fast_compressor(user: User, order: tuple[str, str]) -> None:
    (user.work / "turns.py").write_text(TURNS)
    assert user.python("turns.py", str(user.store), order[0], "write").code == 0
    assert user.python("turns.py", str(user.store), order[1]).code == 0
    assert user.python("turns.py", str(user.store), order[0]).code == 0
