"""``keys init --encrypt-existing``: nothing is left in the clear, and nothing is lost on the way."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, KeyMissing, Message
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.live.spool import Spool
from snapshot_plugin.operations import encrypting
from snapshot_plugin.operations.undo import OperationLog
from tests import forkserver
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session

CANARY = "canary-in-the-clear"


@pytest.fixture
def filled(asnap: Asnap, place: Path) -> Path:
    """A plain store with history, a trash, an index and an operation log, all of which know the canary."""
    first = session("one", CANARY, title=CANARY)
    saved(place, first, first.append(Message(role="user", content=f"{CANARY} again")), session("two", CANARY))
    assert asnap("rename", "two", CANARY).code == 0
    assert asnap("search", CANARY).code == 0
    saved(place, session("gone", CANARY))
    assert asnap("forget", "gone", "--yes").code == 0
    return place


def in_the_clear(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file() and CANARY.encode() in _content(path)]


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return data + gzip.decompress(data)
    except OSError:
        return data


def test_encrypted_store_leaves_no_plaintext_behind(
    asnap: Asnap, home: Path, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert in_the_clear(home), "the search would find it"
    before = asnap("list", "--all", "--json").json["sessions"]

    ran = asnap("keys", "init", "--encrypt-existing", "--generate", home / "key", "--label", "mine", "--json")

    assert ran.code == 0, ran.err
    assert (ran.json["encrypted"], ran.json["slots"][0]["label"]) == (True, "mine")
    assert in_the_clear(home) == []
    assert asnap("list").code == 7
    monkeypatch.setenv("ASNAP_KEY_FILE", str(home / "key"))
    after = asnap("list", "--all", "--json").json["sessions"]
    assert [row["session_id"] for row in after] == [row["session_id"] for row in before]
    assert CANARY in asnap("show", "one@1").out
    assert asnap("check").code == 0
    assert CANARY in asnap("search", CANARY).out
    assert asnap("undo").code == 0, "undo still knows of what was forgotten"
    assert CANARY in asnap("show", "gone").out
    assert sorted(path.name for path in filled.parent.iterdir()) == ["store"]


class _Cut(Exception):
    pass


def _cut(*_args: Any, **_kwargs: Any) -> None:
    raise _Cut


@pytest.mark.parametrize(
    ("where", "part"),
    [
        (encrypting, "_fill"),
        (encrypting, "_same"),
        (encrypting, "_swap"),
        (encrypting, "_remove"),
        (OperationLog, "seal"),
    ],
)
def test_interrupted_encryption_is_resumed_by_the_same_command(
    asnap: Asnap, home: Path, filled: Path, where: Any, part: str
) -> None:
    words = ("keys", "init", "--encrypt-existing", "--generate", home / "key")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(where, part, _cut)
        assert asnap(*words).code != 0

    ran = asnap(*words)

    assert ran.code == 0, ran.err
    assert in_the_clear(home) == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ASNAP_KEY_FILE", str(home / "key"))
        assert CANARY in asnap("show", "one").out
    assert asnap(*words).code == 2, "it is encrypted already"


def test_repeatedly_killed_encryption_loses_nothing(home: Path, filled: Path, asnap: Asnap) -> None:
    before = asnap("list", "--all", "--json").json["sessions"]
    words = ("keys", "init", "--encrypt-existing", "--generate", str(home / "key"))
    line = [sys.executable, "-m", "snapshot_plugin", *words]
    patience, killed = 0.01, 0
    while True:
        child = forkserver.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            _, said = child.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            patience, killed = patience * 1.4, killed + 1
            continue
        assert child.returncode == 0 or b"encrypted already" in said, said
        break

    assert killed
    assert in_the_clear(home) == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ASNAP_KEY_FILE", str(home / "key"))
        after = asnap("list", "--all", "--json").json["sessions"]
        assert [(row["session_id"], row["messages"]) for row in after] == [
            (row["session_id"], row["messages"]) for row in before
        ]
        assert asnap("undo").code == 0
        assert CANARY in asnap("show", "gone").out


def test_a_session_that_died_before_its_first_snapshot_has_to_be_recovered_first(
    asnap: Asnap, home: Path, filled: Path
) -> None:
    directory = filled / "sessions" / "unsaved"
    directory.mkdir(mode=0o700)
    spool = Spool.open(directory, session_id="unsaved", keys=None)
    spool.append({"said": CANARY})
    spool.close()

    refused = asnap("keys", "init", "--encrypt-existing", "--generate", home / "key")

    assert refused.code == 6
    assert "asnap recover" in refused.err
    assert directory.exists()


def test_program_still_running_does_not_write_plaintext(asnap: Asnap, home: Path, filled: Path) -> None:
    running = FilesystemStore(filled, background=False)
    loaded = running.sync.load("one")

    assert asnap("keys", "init", "--encrypt-existing", "--generate", home / "key").code == 0

    with pytest.raises(KeyMissing, match="was encrypted"):
        running.sync.save(loaded.append(Message(role="user", content=f"{CANARY} later")))
    with pytest.raises(KeyMissing, match="was encrypted"):
        running.sync.save(session("new", CANARY))
    assert in_the_clear(home) == []


def test_plain_store_is_kept_until_the_copy_is_verified(
    asnap: Asnap, home: Path, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encrypting, "_is_same", lambda _one, _other: False)

    ran = asnap("keys", "init", "--encrypt-existing", "--generate", home / "key", "--json")

    assert ran.error["code"] == "corrupted"
    assert CANARY in asnap("show", "one").out


def test_live_session_is_not_encrypted(asnap: Asnap, home: Path, filled: Path) -> None:
    lease = Lease.acquire(filled / "sessions" / "one", Owner.this_process(since=datetime.now(UTC)))
    try:
        assert asnap("keys", "init", "--encrypt-existing", "--generate", home / "key").code == 6
    finally:
        lease.release()
    assert CANARY in asnap("show", "one").out


def test_quarantined_files_are_named_and_left_out_only_on_request(asnap: Asnap, home: Path, filled: Path) -> None:
    aside = filled / "sessions" / "one" / "quarantine"
    aside.mkdir()
    (aside / "x").write_text(CANARY)
    refused = asnap("keys", "init", "--encrypt-existing", "--generate", home / "key")
    assert refused.code == 2
    assert "--discard-set-aside" in refused.err

    (home / "key").unlink(missing_ok=True)
    done = asnap("keys", "init", "--encrypt-existing", "--discard-set-aside", "--generate", home / "key")
    assert done.code == 0, done.err
    assert in_the_clear(home) == []


def test_an_encrypted_store_is_not_encrypted_again(
    asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asnap("keys", "init", "--generate", home / "key")
    monkeypatch.setenv("ASNAP_KEY_FILE", str(home / "key"))

    assert asnap("keys", "init", "--encrypt-existing", "--generate", home / "other").code == 2
