"""The keys directory: who opens the store, what each change writes, and what survives an interruption."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    InvalidInput,
    InvalidSnapshotVersion,
    KeyMissing,
    NotFound,
    SessionLocked,
    SnapshotCorrupted,
    SnapshotError,
    SnapshotTampered,
    StoreUnavailable,
    WrongKey,
)
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset, KeySlot, generate_key, pack, unpack
from snapshot_plugin.codec.sources import EnvironmentKey, KeySource, Passphrase
from snapshot_plugin.store.keychain import Keychain, SlotInfo
from snapshot_plugin.store.keyfiles import KeyDirectory

STORE = "01jcstore0000000000000000a"
OTHER_STORE = "01jcother0000000000000000b"
NOW = datetime(2026, 11, 16, tzinfo=UTC)
NONCE = b"twelve bytes"


@dataclass(frozen=True)
class Key:
    """A generated key at hand: opens in no time, so that tests need not wait for scrypt."""

    text: str
    kind: str = "key-file"

    def secret(self) -> bytes:
        return self.text.encode()


OWNER, GUEST, STRANGER = Key(generate_key()), Key(generate_key(), kind="command"), Key(generate_key())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    Keychain.create(tmp_path / "keys", STORE, OWNER, "laptop", now=NOW)
    return tmp_path / "keys"


@pytest.fixture
def chain(keys: Path) -> Keychain:
    return Keychain(keys, store_id=STORE)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def only_slot(keys: Path) -> Path:
    (path,) = (path for path in keys.iterdir() if path.name != "keyset.json")
    return path


def rewrite(path: Path, **fields: Any) -> None:
    """Edit a key file as somebody would who knows the format, sum and all."""
    document = {**unpack(path.read_bytes()), **fields}
    del document["sum"]
    path.write_bytes(pack(document))


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def opens(chain: Keychain, source: KeySource) -> bool:
    try:
        chain.unlock(source)
    except WrongKey:
        return False
    return True


# Creating


def test_new_keys_open_with_the_source_that_made_them(tmp_path: Path) -> None:
    keyset = Keychain.create(tmp_path / "keys", STORE, OWNER, now=NOW)
    assert Keychain(tmp_path / "keys", store_id=STORE).unlock(OWNER) == keyset


def test_passphrase_opens_its_own_keychain(tmp_path: Path) -> None:
    keyset = Keychain.create(tmp_path / "keys", STORE, Passphrase("correct horse"), now=NOW)
    chain = Keychain(tmp_path / "keys", store_id=STORE)
    assert chain.unlock(Passphrase("correct horse")) == keyset
    with pytest.raises(WrongKey):
        chain.unlock(Passphrase("incorrect horse"))


def test_directory_holds_a_private_keyset_and_one_slot(keys: Path) -> None:
    slot = only_slot(keys)
    assert sorted(path.name for path in keys.iterdir()) == sorted([slot.name, "keyset.json"])
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()} == {0o600}
    assert list(keys.parent.iterdir()) == [keys]


def test_no_secret_is_written_anywhere(tmp_path: Path) -> None:
    keyset = Keychain.create(tmp_path / "keys", STORE, OWNER, now=NOW)
    written = b"".join(contents(tmp_path / "keys").values())
    assert OWNER.text.removeprefix("asnap-key-").encode() not in written
    assert keyset.primary.encode() not in written


def test_creating_without_a_key_writes_nothing(tmp_path: Path) -> None:
    for source in (None, EnvironmentKey("K", {}), Key("")):
        with pytest.raises(KeyMissing):
            Keychain.create(tmp_path / "keys", STORE, source, now=NOW)
    assert not list(tmp_path.iterdir())


def test_creating_again_opens_the_existing_keys(keys: Path, chain: Keychain) -> None:
    before = contents(keys)
    assert Keychain.create(keys, STORE, OWNER, now=NOW) == chain.unlock(OWNER)
    assert contents(keys) == before
    assert list(keys.parent.iterdir()) == [keys]


def test_creating_never_replaces_foreign_keys(keys: Path) -> None:
    before = contents(keys)
    with pytest.raises(WrongKey):
        Keychain.create(keys, STORE, STRANGER, now=NOW)
    with pytest.raises(SnapshotTampered):
        Keychain.create(keys, OTHER_STORE, OWNER, now=NOW)
    assert contents(keys) == before


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    keyset = Keychain.create(tmp_path / "keys", STORE, OWNER, now=NOW)
    assert Keychain(tmp_path / "keys", store_id=STORE).unlock(OWNER) == keyset


# Opening: five different errors


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS", "STORE-KEY-CLOSED")
def test_missing_source_is_a_missing_key(chain: Keychain) -> None:
    with pytest.raises(KeyMissing):
        chain.unlock(None)


def test_a_source_with_an_empty_secret_is_a_missing_key(chain: Keychain) -> None:
    with pytest.raises(KeyMissing):
        chain.unlock(Key(""))


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS")
def test_a_key_that_opens_nothing_is_a_wrong_key(chain: Keychain) -> None:
    with pytest.raises(WrongKey):
        chain.unlock(STRANGER)
    with pytest.raises(WrongKey):
        chain.unlock(Passphrase("words"))


@pytest.mark.requirement("FORMAT-KEYS-KIND")
def test_the_source_may_be_of_another_kind_than_the_slot(chain: Keychain) -> None:
    assert opens(chain, Key(OWNER.text, kind="environment"))


def test_slots_of_the_same_kind_are_tried_first(chain: Keychain, monkeypatch: pytest.MonkeyPatch) -> None:
    chain.add(OWNER, GUEST, now=NOW)
    tried: list[str] = []
    unwrap = KeySlot.unwrap

    def noting(slot: KeySlot, secret: bytes) -> bytes | None:
        tried.append(slot.kind)
        return unwrap(slot, secret)

    monkeypatch.setattr(KeySlot, "unwrap", noting)
    chain.unlock(GUEST)
    assert tried == ["command"]


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS")
@pytest.mark.parametrize("name", ["keyset.json", "slot"])
def test_a_damaged_file_is_corruption(name: str, keys: Path, chain: Keychain) -> None:
    flip(keys / name if name == "keyset.json" else only_slot(keys))
    with pytest.raises(SnapshotCorrupted):
        chain.unlock(OWNER)


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 400, b"x" * (2**20 + 1)])
def test_invalid_keyset_is_corruption(content: bytes, keys: Path, chain: Keychain) -> None:
    (keys / "keyset.json").write_bytes(content)
    with pytest.raises(SnapshotCorrupted):
        chain.unlock(OWNER)


def test_oversized_keyset_is_not_read(keys: Path, chain: Keychain) -> None:
    rewrite(keys / "keyset.json", padding="x" * 2**20)
    with pytest.raises(SnapshotCorrupted):
        chain.unlock(OWNER)


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS")
def test_keyset_sealed_with_another_key_is_tampering(keys: Path, chain: Keychain) -> None:
    (keys / "keyset.json").write_bytes(pack(Keyset.new().seal(b"\0" * 32, STORE)))
    with pytest.raises(SnapshotTampered):
        chain.unlock(OWNER)


def test_a_keyset_of_another_store_is_tampering(tmp_path: Path, keys: Path, chain: Keychain) -> None:
    Keychain.create(tmp_path / "other", OTHER_STORE, OWNER, now=NOW)
    shutil.copy(tmp_path / "other" / "keyset.json", keys)
    with pytest.raises(SnapshotTampered):
        chain.unlock(OWNER)


@pytest.mark.requirement("STORE-KEY-FIVE-ERRORS")
def test_a_keyset_of_a_newer_release_is_refused_as_such(keys: Path, chain: Keychain) -> None:
    rewrite(keys / "keyset.json", v=2)
    with pytest.raises(InvalidSnapshotVersion):
        chain.unlock(OWNER)


def test_a_slot_of_a_newer_release_is_refused_as_such(keys: Path, chain: Keychain) -> None:
    rewrite(only_slot(keys), v=2)
    with pytest.raises(InvalidSnapshotVersion):
        chain.unlock(OWNER)


def test_slot_demanding_gigabytes_is_tampering(keys: Path, chain: Keychain) -> None:
    slot = only_slot(keys)
    salt = json.loads(slot.read_bytes())["kdf"]["salt"]
    rewrite(slot, kdf={"name": "scrypt", "n": 2**24, "r": 8, "p": 1, "salt": salt})
    with pytest.raises(SnapshotTampered):
        chain.unlock(Passphrase("words"))


@pytest.mark.requirement("FORMAT-KEYS-PLACE")
def test_a_slot_that_was_renamed_is_tampering(keys: Path, chain: Keychain) -> None:
    only_slot(keys).rename(keys / "01jcs10t00000000000000000c.json")
    with pytest.raises(SnapshotTampered):
        chain.unlock(OWNER)


@pytest.mark.parametrize("gone", ["keyset.json", "slot", "everything"])
def test_missing_keys_are_corruption(gone: str, keys: Path, chain: Keychain) -> None:
    if gone == "everything":
        shutil.rmtree(keys)
    else:
        (only_slot(keys) if gone == "slot" else keys / gone).unlink()
    with pytest.raises(SnapshotCorrupted):
        chain.unlock(OWNER)


def test_a_file_in_place_of_the_directory_is_corruption(keys: Path, chain: Keychain) -> None:
    shutil.rmtree(keys)
    keys.write_text("")
    with pytest.raises(SnapshotCorrupted):
        chain.unlock(OWNER)
    with pytest.raises(SnapshotCorrupted):
        chain.rotate(OWNER)


def test_errors_name_the_file_and_the_store(keys: Path, chain: Keychain) -> None:
    flip(only_slot(keys))
    with pytest.raises(SnapshotCorrupted) as caught:
        chain.unlock(OWNER)
    assert only_slot(keys).name in caught.value.message
    assert STORE in caught.value.message


def damage(path: Path) -> None:
    flip(path)


def outdate(path: Path) -> None:
    rewrite(path, v=2)


def hollow(path: Path) -> None:
    path.unlink()
    path.mkdir()


def stuff_up(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


@pytest.mark.requirement("FORMAT-KEYS-EVERY")
@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (damage, SnapshotCorrupted),
        (outdate, InvalidSnapshotVersion),
        (hollow, SnapshotCorrupted),
        (stuff_up, SnapshotCorrupted),
        (loop, StoreUnavailable),
    ],
)
def test_damaged_slot_does_not_hide_an_intact_one(
    harm: Callable[[Path], None], error: type[SnapshotError], keys: Path, chain: Keychain
) -> None:
    first = only_slot(keys)
    guest = chain.add(OWNER, GUEST, "guest", now=NOW)
    harm(first)
    assert opens(chain, GUEST)
    with pytest.raises(error):  # not "wrong key": it may be the key of the slot that cannot be read
        chain.unlock(OWNER)
    slots = {slot.id: slot for slot in chain.slots()}  # two made in the same millisecond have no order
    assert slots.keys() == {first.stem, guest.id}
    bad = slots[first.stem]
    assert type(bad.problem) is error
    assert bad.damaged == (error is SnapshotCorrupted)
    assert slots[guest.id] == guest
    assert not guest.damaged


@pytest.mark.parametrize(
    "name", [".DS_Store", "keyset.json.123.tmp", "copy of a slot.json", "01jcs10t00000000000000000c.json.1.tmp"]
)
def test_other_files_are_ignored(name: str, keys: Path, chain: Keychain) -> None:
    (keys / name).write_bytes(b"junk")
    assert opens(chain, OWNER)
    assert len(chain.slots()) == 1


# Listing and changing slots


def test_slots_are_listed_without_a_key(chain: Keychain) -> None:
    chain.add(OWNER, GUEST, "guest", now=NOW.replace(year=2027))
    first, second = sorted(chain.slots(), key=lambda slot: str(slot.created))
    assert (first.kind, first.label, first.created) == ("key-file", "laptop", NOW)
    assert (second.kind, second.label, second.created) == ("command", "guest", NOW.replace(year=2027))
    assert (first.problem, second.problem) == (None, None)


@pytest.mark.requirement("FORMAT-KEYS-ONE-SLOT")
def test_adding_a_key_writes_one_slot_file(keys: Path, chain: Keychain) -> None:
    before, keyset = contents(keys), chain.unlock(OWNER)
    added = chain.add(OWNER, GUEST, "guest", now=NOW)
    assert changed(before, contents(keys)) == {f"{added.id}.json"}
    assert chain.unlock(GUEST) == chain.unlock(OWNER) == keyset


@pytest.mark.requirement("FORMAT-KEYS-ONE-SLOT")
def test_removing_one_of_several_keys_removes_one_slot_file(keys: Path, chain: Keychain) -> None:
    added = chain.add(OWNER, GUEST, "guest", now=NOW)
    chain.add(OWNER, Passphrase("third"), now=NOW)
    before = contents(keys)
    assert chain.remove(OWNER, added.id) is False
    assert changed(before, contents(keys)) == {f"{added.id}.json"}
    assert opens(chain, OWNER)
    assert not opens(chain, GUEST)


def test_copy_of_a_removed_slot_does_not_open_a_single_owners_store(keys: Path, chain: Keychain) -> None:
    added = chain.add(OWNER, GUEST, "guest", now=NOW)
    copied, old = (keys / f"{added.id}.json").read_bytes(), chain.unlock(OWNER)
    assert chain.remove(OWNER, added.id, now=NOW) is True
    (keys / f"{added.id}.json").write_bytes(copied)
    with pytest.raises(SnapshotTampered):
        chain.unlock(GUEST)
    new = chain.unlock(OWNER)
    assert new.primary not in old.keys
    assert old.keys.items() <= new.keys.items()


@pytest.mark.parametrize("writes", range(1, 5))
def test_interrupted_removal_leaves_the_owner_access(
    keys: Path, chain: Keychain, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    added = chain.add(OWNER, GUEST, "guest", now=NOW)
    left = iter(range(writes - 1))

    def cut(work: Callable[..., None]) -> Callable[..., None]:
        def call(*args: Any) -> None:
            if next(left, None) is None:
                raise OSError(5, "gone")
            work(*args)

        return call

    monkeypatch.setattr(KeyDirectory, "write", cut(KeyDirectory.write))
    monkeypatch.setattr(KeyDirectory, "remove", cut(KeyDirectory.remove))
    with contextlib.suppress(StoreUnavailable):
        chain.remove(OWNER, added.id, now=NOW)
    assert opens(chain, OWNER)


@pytest.mark.parametrize(
    "planted",
    [
        {"n": 2**21, "r": 8, "p": 1},
        {"n": 2**21, "r": 1, "p": 1},
        {"n": 2, "r": 2**20, "p": 1},
        {"n": 2**15, "r": 8, "p": 2**20},
        {"n": 2**70, "r": 8, "p": 1},
        {"n": 3, "r": 8, "p": 1},
        {"n": 2, "r": 0, "p": 1},
    ],
)
def test_planted_slot_does_not_block_a_valid_passphrase(tmp_path: Path, planted: dict[str, int]) -> None:
    words, place = Passphrase("correct horse"), tmp_path / "keys"
    Keychain.create(place, STORE, words, now=NOW)
    slot = only_slot(place)
    document = {**unpack(slot.read_bytes()), "id": "00000000000000000000000000"}
    document["kdf"] = {**document["kdf"], **planted}
    (place / "00000000000000000000000000.json").write_bytes(pack(document))
    chain = Keychain(place, store_id=STORE)

    assert chain.unlock(words).primary
    assert sorted(info.damaged for info in chain.slots()) == [False, True]


def test_key_may_remove_its_own_slot_if_another_remains(keys: Path, chain: Keychain) -> None:
    own = only_slot(keys).stem
    chain.add(OWNER, GUEST, now=NOW)
    chain.remove(OWNER, own)
    assert opens(chain, GUEST)
    assert not opens(chain, OWNER)


def test_the_last_slot_is_never_removed(keys: Path, chain: Keychain) -> None:
    with pytest.raises(InvalidInput):
        chain.remove(OWNER, only_slot(keys).stem)
    assert opens(chain, OWNER)


@pytest.mark.parametrize("harm", [damage, outdate, hollow, loop])
def test_unreadable_slot_does_not_count_as_another_one(
    harm: Callable[[Path], None], keys: Path, chain: Keychain
) -> None:
    own = only_slot(keys).stem
    harm(keys / f"{chain.add(OWNER, GUEST, now=NOW).id}.json")
    with pytest.raises(InvalidInput):
        chain.remove(OWNER, own)
    assert opens(chain, OWNER)


def test_a_copy_of_a_slot_does_not_count_as_another_one(keys: Path, chain: Keychain) -> None:
    own = only_slot(keys)
    shutil.copy(own, keys / "01jcs10t00000000000000000c.json")
    with pytest.raises(InvalidInput):
        chain.remove(OWNER, own.stem)


def test_a_damaged_slot_can_be_removed(keys: Path, chain: Keychain) -> None:
    added = chain.add(OWNER, GUEST, now=NOW)
    flip(keys / f"{added.id}.json")
    chain.remove(OWNER, added.id)
    assert [info.damaged for info in chain.slots()] == [False]


@pytest.mark.requirement("FORMAT-KEYS-ONE-SLOT")
def test_changing_a_key_leaves_one_slot_with_the_same_label(keys: Path, chain: Keychain) -> None:
    keyset, before = chain.unlock(OWNER), only_slot(keys)
    info = chain.change(OWNER, before.stem, GUEST, now=NOW)
    assert only_slot(keys).stem == info.id != before.stem
    assert (info.label, info.kind) == ("laptop", "command")
    assert chain.unlock(GUEST) == keyset
    assert not opens(chain, OWNER)


@pytest.mark.parametrize("slot_id", ["", "keyset", "../STORE", "01jcs10t00000000000000000c", "*"])
def test_a_slot_that_does_not_exist_is_not_found(slot_id: str, keys: Path, chain: Keychain) -> None:
    (keys.parent / "STORE.json").write_text("{}")
    chain.add(OWNER, GUEST, now=NOW)
    before = contents(keys)
    with pytest.raises(NotFound):
        chain.remove(OWNER, slot_id)
    with pytest.raises(NotFound):
        chain.change(OWNER, slot_id, STRANGER, now=NOW)
    assert contents(keys) == before
    assert (keys.parent / "STORE.json").exists()


def changes(own: str) -> dict[str, Callable[[Keychain, KeySource | None], object]]:
    return {
        "add": lambda chain, source: chain.add(source, STRANGER, now=NOW),
        "remove": lambda chain, source: chain.remove(source, own),
        "change": lambda chain, source: chain.change(source, own, STRANGER, now=NOW),
        "rotate": lambda chain, source: chain.rotate(source),
    }


@pytest.mark.parametrize("change", ["add", "remove", "change", "rotate"])
@pytest.mark.parametrize(("source", "error"), [(None, KeyMissing), (STRANGER, WrongKey)])
def test_only_a_valid_key_can_change_the_keys(
    change: str, source: KeySource | None, error: type[SnapshotError], keys: Path, chain: Keychain
) -> None:
    own = only_slot(keys).stem
    chain.add(OWNER, GUEST, now=NOW)
    before = contents(keys)
    with pytest.raises(error):
        changes(own)[change](chain, source)
    assert contents(keys) == before


def test_a_new_source_without_a_secret_changes_nothing(keys: Path, chain: Keychain) -> None:
    before, absent = contents(keys), EnvironmentKey("K", {})
    with pytest.raises(KeyMissing):
        chain.add(OWNER, absent, now=NOW)
    with pytest.raises(KeyMissing):
        chain.change(OWNER, only_slot(keys).stem, absent, now=NOW)
    assert contents(keys) == before


@pytest.mark.requirement("FORMAT-KEYS-LOCK")
@pytest.mark.parametrize("change", ["add", "remove", "change", "rotate"])
def test_key_changes_are_serialised(change: str, keys: Path, chain: Keychain) -> None:
    own = only_slot(keys).stem
    chain.add(OWNER, GUEST, now=NOW)
    before = contents(keys)
    fd = os.open(keys, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(SessionLocked):
            changes(own)[change](chain, OWNER)
        assert opens(chain, OWNER)
    finally:
        os.close(fd)
    assert contents(keys) == before
    changes(own)[change](chain, OWNER)


# Rotation


@pytest.mark.requirement("FORMAT-KEYS-ROTATE")
def test_rotating_writes_only_the_keyset(keys: Path, chain: Keychain) -> None:
    before = contents(keys)
    rotated = chain.rotate(OWNER)
    assert changed(before, contents(keys)) == {"keyset.json"}
    assert chain.unlock(OWNER) == rotated


@pytest.mark.requirement("FORMAT-KEYS-DIGEST", "FORMAT-KEYS-PRIMARY")
def test_old_frames_open_and_digests_stay_after_a_rotation(chain: Keychain) -> None:
    before = SessionKeys(chain.unlock(OWNER), store_id=STORE, session_id="s")
    sealed = before.seal(NONCE, b"content", b"header")
    after = SessionKeys(chain.rotate(OWNER), store_id=STORE, session_id="s")
    assert after.primary != before.primary
    assert after.open(before.primary, NONCE, sealed, b"header") == b"content"
    assert after.digest(b"line") == before.digest(b"line")


def test_every_slot_opens_the_rotated_keys(chain: Keychain) -> None:
    chain.add(OWNER, GUEST, now=NOW)
    first = chain.rotate(OWNER)
    second = chain.rotate(GUEST)
    assert chain.unlock(OWNER) == second
    assert first.keys.items() < second.keys.items()


def test_a_damaged_keyset_is_never_rotated_over(keys: Path, chain: Keychain) -> None:
    flip(keys / "keyset.json")
    before = contents(keys)
    with pytest.raises(SnapshotCorrupted):
        chain.rotate(OWNER)
    assert contents(keys) == before


# Interruptions: the n-th disk call fails, for every n until the change gets through


class PowerCut(BaseException):
    """The process ends here; nobody tidies up."""


@contextmanager
def failing_at(step: int, failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let call number *step* to the disk fail, and after a power cut every later one too."""
    calls = [0]

    def breaking(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == step or (calls[0] > step and isinstance(failure, PowerCut)):
                raise failure
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in ("write", "fsync", "rename", "unlink", "mkdir"):
            patch.setattr(os, name, breaking(getattr(os, name)))
        yield calls


def failures() -> list[BaseException]:
    return [OSError(errno.EIO, "I/O error"), OSError(errno.ENOSPC, "No space left"), PowerCut()]


def interrupted_everywhere(
    prepare: Callable[[int], Keychain],
    change: Callable[[Keychain], object],
    proof: Callable[[Keychain], None],
    failure: BaseException,
    monkeypatch: pytest.MonkeyPatch,
) -> int:
    """How many steps were interrupted; *proof* held after each."""
    expected = PowerCut if isinstance(failure, PowerCut) else StoreUnavailable
    for step in range(1, 40):
        chain = prepare(step)
        with failing_at(step, failure, monkeypatch) as calls:
            if calls_through(change, chain, expected):
                assert calls[0] < step
                return step - 1
        proof(chain)
    raise AssertionError("the change never came to an end")


def calls_through(change: Callable[[Keychain], object], chain: Keychain, expected: type[BaseException]) -> bool:
    try:
        change(chain)
    except expected:
        return False
    return True


def own_slot(chain: Keychain) -> SlotInfo:
    return next(info for info in chain.slots() if info.label == "laptop")


@pytest.fixture
def prepare(tmp_path: Path) -> Callable[[int], Keychain]:
    def prepared(step: int) -> Keychain:
        directory = tmp_path / str(step) / "keys"
        Keychain.create(directory, STORE, OWNER, "laptop", now=NOW)
        chain = Keychain(directory, store_id=STORE)
        chain.add(OWNER, GUEST, "guest", now=NOW)
        return chain

    return prepared


def frame_of(chain: Keychain) -> tuple[str, bytes]:
    keys = SessionKeys(chain.unlock(GUEST), store_id=STORE, session_id="s")
    return keys.primary, keys.seal(NONCE, b"content", b"")


@pytest.mark.parametrize("failure", failures(), ids=["io-error", "disk-full", "power-cut"])
def test_an_interrupted_rotation_loses_no_key(
    failure: BaseException, prepare: Callable[[int], Keychain], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: dict[int, tuple[str, bytes]] = {}

    def prepared(step: int) -> Keychain:
        chain = prepare(step)
        frames[id(chain)] = frame_of(chain)
        return chain

    def proof(chain: Keychain) -> None:
        kid, sealed = frames[id(chain)]
        keyset = chain.unlock(OWNER)
        assert keyset == chain.unlock(GUEST)
        assert SessionKeys(keyset, store_id=STORE, session_id="s").open(kid, NONCE, sealed, b"") == b"content"
        assert len(chain.rotate(OWNER).keys) >= 2

    steps = interrupted_everywhere(prepared, lambda chain: chain.rotate(OWNER), proof, failure, monkeypatch)
    assert steps >= 4


@pytest.mark.parametrize("failure", failures(), ids=["io-error", "disk-full", "power-cut"])
def test_an_interrupted_change_leaves_the_old_key_or_the_new_one(
    failure: BaseException, prepare: Callable[[int], Keychain], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(chain: Keychain) -> object:
        return chain.change(GUEST, own_slot(chain).id, STRANGER, now=NOW)

    def proof(chain: Keychain) -> None:
        assert opens(chain, OWNER) or opens(chain, STRANGER)
        assert opens(chain, GUEST)
        assert not any(info.problem for info in chain.slots())

    assert interrupted_everywhere(prepare, change, proof, failure, monkeypatch) >= 5


@pytest.mark.parametrize("failure", failures(), ids=["io-error", "disk-full", "power-cut"])
def test_interrupted_addition_or_removal_keeps_other_keys_working(
    failure: BaseException, prepare: Callable[[int], Keychain], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(chain: Keychain) -> None:
        added = chain.add(OWNER, STRANGER, now=NOW)
        chain.remove(GUEST, added.id)

    def proof(chain: Keychain) -> None:
        assert opens(chain, OWNER)
        assert opens(chain, GUEST)
        assert not any(info.problem for info in chain.slots())

    assert interrupted_everywhere(prepare, change, proof, failure, monkeypatch) >= 6


@pytest.mark.requirement("FORMAT-KEYS-WHOLE")
@pytest.mark.parametrize("failure", failures(), ids=["io-error", "disk-full", "power-cut"])
def test_an_interrupted_creation_can_be_repeated(
    failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(step: int) -> Keychain:
        (tmp_path / str(step)).mkdir()
        return Keychain(tmp_path / str(step) / "keys", store_id=STORE)

    def create(chain: Keychain) -> Keyset:
        return Keychain.create(chain._files, STORE, OWNER, now=NOW)

    def proof(chain: Keychain) -> None:
        assert create(chain) == chain.unlock(OWNER)
        assert len(chain.slots()) == 1

    assert interrupted_everywhere(prepared, create, proof, failure, monkeypatch) >= 9


@pytest.fixture
def disk_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []

    def noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return original(*args, **kwargs)

        return call

    for name in ("fsync", "rename", "unlink"):
        monkeypatch.setattr(os, name, noting(name, getattr(os, name)))
    return calls


@pytest.mark.requirement("FORMAT-KEYS-DURABLE")
def test_new_slot_is_durable_before_the_old_one_is_removed(chain: Keychain, disk_calls: list[str]) -> None:
    own = own_slot(chain).id
    disk_calls.clear()
    chain.change(OWNER, own, GUEST, now=NOW)
    assert disk_calls == ["fsync", "rename", "fsync", "unlink", "fsync"]


def test_new_keys_are_durable_before_they_are_handed_out(tmp_path: Path, disk_calls: list[str]) -> None:
    Keychain.create(tmp_path / "keys", STORE, OWNER, now=NOW)
    assert disk_calls[-2:] == ["rename", "fsync"]


def test_unwritable_directory_is_reported(chain: Keychain, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_at(1, OSError(errno.EROFS, "Read-only file system"), monkeypatch), pytest.raises(StoreUnavailable):
        chain.rotate(OWNER)
    assert opens(chain, OWNER)
