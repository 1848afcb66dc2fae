"""docs/reference/format.md is enough: a reader written from that page alone agrees with the store.

`READER` is such a reader, for plain stores. It is run by a Python that can import nothing but the standard library,
and is free for anyone to copy. `Unsealed` opens an encrypted store with nothing but the page and `cryptography`.
"""

from __future__ import annotations

import hmac
import json
import struct
import subprocess
import sys
import unicodedata
import zlib
from base64 import b64decode, urlsafe_b64decode
from hashlib import scrypt, sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from snapshot_plugin import FilesystemStore, Message, RetentionPolicy, SessionSnapshot
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import KeySource, Passphrase
from snapshot_plugin.model.ids import dirname_of
from snapshot_plugin.testing import make_message, make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.unknown_fields import with_unknown

pytestmark = pytest.mark.anyio

READER = r"""
import hashlib, json, re, struct, zlib

NAME = re.compile(r"(\d{10,})(?:-(\d{10,})\.(\d+))?\.snap\.gz")
SAFE = b"abcdefghijklmnopqrstuvwxyz0123456789._-"

def directory_of(session_id):
    name = "".join(chr(byte) if byte in SAFE else f"%{byte:02x}" for byte in session_id.encode())
    return "%2e" + name[1:] if name[0] == "." else name

def segments(directory):
    found = [(NAME.fullmatch(path.name), path) for path in directory.iterdir()]
    files = sorted((*(int(group or 0) for group in match.groups()), path) for match, path in found if match)
    for first, _, generation, path in files:
        if not any(lo <= first <= hi and newer > generation for lo, hi, newer, _ in files):
            yield first, path.read_bytes()

def frames(files):
    for (_, data), (following, _) in zip(files, [*files[1:], (float("inf"), b"")]):
        at = 0
        while data[at:].strip(b"\0") and at + 20 <= len(data):
            magic, mark, length, size = struct.unpack_from("<10s2x2sHI", data, at)
            assert magic.hex() == "1f8b08040000000000ff" and mark == b"SN", "damaged"
            frame, at = data[at : at + size], at + size
            header = json.loads(frame[20 : 16 + length]) if at <= len(data) else {"hi": following}
            if header["hi"] < following:  # else it was never acknowledged
                blank = frame.replace(header["sum"].encode(), b"0" * 64, 1)
                assert hashlib.sha256(blank).hexdigest() == header["sum"], "damaged"
                payload = zlib.decompress(frame[16 + length : -8], wbits=-15)
                assert struct.pack("<II", zlib.crc32(payload), len(payload)) == frame[-8:], "damaged"
                lines = payload.split(b"\n")[:-1]
                starts = [number for number, line in enumerate(lines) if line.startswith(b'{"frame":')]
                yield from [] if header.get("pack") else [(header, lines)]
                for start, end in zip(starts, [*starts[1:], len(lines)]):
                    yield json.loads(lines[start])["frame"], lines[start + 1 : end]

def read(store, session_id, number=None):
    assert json.loads((store / "STORE.json").read_bytes())["format"] == 1
    sections, messages, last, meta = {}, [], {"hi": 0, "root": ""}, b""
    for header, lines in frames(list(segments(store / "sessions" / directory_of(session_id)))):
        if number is not None and header["hi"] > number:
            break
        assert header["sid"] == session_id and header["lo"] == last["hi"] + 1, "damaged"
        assert header.get("full") or header["prev"] == last["root"], "damaged"
        sections, messages = ({}, []) if header.get("full") else (sections, messages)
        first, last, meta = len(lines) - header["ins"], header, lines[0]
        for line in lines[1:first]:
            sections.pop(path := tuple(json.loads(line)["section"]), None)
            sections.update({path: line} if "value" in json.loads(line) else {})
        messages[header["at"] : header["at"] + header["del"]] = lines[first:]
    assert last["hi"] and number in (None, last["hi"]), "not found"
    digest, chain = lambda data: hashlib.sha256(data).digest(), bytes(32)
    for line in messages:
        chain = digest(chain + digest(line))
    state = digest(b"".join(sorted(map(digest, sections.values()))))
    assert digest(chain + state).hex() == last["root"], "damaged"
    out = {"version": last["v"], "session_id": session_id, "updated_at": json.loads(meta)["meta"]["updated_at"]}
    for (*group, name), line in sections.items():
        (out.setdefault(group[0], {}) if group else out)[name] = json.loads(line)["value"]
    return {**out, "messages": [json.loads(line)["message"] for line in messages]}
"""

RUN = """
import sys
from pathlib import Path
store, session_id, *numbers = sys.argv[1:]
print(json.dumps([read(Path(store), session_id, int(number) or None) for number in numbers]))
"""

SESSION = "Größe/../Ünï CÖDE.🦉"
TAGGED = RetentionPolicy(keep_last=2, keep_tags=("keep",))


def run_reader(store: Path, session_id: str, *numbers: int) -> subprocess.CompletedProcess[str]:
    # -I -S: no site-packages and no environment, so there is no snapshot_plugin to be imported.
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", READER + RUN, str(store), session_id, *map(str, numbers)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def read_alone(store: Path, session_id: str, *numbers: int) -> list[SessionSnapshot]:
    done = run_reader(store, session_id, *numbers)
    assert done.returncode == 0, done.stderr
    documents: list[dict[str, Any]] = json.loads(done.stdout)
    return [SessionSnapshot.model_validate(document) for document in documents]


def gzip(option: str, *files: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["gzip", option, *files], capture_output=True, check=False, timeout=60)


def session(number: int, *texts: str) -> SessionSnapshot:
    known = make_snapshot(
        *texts,
        session_id=SESSION,
        title=f"turn {number}" if number % 3 else None,
        memory={"é": "\ud83d" if number % 4 == 0 else number, "same": [1, 2.0, None]},
        plugins={f"plugin-{number % 5}": {"n": number}},
    )
    return with_unknown(known, from_the_future={"n": number}) if number % 2 else known


async def live(store: FilesystemStore) -> None:
    """Appends, edits, truncations, summaries; forgetting and compressing; many segments."""
    texts: list[str] = []
    for number in range(1, 31):
        texts.append(f"message {number}: \n \ud83d 🦉 " + "x" * 100 * number)
        if number % 7 == 0:
            texts[number % len(texts)] = "edited"
        if number % 11 == 0:
            texts[:5] = ["summary"]
        if number % 13 == 0:
            del texts[3:]
        await store.save(session(number, *texts), tags=["keep"] if number % 4 == 0 else ())
        if number in (7, 13):
            await store.forget(SESSION, TAGGED)
        if number == 22:
            await store.compact(SESSION)


async def open_and_live(place: Path, key: KeySource | None = None) -> FilesystemStore:
    store = FilesystemStore(place, key=key, segment_frames=4, background=False)
    await live(store)
    return store


def files_of(place: Path) -> list[Path]:
    return sorted((place / "sessions" / dirname_of(SESSION)).glob("*.snap.gz"))


@pytest.mark.requirement("FORMAT-PAGE-READER")
def test_standalone_reader_is_under_sixty_lines_without_our_imports() -> None:
    lines = READER.strip().splitlines()

    assert len(lines) < 60
    assert max(map(len, lines)) <= 116
    assert "snapshot_plugin" not in READER
    assert [line for line in lines if "import" in line] == ["import hashlib, json, re, struct, zlib"]


@pytest.mark.requirement(
    "FORMAT-PAGE-READER",
    "FORMAT-FRAME-CONSTANTS",
    "FORMAT-FRAME-EXTRA",
    "FORMAT-FRAME-LENGTH",
    "FORMAT-FRAME-CRC",
    "FORMAT-FRAME-PACK",
    "FORMAT-HEADER-V",
    "FORMAT-HEADER-SPLICE",
    "FORMAT-HEADER-FULL",
    "FORMAT-HEADER-PREV",
    "FORMAT-HEADER-LO-HI",
    "FORMAT-HEADER-SUM",
    "FORMAT-PAYLOAD-LINES",
    "FORMAT-PAYLOAD-GROUPS",
    "FORMAT-PAYLOAD-REMOVED",
    "FORMAT-ROOT-FORMULA",
    "FORMAT-SEGMENT-NAME",
    "FORMAT-NAME-ENCODING",
)
async def test_the_reader_finds_every_snapshot_the_store_finds(tmp_path: Path) -> None:
    async with await open_and_live(tmp_path) as store:
        seqs = [meta.seq for meta in await store.history(SESSION)]
        expected = [await store.load(SESSION, at=seq) for seq in seqs]
        newest = await store.load(SESSION)

    names = [path.name for path in files_of(tmp_path)]
    assert any(b'"pack":' in path.read_bytes() for path in files_of(tmp_path))
    assert len(names) > 3
    assert {"-" in name for name in names} == {True, False}  # rewritten ranges, and segments as they were
    assert seqs == [*range(30, 11, -1), 8, 4]
    assert read_alone(tmp_path, SESSION, 0, *seqs) == [newest, *expected]


@pytest.mark.requirement("FORMAT-DIR-TMP", "FORMAT-READ-UNFINISHED", "FORMAT-READ-ZEROS")
async def test_reader_ignores_unacknowledged_frames(tmp_path: Path) -> None:
    async with await open_and_live(tmp_path) as store:
        newest = await store.load(SESSION)
    *_, path = files_of(tmp_path)
    data = path.read_bytes()
    path.with_name("0000000031-0000000035.1.snap.gz.99.tmp").write_bytes(b"left by a crash")

    for tail in (data[:7], data[:19], data[:400], b"\0" * 100):
        path.write_bytes(data + tail)
        assert read_alone(tmp_path, SESSION, 0) == [newest]
        async with FilesystemStore(tmp_path) as store:
            assert await store.load(SESSION, strict=True) == newest


async def test_reader_ignores_frames_renumbered_by_the_next_segment(tmp_path: Path) -> None:
    """A save that failed after its last byte was written: the next one takes its number, in a new segment."""
    async with FilesystemStore(tmp_path) as store:
        await store.save(make_snapshot("a"))
        await store.save(make_snapshot("a", "failed"))
    (path,) = (tmp_path / "sessions" / "session").glob("*.snap.gz")
    failed = path.read_bytes()
    path.write_bytes(failed[: failed.rindex(bytes.fromhex("1f8b0804"))])
    async with FilesystemStore(tmp_path, segment_frames=1, background=False) as store:
        await store.save(make_snapshot("a", "acknowledged"), base=1)
    path.write_bytes(failed)

    async with FilesystemStore(tmp_path) as store:
        assert await store.load("session", strict=True) == make_snapshot("a", "acknowledged")
    assert read_alone(tmp_path, "session", 0) == [make_snapshot("a", "acknowledged")]


@pytest.mark.requirement("FORMAT-SEGMENT-RANGE")
async def test_reader_ignores_files_replaced_by_a_rewrite(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, segment_frames=2, background=False) as store:
        grown = make_snapshot()
        for number in range(6):
            grown = grown.append(make_message(f"{number}"))
            await store.save(grown)
        directory = tmp_path / "sessions" / "session"
        before = {path: path.read_bytes() for path in directory.glob("*.snap.gz")}
        await store.forget("session", RetentionPolicy(keep_last=1))
        for path, data in before.items():
            path.write_bytes(data)  # as a crash between putting the new file there and removing these

        assert await store.load("session", strict=True) == grown
        assert [meta.seq for meta in await store.history("session")] == [6]
    assert read_alone(tmp_path, "session", 6) == [grown]
    assert run_reader(tmp_path, "session", 5).returncode != 0


async def test_reader_reports_wrong_bytes(tmp_path: Path) -> None:
    async with await open_and_live(tmp_path):
        pass
    for path in files_of(tmp_path):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    assert run_reader(tmp_path, SESSION, 0).returncode != 0


@pytest.mark.requirement("FORMAT-FRAME-ZCAT", "ORBIT-STORE-READABLE")
async def test_zcat_shows_a_plain_store_line_by_line(tmp_path: Path) -> None:
    async with await open_and_live(tmp_path):
        pass

    lines = [json.loads(line) for line in gzip("-dc", *files_of(tmp_path)).stdout.splitlines()]

    assert {next(iter(line)) for line in lines} == {"meta", "section", "message", "frame"}


@pytest.mark.requirement("FORMAT-FRAME-GZIP", "FORMAT-SEAL-STORED", "ORBIT-STORE-GZIP")
@pytest.mark.parametrize("key", [None, Passphrase(generate_key())], ids=["plain", "encrypted"])
async def test_gzip_tests_every_store_and_finds_a_wrong_byte(tmp_path: Path, key: KeySource | None) -> None:
    async with await open_and_live(tmp_path, key):
        pass
    files = files_of(tmp_path)
    assert gzip("-t", *files).returncode == 0

    data = bytearray(files[0].read_bytes())
    data[-20] ^= 1
    files[0].write_bytes(data)

    assert gzip("-t", *files).returncode == 1


class Unsealed:
    """The keys of an encrypted store, found from a secret as the page says."""

    def __init__(self, place: Path, secret: str) -> None:
        self.store_id = json.loads((place / "STORE.json").read_bytes())["id"]
        [path] = [path for path in (place / "keys").glob("*.json") if path.stem != "keyset"]
        slot, keyset = summed(path), summed(place / "keys" / "keyset.json")
        assert (slot["store"], slot["id"]) == (self.store_id, path.stem)
        own = f"asnap slot {self.store_id} {path.stem} {slot['kind']}"
        master = unseal(slot, stretched(secret, slot["kdf"]), own)
        self.keyset = json.loads(unseal(keyset, master, f"asnap keyset {self.store_id}"))

    def derived(self, secret: str, purpose: str) -> bytes:
        return hkdf(b64decode(secret), self.store_id.encode(), f"asnap {purpose} {SESSION}".encode())

    def payload(self, frame: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """The header of a frame and the lines inside."""
        xlen, length = struct.unpack_from("<H2xH", frame, 10)
        header = json.loads(frame[20 : 16 + length])
        key = self.derived(self.keyset["keys"][header["kid"]], "frame")
        sealed = zlib.decompress(frame[12 + xlen :], wbits=-15)
        inside = AESGCM(key).decrypt(bytes.fromhex(header["nonce"]), sealed, frame[: 12 + xlen])
        return header, zlib.decompress(inside, wbits=31).splitlines()

    def root(self, lines: list[bytes]) -> str:
        """The root of a frame that stands alone."""
        key = self.derived(self.keyset["digest"], "root")

        def d(data: bytes) -> bytes:
            return hmac.digest(key, data, "sha256")

        chain = bytes(32)
        for line in lines:
            chain = d(chain + d(line)) if line.startswith(b'{"message"') else chain
        return d(chain + d(b"".join(sorted(d(line) for line in lines if line.startswith(b'{"section"'))))).hex()


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(secret)


def summed(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    document: dict[str, Any] = json.loads(data)
    assert sha256(data.replace(document["sum"].encode(), b"0" * 64)).hexdigest() == document["sum"]
    return document


def stretched(secret: str, kdf: dict[str, Any]) -> bytes:
    salt = b64decode(kdf["salt"])
    if kdf["name"] == "hkdf":
        return hkdf(urlsafe_b64decode(secret.removeprefix("asnap-key-") + "="), salt, b"asnap slot")
    text = unicodedata.normalize("NFC", secret).encode()
    return scrypt(text, salt=salt, n=kdf["n"], r=kdf["r"], p=kdf["p"], maxmem=2**29, dklen=32)


def unseal(document: dict[str, Any], key: bytes, about: str) -> bytes:
    return AESGCM(key).decrypt(b64decode(document["nonce"]), b64decode(document["sealed"]), about.encode())


@pytest.mark.requirement(
    "FORMAT-KEYS-SUM",
    "FORMAT-KEYS-KEYSET",
    "FORMAT-KEYS-SLOT",
    "FORMAT-KEYS-HKDF",
    "FORMAT-KEYS-SCRYPT",
    "FORMAT-SEAL-STORED",
    "FORMAT-SEAL-FRAME-KEY",
    "FORMAT-SEAL-DIGEST-KEY",
    "FORMAT-ROOT-FORMULA",
)
@pytest.mark.parametrize("secret", [generate_key(), "zwo\u0308lf Boxer"], ids=["generated", "passphrase"])
async def test_the_page_is_enough_to_open_an_encrypted_store(tmp_path: Path, secret: str) -> None:
    first = session(1, "hello", "world")
    async with FilesystemStore(tmp_path, key=Passphrase(secret), background=False) as store:
        ref = await store.save(first)
    [path] = files_of(tmp_path)

    store_alone = Unsealed(tmp_path, secret)
    header, lines = store_alone.payload(path.read_bytes())

    messages = [json.loads(line)["message"] for line in lines if line.startswith(b'{"message"')]
    assert [Message.model_validate(message) for message in messages] == list(first.messages)
    assert (header["sid"], header["root"], header["kid"]) == (SESSION, ref.root, store_alone.keyset["primary"])
    assert store_alone.root(lines) == ref.root
