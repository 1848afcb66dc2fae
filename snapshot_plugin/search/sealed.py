"""The file of the index of an encrypted store, encrypted with a key of the store."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from snapshot_plugin.codec.keys import NONCE_BYTES

if TYPE_CHECKING:
    from snapshot_plugin.codec.encrypt import SessionKeys

__all__ = ["sealed", "unsealed"]

_PLACE = b"asnap search index 1"


def sealed(data: bytes, keys: SessionKeys, random: Callable[[int], bytes] = os.urandom) -> bytes:
    """Encrypt *data* with the newest of *keys*; the id of that key comes first."""
    nonce, kid = random(NONCE_BYTES), keys.primary.encode()
    return bytes([len(kid)]) + kid + nonce + keys.seal(nonce, data, _PLACE)


def unsealed(data: bytes, keys: SessionKeys) -> bytes:
    """Decrypt what `sealed` returned. Raises `SnapshotError` or ValueError for anything else."""
    start = 1 + data[0] if data else 1
    body = start + NONCE_BYTES
    return keys.open(data[1:start].decode(), data[start:body], data[body:], _PLACE)
