"""``asnap archive``: a store's sessions in a bucket, and back from there on another machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import Passphrase
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, Ran
from tests.store.s3_server import BUCKET, S3Server, running

URL = f"s3://{BUCKET}/archive"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def here(tmp_path: Path) -> Iterator[FilesystemStore]:
    store = FilesystemStore(tmp_path / "here", background=False)
    store.sync.save(make_snapshot("a"))
    store.sync.save(make_snapshot("a", "b"))
    yield store
    store.close()


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    if not request.param:
        return None
    monkeypatch.setenv("ASNAP_KEY", key := generate_key())
    return key


def statuses(ran: Ran) -> list[tuple[str, str]]:
    assert ran.code in (0, 1, 3), ran
    return [(each["session_id"], each["status"]) for each in json.loads(ran.out)["sessions"]]


def archived() -> ObjectStore:
    return ObjectStore(bucket_at(URL), background=False)


def archive(asnap: Asnap, store: FilesystemStore, *words: str) -> list[tuple[str, str]]:
    return statuses(asnap("archive", URL, *words, "--store", str(store.path), "--json"))


def test_only_new_frames_are_copied_and_byte_for_byte(
    asnap: Asnap, server: S3Server, here: FilesystemStore
) -> None:
    assert archive(asnap, here) == [("session", "copied")]
    assert archived().sync.load("session") == make_snapshot("a", "b")
    assert [meta.root for meta in archived().sync.history("session")] == [
        meta.root for meta in here.sync.history("session")
    ]
    server.sent = 0
    assert archive(asnap, here) == [("session", "current")]
    here.sync.save(make_snapshot("a", "b", "c"))
    assert archive(asnap, here) == [("session", "copied")]
    assert [meta.seq for meta in archived().sync.history("session")] == [3, 2, 1]
    assert archived().sync.check().ok


def test_another_machine_lists_the_archive_sees_its_lag_and_resumes(
    asnap: Asnap, server: S3Server, here: FilesystemStore, tmp_path: Path
) -> None:
    archive(asnap, here)
    listed = json.loads(asnap("list", "--all", "--store", URL, "--json").out)
    assert [row["session_id"] for row in listed["sessions"]] == ["session"]
    (lag,) = listed["archived"]
    assert 0 <= lag["lag_seconds"] < 600
    assert f"1 session of {lag['host']}, copied " in asnap("archive", URL, "--status").err
    assert f"archive of {lag['host']}, last copied " in asnap("list", "--all", "--store", URL).err
    (copy,) = json.loads(asnap("archive", URL, "--status", "--json").out)["stores"]
    assert (copy["sessions"], copy["behind"]) == (1, [])
    assert 0 <= copy["lag_seconds"] < 600

    there = FilesystemStore(tmp_path / "there", background=False)
    assert archive(asnap, there, "--restore", "session") == [("session", "imported")]
    assert there.sync.load("session") == make_snapshot("a", "b")
    here.sync.save(make_snapshot("a", "b", "c"))
    archive(asnap, here)
    assert archive(asnap, there, "--restore") == [("session", "updated")]
    assert there.sync.load("session").messages[-1].text == "c"
    there.close()


def test_interrupted_pass_is_completed_by_the_next(asnap: Asnap, server: S3Server, here: FilesystemStore) -> None:
    for number in range(4):
        here.sync.save(make_snapshot("a", session_id=f"other-{number}"))
    server.fault = lambda request: "forbidden" if request.method == "PUT" and "other" in request.key else None
    assert sorted(archive(asnap, here)) == [
        *((f"other-{number}", "failed") for number in range(4)),
        ("session", "copied"),
    ]
    (copy,) = json.loads(asnap("archive", URL, "--status", "--json").out)["stores"]
    assert len(copy["behind"]) == 4
    server.fault = lambda _request: None
    assert [status for _, status in sorted(archive(asnap, here))] == ["copied"] * 4 + ["current"]
    assert len(archived().sync.list()) == 5


def test_session_continued_in_the_archive_is_not_overwritten(
    asnap: Asnap, server: S3Server, here: FilesystemStore
) -> None:
    archive(asnap, here)
    elsewhere = archived()
    elsewhere.sync.save(elsewhere.sync.load("session").evolve(title="Elsewhere"))
    here.sync.save(make_snapshot("a", "b", "c"))
    assert archive(asnap, here) == [("session", "diverged")]
    assert archived().sync.load("session").title == "Elsewhere"


@pytest.mark.parametrize("gone", [[], [2, 3], [1, 2, 3]], ids=["packed", "some forgotten", "all forgotten"])
def test_rewritten_or_forgotten_snapshots_stay_in_the_archive(
    asnap: Asnap, server: S3Server, tmp_path: Path, gone: list[int], key: str | None
) -> None:
    here = FilesystemStore(tmp_path / "here", key, background=False)
    for texts in ("a", "ab"):
        here.sync.save(make_snapshot(*texts))
    archive(asnap, here)
    for texts in ("abc", "abcd"):
        here.sync.save(make_snapshot(*texts))
    if gone:
        here.sync.forget("session", seqs=gone)
    else:
        here.core.compact("session")
    assert archive(asnap, here) == [("session", "copied")]
    here.sync.save(make_snapshot(*"abcde"))
    assert archive(asnap, here) == [("session", "copied")]
    here.close()
    there = ObjectStore(bucket_at(URL), key, background=False)
    assert [meta.seq for meta in there.sync.history("session")] == ([5, 4, 2, 1] if gone else [5, 4, 3, 2, 1])
    assert [there.sync.load("session", at=seq) for seq in (2, 5)] == [make_snapshot(*"ab"), make_snapshot(*"abcde")]
    assert there.sync.check().ok


def test_restore_makes_no_second_session_of_one_that_forgot_snapshots(
    asnap: Asnap, server: S3Server, here: FilesystemStore
) -> None:
    archive(asnap, here)
    here.sync.forget("session", seqs=[1])
    assert archive(asnap, here, "--restore") == [("session", "already_there")]
    assert [meta.session_id for meta in here.sync.list()] == ["session"]


def test_restore_brings_the_companions_of_a_session_and_those_without_one(
    asnap: Asnap, server: S3Server, here: FilesystemStore, tmp_path: Path
) -> None:
    names = ["session", "session+memory", "session+subgraphs", "state.user+subgraphs"]
    for name in names[1:]:
        here.sync.save(make_snapshot(name, session_id=name))
    assert sorted(archive(asnap, here, "session")) == [(name, "copied") for name in names[:-1]]
    archive(asnap, here)
    there = FilesystemStore(tmp_path / "there", background=False)
    assert sorted(archive(asnap, there, "--restore")) == [("session", "imported"), (names[-1], "imported")]
    assert sorted(meta.session_id for meta in there.sync.list()) == names
    there.close()


def test_an_encrypted_store_stays_encrypted_and_opens_with_its_own_key(
    asnap: Asnap, server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = generate_key()
    monkeypatch.setenv("ASNAP_KEY", key)
    store = FilesystemStore(tmp_path / "sealed", Passphrase(key), background=False)
    store.sync.save(make_snapshot("a secret"))
    assert archive(asnap, store) == [("session", "copied")]
    assert not [name for name, data in server.objects.items() if b"secret" in data]
    assert ObjectStore(bucket_at(URL), Passphrase(key)).sync.load("session") == make_snapshot("a secret")

    another = FilesystemStore(tmp_path / "another", Passphrase(key), background=False)
    another.sync.save(make_snapshot("b", session_id="b"))
    refused = asnap("archive", URL, "--store", str(another.path))
    assert (refused.code, "another store" in refused.err) == (2, True)
    store.close()
    another.close()


def test_watch_copies_each_saved_turn(asnap: Asnap, server: S3Server, here: FilesystemStore) -> None:
    command = [sys.executable, "-m", "snapshot_plugin", "archive", URL, "--watch", "--every", "0.1s"]
    watching = subprocess.Popen([*command, "--store", str(here.path)], stderr=subprocess.PIPE, text=True)
    try:
        assert watching.stderr is not None
        assert "snapshot 2 is in the archive" in watching.stderr.readline()
        here.sync.save(make_snapshot("a", "b", "c"))
        assert "snapshot 3 is in the archive" in watching.stderr.readline()
        assert archived().sync.load("session") == make_snapshot("a", "b", "c")
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 130
    finally:
        watching.kill()
        watching.communicate()


def test_archive_needs_a_url_as_target_and_a_directory_as_source(
    asnap: Asnap, server: S3Server, here: FilesystemStore, tmp_path: Path
) -> None:
    assert asnap("archive", str(tmp_path / "x"), "--store", str(here.path)).code == 2
    archive(asnap, here)
    assert asnap("archive", f"{URL}/x", "--store", URL).code == 2


def test_deploy_copies_what_it_saved(asnap: Asnap, server: S3Server, here: FilesystemStore) -> None:
    ran = asnap("snapshot", "--all", "--archive", URL, "--store", str(here.path), "--json")
    assert (ran.code, json.loads(ran.out)["not_archived"]) == (0, [])
    assert archived().sync.load("session") == make_snapshot("a", "b")


def test_undo_works_from_another_machine(
    asnap: Asnap, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The operation log of a bucket is in the bucket."""
    bucket = ObjectStore(bucket_at(URL), background=False)
    bucket.sync.save(make_snapshot("a", "b"))
    assert asnap("rename", "session", "Water birds", "--store", URL).code == 0
    assert asnap("forget", "session", "--yes", "--store", URL).code == 0
    assert not bucket.sync.list()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    assert asnap("undo", "--store", URL).code == 0
    assert bucket.sync.load("session").title == "Water birds"
    assert asnap("undo", "--store", URL).code == 0
    assert bucket.sync.load("session").title is None


def test_concurrent_operations_of_several_machines_are_all_logged(server: S3Server) -> None:
    kept = [ObjectStore(bucket_at(URL), background=False).operation_lines for _ in range(2)]
    lines = [each for each in kept if each is not None]

    def meanwhile(before: list[bytes]) -> list[bytes]:
        if not before:
            lines[1].append_line(b"two")
        return [*before, b"one"]

    lines[0].change_lines(meanwhile)
    assert lines[1].read_lines() == [b"two", b"one"]
