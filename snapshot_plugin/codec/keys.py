"""The keys of an encrypted store: the keyset, and the slots that wrap the master key that seals it.

Pure functions on bytes and dicts: nothing here reads a disk or looks up a secret. The formulas are in
``docs/reference/format.md`` §3. The errors:

* `SnapshotCorrupted`: the document's ``sum`` is wrong, so its bytes are not the ones that were written;
* `SnapshotTampered`: the ``sum`` is right, but the content is not what this store's key made;
* `InvalidSnapshotVersion`: the ``sum`` is right and a newer release wrote it;
* a slot that a secret does not open is not an error here: another slot may open.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeVar

from snapshot_plugin.errors import (
    InvalidInput,
    InvalidSnapshotVersion,
    SnapshotCorrupted,
    SnapshotTampered,
    WrongKey,
)
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.model.times import rfc3339

__all__ = ["KEY_BYTES", "NONCE_BYTES", "KeySlot", "Keyset", "Random", "generate_key", "hkdf", "pack", "unpack"]

_T = TypeVar("_T")

Random = Callable[[int], bytes]
"""Returns that many random bytes, like `os.urandom`."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_VERSION: Final = 1
_SALT_BYTES: Final = 16
_TAG_BYTES: Final = 16
_MAX_LABEL: Final = 200
_SCRYPT_N: Final = 2**15
_SCRYPT_MOST: Final = {"n": 2**18, "r": 32, "p": 4}
_SCRYPT_MOST_WORK: Final = 2**21
"""The limit of n·r·p: eight times that of our own slots, about half a second and 256 MiB."""
_GENERATED: Final = "asnap-key-"
_SUM: Final = re.compile(rb'"sum":"([0-9a-f]{64})"')
_BACKUP: Final = "restore the store's keys directory from a backup; delete nothing in it"


def generate_key(*, random: Random = os.urandom) -> str:
    """A new random key as one line of text. It is strong enough to be used without scrypt."""
    return _GENERATED + base64.urlsafe_b64encode(random(KEY_BYTES)).decode().rstrip("=")


def hkdf(key: bytes, *, salt: bytes, info: str) -> bytes:
    """HKDF-SHA-256 (RFC 5869): 32 bytes that reveal nothing about *key* and differ for every salt and info.

    One block of output is two HMACs. Importing a library for this took longer than opening a short session.
    """
    extracted = hmac.digest(salt, key, "sha256")
    return hmac.digest(extracted, info.encode() + b"\x01", "sha256")


@dataclass(frozen=True)
class Keyset:
    """The primary data key for writing, all data keys for reading, and the secret of the digests."""

    primary: str
    keys: Mapping[str, bytes]
    digest: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", MappingProxyType(dict(self.keys)))

    def __repr__(self) -> str:
        return f"Keyset(primary={self.primary!r}, keys={sorted(self.keys)})"

    @classmethod
    def new(cls, *, kid: Callable[[], str] = new_id, random: Random = os.urandom) -> Self:
        """A keyset with one data key."""
        primary = kid()
        return cls(primary=primary, keys={primary: random(KEY_BYTES)}, digest=random(KEY_BYTES))

    def rotated(self, *, kid: Callable[[], str] = new_id, random: Random = os.urandom) -> Self:
        """The keyset with a new primary. Older keys stay for reading; the digest secret never changes."""
        primary = kid()
        return type(self)(primary=primary, keys={**self.keys, primary: random(KEY_BYTES)}, digest=self.digest)

    def seal(self, master: bytes, store_id: str, *, random: Random = os.urandom) -> dict[str, Any]:
        """Encrypt the keyset with *master*, bound to this store."""
        inside = {
            "digest": _base64(self.digest),
            "keys": {kid: _base64(key) for kid, key in self.keys.items()},
            "primary": self.primary,
        }
        nonce = random(NONCE_BYTES)
        sealed = _encrypt(master, nonce, _json(inside), _keyset_data(store_id))
        return {"nonce": _base64(nonce), "sealed": _base64(sealed), "v": _VERSION}

    @classmethod
    def open(cls, document: Mapping[str, Any], master: bytes, store_id: str) -> Self:
        """Decrypt the keyset in *document*. `SnapshotTampered` if *master* did not seal it for this store."""
        _check_version(document, "the keyset")
        nonce, sealed = _binary(document, "nonce", NONCE_BYTES), _binary(document, "sealed")
        opened = _decrypt(master, nonce, sealed, _keyset_data(store_id))
        if opened is None:
            raise _tampered("the keyset does not open with the master key of this store")
        inside = _parse(opened)
        keys = _typed(inside, "keys", dict)
        found = cls(
            primary=_typed(inside, "primary", str),
            keys={kid: _binary(keys, kid, KEY_BYTES) for kid in keys},
            digest=_binary(inside, "digest", KEY_BYTES),
        )
        if found.primary not in found.keys:
            raise _tampered("the keyset lacks its own primary key")
        return found


@dataclass(frozen=True)
class _Scrypt:
    """scrypt: makes guessing a passphrase slow. Costs 128·n·r bytes of memory, p times."""

    salt: bytes
    n: int
    r: int = 8
    p: int = 1

    def __post_init__(self) -> None:
        whole = all(type(number) is int and number > 0 for number in (self.n, self.r, self.p))
        if not whole or self.n < 2 or self.n & (self.n - 1):  # noqa: PLR2004 — smallest n scrypt knows
            raise _tampered("a slot has scrypt parameters that are none")
        beyond = any(getattr(self, name) > most for name, most in _SCRYPT_MOST.items())
        if beyond or self.work > _SCRYPT_MOST_WORK:
            raise _tampered("a slot asks for more memory or time than any slot of ours needs")

    @property
    def work(self) -> int:
        """The cost of one derivation, to compare slots."""
        return self.n * self.r * self.p

    def derive(self, secret: bytes) -> bytes:
        return _stretched(self, _composed(secret))

    def raw(self) -> dict[str, Any]:
        return {"name": "scrypt", "n": self.n, "r": self.r, "p": self.p, "salt": _base64(self.salt)}


@lru_cache(maxsize=16)
def _stretched(how: _Scrypt, secret: bytes) -> bytes:
    """The key derived from *secret*. Cached, so that a process derives it once."""
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415 — plain stores never load it

    return Scrypt(salt=how.salt, length=KEY_BYTES, n=how.n, r=how.r, p=how.p).derive(secret)


@dataclass(frozen=True)
class _Hkdf:
    """HKDF, for a generated key, which cannot be guessed."""

    salt: bytes
    work: ClassVar[int] = 0

    def derive(self, secret: bytes) -> bytes:
        return hkdf(_decoded(secret), salt=self.salt, info="asnap slot")

    def raw(self) -> dict[str, Any]:
        return {"name": "hkdf", "salt": _base64(self.salt)}


@dataclass(frozen=True, kw_only=True)
class KeySlot:
    """One copy of the master key, wrapped under a key derived from a secret."""

    store_id: str
    id: str
    kind: str
    label: str
    created: datetime
    kdf: _Scrypt | _Hkdf = field(repr=False)
    nonce: bytes = field(repr=False)
    sealed: bytes = field(repr=False)

    @classmethod
    def wrap(
        cls,
        master: bytes,
        secret: bytes,
        *,
        store_id: str,
        slot_id: str,
        kind: str,
        created: datetime,
        label: str = "",
        scrypt_n: int = _SCRYPT_N,
        random: Random = os.urandom,
    ) -> Self:
        """A new slot that *secret* opens. A generated key is used directly, any other secret through scrypt."""
        if len(label) > _MAX_LABEL:
            raise InvalidInput(f"a label of {len(label)} characters is too long", hint=f"use at most {_MAX_LABEL}")
        salt, nonce = random(_SALT_BYTES), random(NONCE_BYTES)
        kdf = _Hkdf(salt) if _is_generated(secret) else _Scrypt(salt, scrypt_n)
        sealed = _encrypt(kdf.derive(secret), nonce, master, _slot_data(store_id, slot_id, kind))
        return cls(
            store_id=store_id,
            id=slot_id,
            kind=kind,
            label=label,
            created=created,
            kdf=kdf,
            nonce=nonce,
            sealed=sealed,
        )

    def unwrap(self, secret: bytes) -> bytes | None:
        """The master key; None if *secret* does not open this slot."""
        if _is_generated(secret) != isinstance(self.kdf, _Hkdf):
            return None
        associated = _slot_data(self.store_id, self.id, self.kind)
        return _decrypt(self.kdf.derive(secret), self.nonce, self.sealed, associated)

    @property
    def work(self) -> int:
        """The cost of one attempt, to compare slots."""
        return self.kdf.work

    def raw(self) -> dict[str, Any]:
        """The slot as a JSON object."""
        return {
            "created": rfc3339(self.created),
            "id": self.id,
            "kdf": self.kdf.raw(),
            "kind": self.kind,
            "label": self.label,
            "nonce": _base64(self.nonce),
            "sealed": _base64(self.sealed),
            "store": self.store_id,
            "v": _VERSION,
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any], *, store_id: str, slot_id: str) -> Self:
        """Parse a slot. Derives no key, and refuses parameters that would exhaust memory."""
        _check_version(document, "the key slot")
        if document.get("store") != store_id or document.get("id") != slot_id:
            raise _tampered("the key slot was made for another place")
        return cls(
            store_id=store_id,
            id=slot_id,
            kind=_typed(document, "kind", str),
            label=_typed(document, "label", str),
            created=_moment(document, "created"),
            kdf=_kdf(_typed(document, "kdf", dict)),
            nonce=_binary(document, "nonce", NONCE_BYTES),
            sealed=_binary(document, "sealed", KEY_BYTES + _TAG_BYTES),
        )


def pack(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document's file: canonical JSON with a ``sum`` over every byte."""
    blank = _json({**document, "sum": "0" * 64})
    return blank.replace(b'"sum":"' + b"0" * 64, b'"sum":"' + hashlib.sha256(blank).hexdigest().encode())


def unpack(data: bytes) -> dict[str, Any]:
    """Parse a document's file. Raises `SnapshotCorrupted` if a bit was changed."""
    found = _SUM.search(data)
    if found is None:
        raise SnapshotCorrupted("a key file is cut off, or is not one of ours", hint=_BACKUP)
    blank = data[: found.start(1)] + b"0" * 64 + data[found.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != found[1]:
        raise SnapshotCorrupted("a key file is not what was written: its sum is wrong", hint=_BACKUP)
    return _parse(data)


def _kdf(document: dict[str, Any]) -> _Scrypt | _Hkdf:
    name, salt = document.get("name"), _binary(document, "salt", _SALT_BYTES)
    if name == "scrypt":
        return _Scrypt(salt, *(_typed(document, number, int) for number in ("n", "r", "p")))
    if name == "hkdf":
        return _Hkdf(salt)
    raise _tampered("a slot names no key derivation of version 1")


def _is_generated(secret: bytes) -> bool:
    return secret.strip().startswith(_GENERATED.encode())


def _decoded(secret: bytes) -> bytes:
    """The 32 bytes of a generated key. A truncated key is refused; it is not used as a passphrase."""
    text = secret.strip().removeprefix(_GENERATED.encode())
    try:
        key = base64.b64decode(text + b"=", altchars=b"-_", validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise WrongKey("the key has been cut off or mistyped", hint="copy the whole line; it has 53 characters")
    return key


def _composed(secret: bytes) -> bytes:
    """Text in Unicode NFC, so that a passphrase does not depend on the keyboard; other bytes unchanged."""
    try:
        return unicodedata.normalize("NFC", secret.decode()).encode()
    except UnicodeDecodeError:
        return secret


def _keyset_data(store_id: str) -> bytes:
    return f"asnap keyset {store_id}".encode()


def _slot_data(store_id: str, slot_id: str, kind: str) -> bytes:
    return f"asnap slot {store_id} {slot_id} {kind}".encode()


def _encrypt(key: bytes, nonce: bytes, data: bytes, associated: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 — plain stores never load it

    return AESGCM(key).encrypt(nonce, data, associated)


def _decrypt(key: bytes, nonce: bytes, data: bytes, associated: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 — plain stores never load it
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 — plain stores never load it

    try:
        return AESGCM(key).decrypt(nonce, data, associated)
    except InvalidTag:
        return None


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _parse(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _tampered("a key file holds no JSON object")
    return document


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _binary(document: Mapping[str, Any], name: str, size: int | None = None) -> bytes:
    try:
        data = base64.b64decode(_typed(document, name, str), validate=True)
    except ValueError:
        raise _tampered(f"{name!r} of a key file is not base64") from None
    if size is not None and len(data) != size:
        raise _tampered(f"{name!r} of a key file has {len(data)} bytes instead of {size}")
    return data


def _typed(document: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = document.get(name)
    if type(value) is not kind:
        raise _tampered(f"{name!r} of a key file is missing or of the wrong type")
    return value


def _moment(document: Mapping[str, Any], name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(_typed(document, name, str))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _tampered(f"{name!r} of a key file is not a time")
    return moment


def _check_version(document: Mapping[str, Any], what: str) -> None:
    version = _typed(document, "v", int)
    if version > _VERSION:
        raise InvalidSnapshotVersion(f"{what} has version {version}; this release knows {_VERSION}")
    if version != _VERSION:
        raise _tampered(f"{what} has version {version}, which never existed")


def _tampered(why: str) -> SnapshotTampered:
    return SnapshotTampered(why, hint=_BACKUP)
