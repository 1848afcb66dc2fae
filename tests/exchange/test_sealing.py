from __future__ import annotations

import json
from base64 import b64decode

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from snapshot_plugin import Damaged, InvalidSnapshotVersion, KeyMissing, WrongKey
from snapshot_plugin.codec.sources import EnvironmentKey, Passphrase
from snapshot_plugin.exchange.sealing import is_sealed, seal, unseal
from tests.exchange.sessions import NOW

# A generated key needs no stretching, which makes these tests quick; one of them uses words.
KEY = Passphrase("asnap-key-" + "A" * 43)
DATA = b"what nobody else may read " * 20


def test_sealed_bundle_round_trips() -> None:
    sealed = seal(DATA, KEY, now=NOW)

    assert is_sealed(sealed)
    assert not is_sealed(DATA)
    assert b"nobody" not in sealed
    assert unseal(sealed, KEY) == DATA
    assert seal(DATA, KEY, now=NOW) != sealed


def test_passphrase_opens_the_bundle_and_another_does_not() -> None:
    sealed = seal(DATA, Passphrase("correct horse"), now=NOW)

    assert unseal(sealed, Passphrase("correct horse")) == DATA
    with pytest.raises(WrongKey):
        unseal(sealed, Passphrase("wrong horse"))
    with pytest.raises(KeyMissing):
        unseal(sealed, EnvironmentKey("NOT_SET", {}))


def test_every_changed_byte_and_truncation_is_detected() -> None:
    sealed = seal(DATA, KEY, now=NOW)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 4
        with pytest.raises((Damaged, WrongKey, InvalidSnapshotVersion)):
            unseal(bytes(changed), KEY)
        with pytest.raises((Damaged, WrongKey)):
            unseal(sealed[:at], KEY)


def test_newer_seal_version_is_refused() -> None:
    head, _, body = seal(DATA, KEY, now=NOW).partition(b"\n")
    newer = json.dumps({**json.loads(head), "asnap_sealed": 2}, separators=(",", ":")).encode()
    with pytest.raises(InvalidSnapshotVersion):
        unseal(newer + b"\n" + body, KEY)


def test_seal_demanding_too_much_memory_is_refused() -> None:
    head, _, body = seal(DATA, Passphrase("words"), now=NOW).partition(b"\n")
    told = json.loads(head)
    told["slot"]["kdf"]["n"] = 2**40
    with pytest.raises(Damaged):
        unseal(json.dumps(told, separators=(",", ":")).encode() + b"\n" + body, Passphrase("words"))


def test_format_page_suffices_to_open_a_sealed_bundle() -> None:
    head, _, body = seal(DATA, KEY, now=NOW).partition(b"\n")
    told = json.loads(head)
    slot, name = told["slot"], told["id"]

    def derived(key: bytes, salt: bytes, info: str) -> AESGCM:
        return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=info.encode()).derive(key))

    nonce, sealed, salt = (b64decode(text) for text in (slot["nonce"], slot["sealed"], slot["kdf"]["salt"]))
    place = f"asnap slot {name} {name} {slot['kind']}"
    key = derived(bytes(32), salt, "asnap slot").decrypt(nonce, sealed, place.encode())
    cipher = derived(key, name.encode(), "asnap frame sealed file")
    assert cipher.decrypt(b64decode(told["nonce"]), body, head + b"\n") == DATA
