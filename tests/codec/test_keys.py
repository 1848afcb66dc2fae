"""Keyset and slots: what opens them, and which error says what."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import InvalidInput, InvalidSnapshotVersion, SnapshotCorrupted, SnapshotTampered, WrongKey
from snapshot_plugin.codec.keys import Keyset, KeySlot, generate_key, hkdf, pack, unpack
from tests.tries import tries

STORE = "01jcstore0000000000000000a"
SLOT = "01jcs10t00000000000000000b"
MASTER = bytes(range(100, 132))
NOW = datetime(2026, 11, 16, 0, 51, 47, 1, UTC)
KEY = generate_key(random=lambda size: b"\x11" * size).encode()
WORDS = b"correct horse"
CHEAP = 2**4


def slot_for(secret: bytes, **changes: Any) -> KeySlot:
    given = {"store_id": STORE, "slot_id": SLOT, "kind": "passphrase", "created": NOW, "scrypt_n": CHEAP}
    return KeySlot.wrap(MASTER, secret, **{**given, **changes})


def parsed(document: dict[str, Any]) -> KeySlot:
    return KeySlot.parse(document, store_id=STORE, slot_id=SLOT)


def unbase(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


# The keyset


def test_a_keyset_opens_with_the_master_key_that_sealed_it() -> None:
    keyset = Keyset.new().rotated()
    assert Keyset.open(keyset.seal(MASTER, STORE), MASTER, STORE) == keyset


@pytest.mark.requirement("FORMAT-KEYS-KEYSET")
def test_sealed_keyset_follows_the_format_page() -> None:
    keyset = Keyset(primary="b", keys={"a": b"\x01" * 32, "b": b"\x02" * 32}, digest=b"\x03" * 32)
    document = keyset.seal(MASTER, STORE)
    assert document.keys() == {"nonce", "sealed", "v"}
    nonce, sealed = unbase(document["nonce"]), unbase(document["sealed"])
    opened = AESGCM(MASTER).decrypt(nonce, sealed, f"asnap keyset {STORE}".encode())
    inside = json.loads(opened)
    assert opened == json.dumps(inside, sort_keys=True, separators=(",", ":")).encode()
    assert inside.keys() == {"digest", "keys", "primary"}
    assert inside["primary"] == "b"
    assert {kid: unbase(key) for kid, key in inside["keys"].items()} == keyset.keys
    assert unbase(inside["digest"]) == keyset.digest
    assert len(nonce) == 12


def test_every_key_is_new_and_has_256_bits() -> None:
    one, two = Keyset.new(), Keyset.new()
    assert one.keys.keys().isdisjoint(two.keys)
    secrets = {*one.keys.values(), one.digest, *two.keys.values(), two.digest}
    assert len(secrets) == 4
    assert {len(secret) for secret in secrets} == {32}


def test_a_rotation_adds_a_key_and_keeps_the_rest() -> None:
    before = Keyset.new()
    after = before.rotated(kid=lambda: "fresh", random=lambda size: b"\x09" * size)
    assert after.primary == "fresh"
    assert after.keys == {**before.keys, "fresh": b"\x09" * 32}
    assert after.digest == before.digest
    assert before.keys.keys() == {before.primary}


def test_keyset_is_immutable() -> None:
    with pytest.raises(TypeError):
        Keyset.new().keys["x"] = b""  # type: ignore[index]


def test_resealing_never_reuses_a_nonce() -> None:
    keyset = Keyset.new()
    assert keyset.seal(MASTER, STORE)["nonce"] != keyset.seal(MASTER, STORE)["nonce"]


@pytest.mark.requirement("FORMAT-KEYS-KEYSET")
@pytest.mark.parametrize(("master", "store_id"), [(b"\0" * 32, STORE), (MASTER, "01jcother0000000000000000b")])
def test_keyset_of_another_master_key_or_store_is_tampering(master: bytes, store_id: str) -> None:
    with pytest.raises(SnapshotTampered):
        Keyset.open(Keyset.new().seal(MASTER, STORE), master, store_id)


@pytest.mark.parametrize("version", [2, 10**30])
def test_a_keyset_of_a_newer_release_is_refused_as_such(version: int) -> None:
    with pytest.raises(InvalidSnapshotVersion):
        Keyset.open({**Keyset.new().seal(MASTER, STORE), "v": version}, MASTER, STORE)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 0},
        {"v": "1"},
        {"v": True},
        {"v": None},
        {"nonce": 5},
        {"nonce": "!"},
        {"nonce": "AAAA"},
        {"sealed": ""},
    ],
)
def test_a_keyset_document_that_breaks_a_rule_is_tampering(change: dict[str, Any]) -> None:
    with pytest.raises(SnapshotTampered):
        Keyset.open({**Keyset.new().seal(MASTER, STORE), **change}, MASTER, STORE)


@pytest.mark.parametrize(
    "inside",
    [
        "no JSON",
        "[]",
        "{}",
        '{"digest":"AAAA","keys":{},"primary":"a"}',
        '{"digest":"' + "A" * 43 + '=","keys":{"a":"AAAA"},"primary":"a"}',
        '{"digest":"' + "A" * 43 + '=","keys":{},"primary":"a"}',
    ],
)
def test_keyset_with_invalid_content_is_refused(inside: str) -> None:
    sealed = AESGCM(MASTER).encrypt(b"\0" * 12, inside.encode(), f"asnap keyset {STORE}".encode())
    document = {"nonce": "A" * 16, "sealed": base64.b64encode(sealed).decode(), "v": 1}
    with pytest.raises(SnapshotTampered):
        Keyset.open(document, MASTER, STORE)


def test_a_keyset_shows_key_ids_and_no_key() -> None:
    keyset = Keyset(primary="a", keys={"a": b"SECRET-A" * 4}, digest=b"SECRET-D" * 4)
    assert "SECRET" not in repr(keyset)
    assert "'a'" in repr(keyset)


# Slots


@pytest.mark.parametrize("secret", [KEY, WORDS, b"\xff\x00 not text"])
def test_a_slot_opens_with_its_secret(secret: bytes) -> None:
    assert parsed(slot_for(secret).raw()).unwrap(secret) == MASTER


@pytest.mark.parametrize("secret", [KEY, WORDS])
@pytest.mark.parametrize("other", [b"wrong", generate_key().encode()], ids=["words", "key"])
def test_slot_does_not_open_with_another_secret(secret: bytes, other: bytes) -> None:
    assert slot_for(secret).unwrap(other) is None


@pytest.mark.requirement("FORMAT-KEYS-SLOT", "FORMAT-KEYS-SCRYPT")
def test_passphrase_slot_follows_the_format_page() -> None:
    document = slot_for(WORDS, label="laptop", scrypt_n=2**15).raw()
    kdf = document["kdf"]
    assert document.keys() == {"created", "id", "kdf", "kind", "label", "nonce", "sealed", "store", "v"}
    assert document["created"] == "2026-11-16T00:51:47.000001Z"
    assert {name: kdf[name] for name in ("name", "n", "r", "p")} == {"name": "scrypt", "n": 32768, "r": 8, "p": 1}
    key = hashlib.scrypt(WORDS, salt=unbase(kdf["salt"]), n=2**15, r=8, p=1, maxmem=2**26, dklen=32)
    aad = f"asnap slot {STORE} {SLOT} passphrase".encode()
    assert AESGCM(key).decrypt(unbase(document["nonce"]), unbase(document["sealed"]), aad) == MASTER


def test_scrypt_uses_32_mib_by_default() -> None:
    slot = KeySlot.wrap(MASTER, WORDS, store_id=STORE, slot_id=SLOT, kind="passphrase", created=NOW)
    assert slot.raw()["kdf"]["n"] == 2**15


@pytest.mark.requirement("FORMAT-KEYS-SLOT", "FORMAT-KEYS-HKDF")
def test_generated_key_slot_follows_the_format_page() -> None:
    document = slot_for(KEY, kind="key-file").raw()
    assert document["kdf"].keys() == {"name", "salt"}
    assert document["kdf"]["name"] == "hkdf"
    salt = unbase(document["kdf"]["salt"])
    key = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"asnap slot").derive(b"\x11" * 32)
    aad = f"asnap slot {STORE} {SLOT} key-file".encode()
    assert AESGCM(key).decrypt(unbase(document["nonce"]), unbase(document["sealed"]), aad) == MASTER
    assert len(salt) == 16


def test_hkdf_matches_the_published_vector() -> None:
    """RFC 5869, test case 3, first 32 bytes: the one whose info is text."""
    derived = hkdf(b"\x0b" * 22, salt=b"", info="")
    assert derived.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_two_slots_for_one_secret_share_neither_salt_nor_nonce() -> None:
    one, two = slot_for(KEY), slot_for(KEY)
    assert one.kdf.salt != two.kdf.salt
    assert one.nonce != two.nonce


@pytest.mark.requirement("FORMAT-KEYS-SCRYPT")
def test_passphrase_is_unicode_normalised() -> None:
    composed, decomposed = "schl\u00fcssel".encode(), "schlu\u0308ssel".encode()
    assert slot_for(composed).unwrap(decomposed) == MASTER


def test_surrounding_space_is_ignored_in_a_generated_key_but_not_in_a_passphrase() -> None:
    assert slot_for(KEY).unwrap(b" " + KEY + b"\n") == MASTER
    assert slot_for(WORDS).unwrap(WORDS + b" ") is None


@pytest.mark.parametrize("mangled", [KEY[:-1], KEY + b"A", b"asnap-key-", KEY[:-2] + b"!A", KEY + b" " + KEY])
def test_truncated_generated_key_is_not_used_as_a_passphrase(mangled: bytes) -> None:
    with pytest.raises(WrongKey):
        slot_for(mangled)
    with pytest.raises(WrongKey):
        slot_for(KEY).unwrap(mangled)


def test_generated_key_is_53_characters_and_unique() -> None:
    keys = {generate_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(re.fullmatch(r"asnap-key-[A-Za-z0-9_-]{43}", key) for key in keys)


@pytest.mark.requirement("FORMAT-KEYS-SLOT")
@pytest.mark.parametrize("change", [{"kind": "command"}, {"nonce": "A" * 16}, {"sealed": "A" * 64}])
def test_edited_slot_does_not_open(change: dict[str, Any]) -> None:
    assert parsed({**slot_for(KEY).raw(), **change}).unwrap(KEY) is None


def test_slot_forged_from_another_slot_does_not_open() -> None:
    document = {**slot_for(KEY).raw(), "id": "01jcs10t00000000000000000c"}
    moved = KeySlot.parse(document, store_id=STORE, slot_id="01jcs10t00000000000000000c")
    assert moved.unwrap(KEY) is None
    document = {**slot_for(KEY).raw(), "store": "01jcother0000000000000000b"}
    moved = KeySlot.parse(document, store_id="01jcother0000000000000000b", slot_id=SLOT)
    assert moved.unwrap(KEY) is None


@pytest.mark.requirement("FORMAT-KEYS-PLACE")
@pytest.mark.parametrize("place", [("01jcother0000000000000000b", SLOT), (STORE, "01jcs10t00000000000000000c")])
def test_moved_or_renamed_slot_is_tampering(place: tuple[str, str]) -> None:
    with pytest.raises(SnapshotTampered):
        KeySlot.parse(slot_for(KEY).raw(), store_id=place[0], slot_id=place[1])


@pytest.mark.requirement("FORMAT-KEYS-HOSTILE")
@pytest.mark.parametrize(
    "numbers",
    [
        {"n": 2**22},
        {"n": 2**15, "r": 2**20},
        {"n": 2**18, "r": 16},
        {"p": 5},
        {"p": 2**40},
        {"n": 2**200},
        {"n": 0},
        {"n": 1},
        {"n": 3},
        {"n": -(2**15)},
        {"r": 0},
        {"p": 0},
        {"p": -1},
        {"n": True},
        {"n": 32768.0},
        {"n": "32768"},
        {"r": None},
    ],
)
def test_hostile_scrypt_parameters_are_refused_before_use(numbers: dict[str, Any]) -> None:
    document = slot_for(WORDS).raw()
    with pytest.raises(SnapshotTampered):
        parsed({**document, "kdf": {**document["kdf"], **numbers}})


def test_most_expensive_allowed_slot_needs_256_mib() -> None:
    document = slot_for(WORDS).raw()
    parsed({**document, "kdf": {**document["kdf"], "n": 2**18, "r": 8, "p": 1}})
    with pytest.raises(SnapshotTampered):
        parsed({**document, "kdf": {**document["kdf"], "n": 2**18, "r": 8, "p": 2}})


@pytest.mark.requirement("FORMAT-KEYS-SUM")
@pytest.mark.parametrize(
    "change",
    [
        {"v": 0},
        {"v": True},
        {"kind": 1},
        {"label": None},
        {"created": "yesterday"},
        {"created": "2026-11-16T00:51:47"},
        {"created": 5},
        {"kdf": "scrypt"},
        {"kdf": {"name": "hkdf", "salt": "AAAA"}},
        {"kdf": {"name": "md5", "salt": "AAAAAAAAAAAAAAAAAAAAAA=="}},
        {"kdf": {"salt": "AAAAAAAAAAAAAAAAAAAAAA=="}},
        {"nonce": "AAAA"},
        {"sealed": "AAAA"},
        {"sealed": "é"},
    ],
)
def test_a_slot_document_that_breaks_a_rule_is_tampering(change: dict[str, Any]) -> None:
    with pytest.raises(SnapshotTampered):
        parsed({**slot_for(KEY).raw(), **change})


@pytest.mark.parametrize("name", ["v", "id", "store", "kind", "label", "created", "kdf", "nonce", "sealed"])
def test_a_slot_document_that_lacks_a_field_is_tampering(name: str) -> None:
    document = slot_for(KEY).raw()
    del document[name]
    with pytest.raises(SnapshotTampered):
        parsed(document)


def test_a_slot_of_a_newer_release_is_refused_as_such() -> None:
    with pytest.raises(InvalidSnapshotVersion):
        parsed({**slot_for(KEY).raw(), "v": 2})


def test_a_slot_keeps_its_label_and_time() -> None:
    berlin = NOW.astimezone(timezone(timedelta(hours=1)))
    slot = parsed(slot_for(KEY, label='"Büro" \ud83d', created=berlin).raw())
    assert (slot.label, slot.created, slot.kind) == ('"Büro" \ud83d', NOW, "passphrase")


def test_a_label_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidInput):
        slot_for(KEY, label="x" * 201)


def test_slot_repr_shows_no_key_material() -> None:
    slot = slot_for(KEY)
    assert repr(slot.sealed) not in repr(slot)
    assert "11111" not in repr(slot)


# Documents


@tries(60)
@given(st.dictionaries(st.text(max_size=5).filter(lambda name: name != "sum"), st.text(max_size=90), max_size=4))
def test_key_document_round_trips_through_bytes(document: dict[str, Any]) -> None:
    unpacked = unpack(pack(document))
    del unpacked["sum"]
    assert unpacked == document


@pytest.mark.parametrize("label", ["0" * 64, '"sum":"' + "0" * 64 + '"', '\\"sum":"' + "a" * 64])
def test_label_that_looks_like_a_checksum_does_no_harm(label: str) -> None:
    assert unpack(pack({"label": label, "v": 1}))["label"] == label


@pytest.mark.requirement("FORMAT-KEYS-SUM")
def test_checksum_follows_the_formula_of_the_format_page() -> None:
    data = pack({"v": 1, "b": 2, "a": "ü"})
    found = re.fullmatch(rb'\{"a":"\\u00fc","b":2,"sum":"([0-9a-f]{64})","v":1\}', data)
    assert found
    assert hashlib.sha256(data.replace(found[1], b"0" * 64)).hexdigest().encode() == found[1]


@pytest.mark.requirement("FORMAT-KEYS-SUM")
def test_every_flipped_bit_of_a_key_file_is_corruption() -> None:
    data = pack(slot_for(KEY, label="laptop").raw())
    for place in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(SnapshotCorrupted):
            unpack(bytes(flipped))


def test_every_truncation_of_a_key_file_is_corruption() -> None:
    data = pack(slot_for(KEY).raw())
    for size in range(len(data)):
        with pytest.raises(SnapshotCorrupted):
            unpack(data[:size])


@pytest.mark.parametrize("junk", [b"\n", b"\0" * 512, b"{}"])
def test_trailing_bytes_in_a_key_file_are_corruption(junk: bytes) -> None:
    with pytest.raises(SnapshotCorrupted):
        unpack(pack({"v": 1}) + junk)


@pytest.mark.requirement("FORMAT-KEYS-SUM")
@pytest.mark.parametrize(
    "around", [b'["sum":"%s"]', b'[{"sum":"%s"}]', b"[" * 50_000 + b'"sum":"%s"', b'\xff"sum":"%s"']
)
def test_key_file_with_a_valid_checksum_that_is_not_an_object_is_tampering(around: bytes) -> None:
    data = around.replace(b"%s", hashlib.sha256(around.replace(b"%s", b"0" * 64)).hexdigest().encode())
    with pytest.raises(SnapshotTampered):
        unpack(data)
