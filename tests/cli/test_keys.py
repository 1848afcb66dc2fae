from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import keyring
import pytest
from keyring.backend import KeyringBackend

from snapshot_plugin import FilesystemStore, Message
from snapshot_plugin.cli.commands.keys import Keys
from snapshot_plugin.codec.frame import read_header
from snapshot_plugin.codec.sources import KeyFile
from snapshot_plugin.system.files import sync_dir
from tests.acp_client import AGENT, Client
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid


@pytest.fixture
def key(asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that opens an encrypted store, which is the user's."""
    path = home / "store.key"
    assert asnap("keys", "init", "--generate", path).code == 0
    monkeypatch.setenv("ASNAP_KEY_FILE", str(path))
    return path


def test_a_new_store_is_encrypted_and_only_its_key_opens_it(
    asnap: Asnap, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asnap("check").code == 0

    monkeypatch.delenv("ASNAP_KEY_FILE")
    missing = asnap("check", "--json")
    assert (missing.code, missing.error["code"]) == (7, "key_missing")
    assert "ASNAP_KEY_FILE" in missing.error["hint"]

    monkeypatch.setenv("ASNAP_PASSPHRASE", "guess")
    assert asnap("check", "--json").error["code"] == "wrong_key"


def test_a_generated_key_is_private_and_never_overwritten(asnap: Asnap, key: Path, home: Path) -> None:
    secret = key.read_text()

    assert secret.startswith("asnap-key-"), "strong enough to need no stretching, so opening is fast"
    assert key.stat().st_mode & 0o077 == 0
    assert asnap("keys", "add", "--generate", key).code == 2
    assert key.read_text() == secret


def test_generated_key_survives_a_power_cut_before_its_first_use(
    asnap: Asnap, home: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    durable: list[bool] = []

    def watched(path: Path) -> None:
        sync_dir(path)
        durable.append((path / "store.key").exists() and not (place / "keys").exists())

    monkeypatch.setattr("snapshot_plugin.system.files.sync_dir", watched)
    assert asnap("keys", "init", "--generate", home / "store.key").code == 0
    assert durable[0]


def test_status_needs_no_key_and_shows_no_secret(asnap: Asnap, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASNAP_KEY_FILE")

    ran = asnap("keys", "status", "--json")

    assert ran.code == 0
    assert [slot["kind"] for slot in valid(Keys, ran.json)["slots"]] == ["key-file"]
    assert ran.json["key_at_hand"] is None
    assert key.read_text().strip() not in ran.out + ran.err


def test_a_second_secret_opens_the_store_until_it_is_removed(
    asnap: Asnap, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEAM_KEY", "correct horse battery")
    slots = asnap("keys", "add", "--new-variable", "TEAM_KEY", "--label", "team", "--json").json["slots"]
    assert [slot["label"] for slot in slots] == ["", "team"]

    monkeypatch.delenv("ASNAP_KEY_FILE")
    monkeypatch.setenv("ASNAP_PASSPHRASE", "correct horse battery")
    assert asnap("check").code == 0

    assert asnap("keys", "remove", slots[1]["id"]).code == 2, "a script has to say --yes"
    assert asnap("keys", "remove", slots[1]["id"], "--yes").code == 0
    assert asnap("check").code == 7


def test_the_last_slot_stays(asnap: Asnap, key: Path) -> None:
    slot = asnap("keys", "status", "--json").json["slots"][0]["id"]

    assert asnap("keys", "remove", slot, "--yes").code == 2
    assert asnap("check").code == 0


def test_a_changed_secret_replaces_the_old_one(
    asnap: Asnap, key: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = asnap("keys", "status", "--json").json["slots"][0]["id"]

    assert asnap("keys", "change", slot, "--generate", home / "new.key").code == 0

    assert asnap("check").code == 7
    monkeypatch.setenv("ASNAP_KEY_FILE", str(home / "new.key"))
    assert asnap("check").code == 0


def kids(place: Path) -> set[str]:
    """The keys under which the frames of a store are sealed."""
    segments = [path.read_bytes() for path in place.glob("sessions/*/*.snap.gz")]
    return {read_header(data)[0].kid for data in segments}


@pytest.mark.requirement("STORE-KEY-REENCRYPT")
def test_rotation_keeps_everything_readable(asnap: Asnap, key: Path, place: Path) -> None:
    saved(place, session("one"), key=key.read_text().strip())
    before, sealed_by = (place / "keys" / "keyset.json").read_bytes(), kids(place)

    assert asnap("keys", "rotate", "--reencrypt").code == 0

    assert (place / "keys" / "keyset.json").read_bytes() != before
    assert kids(place)
    assert not kids(place) & sealed_by
    assert asnap("check", "--json").json["snapshots"] == 1


def test_a_plain_store_cannot_be_encrypted_afterwards(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("one"))

    assert asnap("keys", "init", "--generate", home / "key").code == 2
    assert not (home / "key").exists()
    assert asnap("keys", "add", "--generate", home / "key").code == 2
    assert asnap("keys", "status", "--json").json["encrypted"] is False


def test_missing_store_suggests_init(asnap: Asnap) -> None:
    ran = asnap("keys", "status", "--json")

    assert (ran.code, ran.error["next"]) == (10, "asnap keys init")


def test_missing_secret_source_is_refused(asnap: Asnap) -> None:
    assert asnap("keys", "init").code == 7
    assert asnap("keys", "init", "--generate", "a", "--new-variable", "B").code == 2


def test_the_label_of_the_first_slot_is_kept(asnap: Asnap, home: Path) -> None:
    asnap("keys", "init", "--generate", home / "k", "--label", "laptop")

    assert [slot["label"] for slot in asnap("keys", "status", "--json").json["slots"]] == ["laptop"]


def test_a_running_writer_seals_with_the_rotated_key_from_its_next_snapshot(
    asnap: Asnap, key: Path, place: Path
) -> None:
    async def write() -> list[str]:
        async with FilesystemStore(place, key=KeyFile(key), background=False) as store:
            await store.save(session("one"))
            before = store.session_keys("one")
            assert await anyio.to_thread.run_sync(asnap, "keys", "rotate", "--reencrypt") is not None
            snapshot = await store.load("one")
            await store.save(snapshot.append(Message(role="user", content="more")))
            after = store.session_keys("one")
            assert before is not None
            assert after is not None
            return [before.primary, after.primary]

    old, new = anyio.run(write)

    assert old != new
    frames = b"".join(path.read_bytes() for path in sorted((place / "sessions").rglob("*.snap*")))
    assert new.encode() in frames
    assert old.encode() not in frames


def test_a_running_proxy_seals_frames_and_spool_with_the_rotated_key(asnap: Asnap, key: Path, place: Path) -> None:
    def primary() -> str:
        keys = FilesystemStore(place, key=KeyFile(key), background=False).session_keys("any")
        assert keys
        return keys.primary

    old = primary()
    run = (sys.executable, "-m", "snapshot_plugin", "run", "--", *AGENT)
    with Client(run, env={"ASNAP_KEY_FILE": str(key)}) as client:
        client.initialize()
        session_id = client.new_session()
        client.prompt(session_id, "say one")
        assert asnap("keys", "rotate", "--reencrypt").code == 0
        assert asnap("snapshot", session_id).code == 0
        client.begin_prompt(session_id, "stream 3 0\nslow-tool 60")
        client.wait_for_text("part-002")
        client.kill()
    (directory,) = (place / "sessions").iterdir()
    written = b"".join(path.read_bytes() for path in directory.iterdir())
    spool = (directory / "live").read_bytes()

    new = primary()
    assert new != old
    assert new.encode() in spool
    assert old.encode() not in written
    assert asnap("recover").code == 0
    assert "part-002" in asnap("show", session_id).out


def test_removing_a_key_says_what_a_copy_of_it_still_opens(asnap: Asnap, key: Path, home: Path) -> None:
    for name in ("a", "b"):
        asnap("keys", "add", "--generate", home / name, "--label", name)
    slots = {slot["label"]: slot["id"] for slot in asnap("keys", "status", "--json").json["slots"]}

    first = asnap("keys", "remove", slots["a"], "--yes", "--json").json["done"]
    last = asnap("keys", "remove", slots["b"], "--yes", "--json").json["done"]

    assert "still opens this store" in first
    assert "the store has a new master key" in last
    assert asnap("check").code == 0


class _Ring(KeyringBackend):
    """A keyring in a file, which other processes see as well."""

    priority = 1

    def __init__(self, path: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.path = path

    def get_password(self, service: str, username: str) -> str | None:
        found: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found.get(f"{service}/{username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self.path.write_text(json.dumps({f"{service}/{username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        self.path.unlink()


@pytest.mark.requirement("ORBIT-SECURITY-KEYCHAIN", "STORE-KEY-SOURCES")
def test_the_system_keyring_keeps_the_key_of_a_store(
    asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(_Ring(home / "ring"))
    try:
        made = asnap("keys", "init", "--keyring", "work", "--json")
        assert made.code == 0
        assert "ASNAP_KEYRING=work" in made.json["done"]
        assert [slot["kind"] for slot in made.json["slots"]] == ["keyring"]
        assert asnap("check").code == 7
        monkeypatch.setenv("ASNAP_KEYRING", "work")
        assert asnap("check").code == 0
        assert asnap("keys", "add", "--keyring", "work").code == 2, "an entry is never overwritten"
        assert asnap("check").code == 0
    finally:
        keyring.set_keyring(before)
