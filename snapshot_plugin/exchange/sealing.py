"""Files encrypted with a passphrase (docs/reference/bundle.md): one line with the parameters, then the ciphertext.

The passphrase opens a key slot, as in an encrypted store; the slot holds the key of this file.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from datetime import datetime
from typing import Any

from snapshot_plugin.codec.encrypt import SessionKeys
from snapshot_plugin.codec.keys import KEY_BYTES, NONCE_BYTES, Keyset, KeySlot, Random
from snapshot_plugin.codec.sources import KeySource
from snapshot_plugin.errors import Damaged, InvalidSnapshotVersion, SnapshotCorrupted, SnapshotTampered, WrongKey
from snapshot_plugin.model.ids import new_id

__all__ = ["SEAL_VERSION", "is_sealed", "seal", "unseal"]

SEAL_VERSION = 1
_START = b'{"asnap_sealed":'
_HEAD_LIMIT = 1 << 16
_PLACE = "sealed file"
_AGAIN = "get the file again; nothing was imported"


def is_sealed(data: bytes) -> bool:
    """Whether *data* begins like a sealed file."""
    return data.startswith(_START)


def seal(data: bytes, source: KeySource, *, now: datetime, random: Random = os.urandom) -> bytes:
    """Encrypt *data* so that only the secret of *source* opens it."""
    file_id, key, nonce = new_id(), random(KEY_BYTES), random(NONCE_BYTES)
    slot = KeySlot.wrap(
        key, source.secret(), store_id=file_id, slot_id=file_id, kind=source.kind, created=now, random=random
    )
    told = {
        "asnap_sealed": SEAL_VERSION,
        "id": file_id,
        "nonce": base64.b64encode(nonce).decode(),
        "slot": slot.raw(),
    }
    head = json.dumps(told, separators=(",", ":")).encode() + b"\n"
    return head + _keys(key, file_id).seal(nonce, data, head)


def unseal(data: bytes, source: KeySource) -> bytes:
    """Decrypt what `seal` returned.

    Raises:
        KeyMissing: *source* has no secret. WrongKey: its secret does not open this file.
        InvalidSnapshotVersion: a newer release sealed it.
        SnapshotCorrupted, SnapshotTampered: the file was truncated or changed.
    """
    end = data.find(b"\n", 0, _HEAD_LIMIT) + 1
    told = _parsed(data[:end])
    try:
        slot = KeySlot.parse(told["slot"], store_id=told["id"], slot_id=told["id"])
        key = slot.unwrap(source.secret())
        if key is not None:
            return _keys(key, told["id"]).open("file", told["nonce"], data[end:], data[:end])
    except Damaged as error:
        raise SnapshotTampered("the sealed file was cut off or changed", hint=_AGAIN) from error
    raise WrongKey("this is not the passphrase the file was sealed with", hint="the file is intact; try again")


def _parsed(head: bytes) -> dict[str, Any]:
    try:
        told = json.loads(head)
        version = told["asnap_sealed"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable() from error
    if version != SEAL_VERSION:
        raise InvalidSnapshotVersion(
            f"the file is sealed by version {version!r}; this release knows {SEAL_VERSION}"
        )
    try:
        nonce = base64.b64decode(told["nonce"], validate=True)
    except (binascii.Error, KeyError, TypeError, ValueError) as error:
        raise _unreadable() from error
    if not isinstance(told.get("slot"), dict) or not isinstance(told.get("id"), str):
        raise _unreadable()
    return {**told, "nonce": nonce}


def _unreadable() -> SnapshotCorrupted:
    return SnapshotCorrupted("the first line of the sealed file was cut off or changed", hint=_AGAIN)


def _keys(key: bytes, file_id: str) -> SessionKeys:
    keyset = Keyset(primary="file", keys={"file": key}, digest=key)
    return SessionKeys(keyset, store_id=file_id, session_id=_PLACE)
