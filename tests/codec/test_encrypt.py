"""Sealing frames: keys that belong to one session of one store."""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from snapshot_plugin import SnapshotTampered, WrongKey
from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import Keyset
from tests.tries import tries

STORE = "01jcstore0000000000000000a"
KEYSET = Keyset(primary="k1", keys={"k1": bytes(range(32)), "k0": b"\x07" * 32}, digest=b"\x2a" * 32)
NONCE = b"twelve bytes"


def keys_of(session_id: str, *, store_id: str = STORE, keyset: Keyset = KEYSET) -> SessionKeys:
    return SessionKeys(keyset, store_id=store_id, session_id=session_id)


def rfc5869(key: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA-256 of 32 bytes, written out from the RFC."""
    extracted = hmac.digest(salt, key, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


@pytest.mark.requirement("FORMAT-SEAL-FRAME-KEY")
def test_frame_key_follows_the_formula_of_the_format_page() -> None:
    key = rfc5869(KEYSET.keys["k1"], STORE.encode(), "asnap frame sitzung-ü".encode())
    sealed = keys_of("sitzung-ü").seal(NONCE, b"content", b"header")
    assert AESGCM(key).decrypt(NONCE, sealed, b"header") == b"content"


@pytest.mark.requirement("FORMAT-SEAL-DIGEST-KEY")
def test_digest_follows_the_formula_of_the_format_page() -> None:
    key = rfc5869(KEYSET.digest, STORE.encode(), "asnap root sitzung-ü".encode())
    assert keys_of("sitzung-ü").digest(b"line") == hmac.digest(key, b"line", "sha256")


def test_published_test_vectors_never_change() -> None:
    keys = keys_of("s")
    assert keys.seal(NONCE, b"content", b"header").hex() == "fb9f7a6646932062797959c6745ecb56e58f8945aeb2e7"
    assert keys.digest(b"line").hex() == "c1aff97ba08982e040617647ad2023a76d7657a054ee7e5b2154b5f6fcf9e1ac"


@tries(40)
@given(st.binary(max_size=300), st.binary(max_size=80))
def test_sealed_frame_opens(data: bytes, aad: bytes) -> None:
    keys = keys_of("s")
    assert keys.open("k1", NONCE, keys.seal(NONCE, data, aad), aad) == data


@pytest.mark.requirement("FORMAT-KEYS-PRIMARY")
def test_new_frames_are_sealed_under_the_primary_key() -> None:
    keys = keys_of("s")
    sealed = keys.seal(NONCE, b"content", b"")
    assert keys.primary == "k1"
    with pytest.raises(SnapshotTampered):
        keys.open("k0", NONCE, sealed, b"")


@pytest.mark.requirement("FORMAT-KEYS-PRIMARY")
def test_a_frame_under_an_older_key_still_opens_after_a_rotation() -> None:
    sealed = keys_of("s").seal(NONCE, b"content", b"")
    after = keys_of("s", keyset=KEYSET.rotated())
    assert after.primary != "k1"
    assert after.open("k1", NONCE, sealed, b"") == b"content"


@pytest.mark.requirement("FORMAT-KEYS-DIGEST")
def test_a_rotation_changes_no_digest() -> None:
    assert keys_of("s", keyset=KEYSET.rotated()).digest(b"line") == keys_of("s").digest(b"line")


@pytest.mark.requirement("FORMAT-SEAL-MOVED")
def test_every_flipped_bit_is_tampering() -> None:
    keys, aad = keys_of("s"), b"header"
    sealed = keys.seal(NONCE, b"content", aad)
    for place in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(SnapshotTampered):
            keys.open("k1", NONCE, bytes(flipped), aad)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 22])
def test_truncated_frame_is_tampering(size: int) -> None:
    keys = keys_of("s")
    with pytest.raises(SnapshotTampered):
        keys.open("k1", NONCE, keys.seal(NONCE, b"content", b"")[:size], b"")


@pytest.mark.requirement("FORMAT-SEAL-AAD")
def test_changed_header_is_tampering() -> None:
    keys = keys_of("s")
    with pytest.raises(SnapshotTampered) as caught:
        keys.open("k1", NONCE, keys.seal(NONCE, b"content", b"header"), b"Header")
    assert caught.value.session_id == "s"


@pytest.mark.parametrize("nonce", [b"", b"short", b"eleven byte", b"x" * 13, b"x" * 500])
def test_nonce_of_another_length_is_tampering(nonce: bytes) -> None:
    keys = keys_of("s")
    with pytest.raises(SnapshotTampered):
        keys.open("k1", nonce, keys.seal(NONCE, b"content", b""), b"")


def test_nonce_of_unusual_length_never_opens() -> None:
    keys = keys_of("s")
    with pytest.raises(SnapshotTampered):
        keys.open("k1", b"x" * 16, keys.seal(b"x" * 16, b"content", b""), b"")


def test_an_unknown_key_id_is_a_wrong_key_and_not_damage() -> None:
    keys = keys_of("s")
    with pytest.raises(WrongKey) as caught:
        keys.open("k9", NONCE, keys.seal(NONCE, b"content", b""), b"")
    assert caught.value.session_id == "s"


@pytest.mark.requirement("FORMAT-SEAL-MOVED")
@pytest.mark.parametrize("elsewhere", [keys_of("t"), keys_of("s", store_id="01jcother0000000000000000b")])
def test_frame_does_not_open_in_another_session_or_store(elsewhere: SessionKeys) -> None:
    here = keys_of("s")
    sealed = here.seal(NONCE, b"content", b"header")
    assert elsewhere.seal(NONCE, b"content", b"header") != sealed
    with pytest.raises(SnapshotTampered):
        elsewhere.open("k1", NONCE, sealed, b"header")


@pytest.mark.parametrize("elsewhere", [keys_of("t"), keys_of("s", store_id="01jcother0000000000000000b")])
def test_equal_content_has_different_digests_in_another_session_or_store(elsewhere: SessionKeys) -> None:
    assert elsewhere.digest(b"line") != keys_of("s").digest(b"line")
    assert elsewhere.digest(b"line") != hashlib.sha256(b"line").digest()


def test_digests_do_not_depend_on_earlier_ones() -> None:
    keys = keys_of("s")
    first = keys.digest(b"line")
    keys.digest(b"another line")
    assert keys.digest(b"line") == first


def test_session_keys_show_no_secret() -> None:
    keys = keys_of("s")
    keys.digest(b"")
    keys.seal(NONCE, b"", b"")
    assert "\\x2a" not in repr(keys)
    assert "****" not in repr(keys)


def test_a_plain_store_never_loads_the_cryptography_package() -> None:
    imports = "import sys, snapshot_plugin.codec.encrypt, snapshot_plugin.store.keychain"
    code = f"{imports}; sys.exit(not {{'cryptography', 'keyring'}}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
