"""Sealing the frames of one session, and the digests over its content."""

from __future__ import annotations

import contextlib
import hmac
import os
from functools import cached_property
from typing import TYPE_CHECKING

from snapshot_plugin.codec.keys import NONCE_BYTES, Keyset, Random, hkdf
from snapshot_plugin.errors import SnapshotTampered, WrongKey
from snapshot_plugin.model.ids import short_id

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["SessionKeys"]


class SessionKeys:
    """The keys of one session in an encrypted store.

    They are bound to this session of this store: what they seal cannot be opened for another session or store. Each
    key is derived on first use and cached. Safe to use from several threads.
    """

    def __init__(self, keyset: Keyset, *, store_id: str, session_id: str) -> None:
        self.primary = keyset.primary
        self._keyset = keyset
        self._salt = store_id.encode()
        self._session_id = short_id(session_id)
        self._ciphers: dict[str, AESGCM] = {}

    def seal(self, nonce: bytes, data: bytes, aad: bytes) -> bytes:
        """Encrypt *data* with the primary key; the tag is at the end. A nonce must never be used twice."""
        return self._cipher(self.primary).encrypt(nonce, data, aad)

    def open(self, kid: str, nonce: bytes, data: bytes, aad: bytes) -> bytes:
        """Decrypt what `seal` returned.

        Raises:
            WrongKey: the keyset has no key *kid*.
            SnapshotTampered: a byte was changed, or *data* was sealed for another session or store.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 — plain stores never load it

        cipher = self._cipher(kid)
        with contextlib.suppress(InvalidTag):
            if len(nonce) == NONCE_BYTES:
                return cipher.decrypt(nonce, data, aad)
        raise SnapshotTampered(
            f"a frame of session {self._session_id!r} was not made for this place with key {kid!r}",
            session_id=self._session_id,
        )

    def seal_record(self, data: bytes, aad: bytes, *, random: Random = os.urandom) -> bytes:
        """Encrypt *data* as a record that says by which key: its id, the nonce, and what `seal` returns."""
        nonce, kid = random(NONCE_BYTES), self.primary.encode()
        return bytes([len(kid)]) + kid + nonce + self.seal(nonce, data, aad)

    def open_record(self, record: bytes, aad: bytes) -> bytes:
        """Decrypt what `seal_record` returned. Raises as `open` for anything else."""
        start = 1 + record[0] if record else 1
        body = start + NONCE_BYTES
        return self.open(record[1:start].decode(errors="replace"), record[start:body], record[body:], aad)

    def digest(self, data: bytes) -> bytes:
        """HMAC-SHA-256 of *data* with a key of this session: the same content has another digest elsewhere."""
        mac = self._mac.copy()
        mac.update(data)
        return mac.digest()

    @cached_property
    def _mac(self) -> hmac.HMAC:
        # Copying a keyed state costs less than making one for each message.
        key = hkdf(self._keyset.digest, salt=self._salt, info=f"asnap root {self._session_id}")
        return hmac.new(key, digestmod="sha256")

    def _cipher(self, kid: str) -> AESGCM:
        cipher = self._ciphers.get(kid)
        if cipher is None:
            cipher = self._ciphers[kid] = self._derived(kid)
        return cipher

    def _derived(self, kid: str) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 — plain stores never load it

        key = self._keyset.keys.get(kid)
        if key is None:
            raise WrongKey(
                f"session {self._session_id!r} was encrypted with key {kid!r}, which this store does not have",
                session_id=self._session_id,
                hint="open the store again; if that does not help, its keyset.json is older than the frame",
            )
        return AESGCM(hkdf(key, salt=self._salt, info=f"asnap frame {self._session_id}"))
