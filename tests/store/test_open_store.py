"""`open_store`: a URL names a store; other packages add schemes by entry point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf import scrypt

from snapshot_plugin import FilesystemStore, InvalidInput, KeyMissing, MemoryStore, WrongKey, open_store
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.testing import make_snapshot
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASNAP_KEY", "ASNAP_KEY_FILE", "ASNAP_KEY_COMMAND", "ASNAP_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.requirement("STORE-URL", "ORBIT-STORE-FILES", "TERMINAL-MANAGER-MKDIR")
@pytest.mark.parametrize("name", ["plain", "with space", "Ünïcödé", "a?b#c%d"])
async def test_a_file_url_opens_the_store_in_that_directory(tmp_path: Path, name: str) -> None:
    place = tmp_path / name

    async with open_store(place.as_uri()) as store:
        await store.save(make_snapshot("a"))

    assert (place / "STORE.json").is_file()
    async with FilesystemStore(place) as store:
        assert await store.load("session") == make_snapshot("a")


@pytest.mark.skipif(sys.platform == "darwin", reason="its disks take UTF-8 names only")
async def test_path_that_is_not_utf8_is_kept_byte_for_byte(tmp_path: Path) -> None:
    async with open_store(f"{tmp_path.as_uri()}/%ff") as store:
        await store.list()

    assert (tmp_path / "\udcff" / "STORE.json").is_file()


async def test_file_url_may_name_localhost(tmp_path: Path) -> None:
    async with open_store(f"file://localhost{tmp_path}/store") as store:
        await store.list()

    assert (tmp_path / "store" / "STORE.json").is_file()


@pytest.mark.requirement("STORE-URL")
async def test_a_memory_url_opens_a_new_store_each_time() -> None:
    async with open_store("memory:") as one, open_store("memory:") as other:
        assert isinstance(one, MemoryStore)
        await one.save(make_snapshot("a"))
        assert not await other.list()


@pytest.mark.requirement("ORBIT-SECURITY-ENCRYPT", "STORE-KEY-CLOSED")
async def test_a_key_in_the_environment_makes_a_new_store_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = (tmp_path / "store").as_uri()
    monkeypatch.setenv("ASNAP_KEY", generate_key())
    async with open_store(url) as store:
        await store.save(make_snapshot("a"))
    async with open_store(url) as store:
        assert await store.load("session") == make_snapshot("a")

    monkeypatch.setenv("ASNAP_KEY", generate_key())
    with pytest.raises(WrongKey):
        await open_store(url).load("session")
    monkeypatch.delenv("ASNAP_KEY")
    with pytest.raises(KeyMissing):
        await open_store(url).load("session")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nothing:/here",
        "://x",
        "file:",
        "file://",
        "file://relative/path",
        "file://./path",
        "file:///path?query",
        "file:///path#fragment",
        "file:///nul%00",
    ],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        open_store(url)


@pytest.mark.parametrize("name", ["store", "with:colon", "a b%20c"])
@pytest.mark.parametrize("absolute", [False, True])
async def test_plain_path_names_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, absolute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_store(str(tmp_path / name) if absolute else name) as store:
        await store.save(make_snapshot("a"))
    assert (tmp_path / name / "STORE.json").is_file()


@pytest.mark.requirement("STORE-URL", "ORBIT-STORE-SWAP", "ONERING-GOAL-BACKENDS")
async def test_another_package_adds_a_scheme_by_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from snapshot_plugin import MemoryStore\n\nclass Theirs(MemoryStore): ...\n\n"
    (tmp_path / "their_backend.py").write_text(code + "def open_url(url): s = Theirs(); s.url = url; return s\n")
    about = tmp_path / "their_backend-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-backend\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[snapshot_plugin.stores]\ntheirs = their_backend:open_url\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        async with open_store("theirs://somewhere/else") as store:
            assert type(store).__name__ == "Theirs"
            assert vars(store)["url"] == "theirs://somewhere/else"
            assert (await store.save(make_snapshot("a"))).seq == 1
    finally:
        sys.modules.pop("their_backend", None)


def test_a_process_stretches_a_passphrase_once_for_all_its_store_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretched = []

    def counted(**how: Any) -> scrypt.Scrypt:
        stretched.append(how)
        return real(**how)

    real = scrypt.Scrypt
    with FilesystemStore(tmp_path / "store", key="correct horse").sync as store:
        store.save(make_snapshot("a"))
    monkeypatch.setattr(scrypt, "Scrypt", counted)
    for _ in range(3):
        with FilesystemStore(tmp_path / "store", key="correct horse").sync as store:
            assert store.load("session") == make_snapshot("a")
    assert not stretched
