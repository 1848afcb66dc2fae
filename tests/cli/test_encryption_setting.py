"""``encryption = true`` holds wherever a store is opened: library, manager, commands, MCP, directories and URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    KeyMissing,
    MemoryStore,
    SnapshotConfig,
    SnapshotManager,
    open_store,
    persistent_session,
)
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session
from tests.manager.sessions import Chat
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.store.s3_server import BUCKET, running

pytestmark = pytest.mark.anyio

URL = f"s3://{BUCKET}/ours"


@pytest.fixture
def encrypted(home: Path) -> None:
    """The user's settings ask for encryption."""
    settings = home / "config" / "asnap" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("encryption = true\n")


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with running() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield


class Agent:
    history: list[str]

    def __init__(self) -> None:
        self.history = []


@pytest.mark.usefixtures("encrypted")
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "latest"),
        ("search", "hello"),
        ("stats",),
        ("check",),
        ("export", "latest"),
        ("why", "latest"),
    ],
    ids=lambda words: str(words[0]),
)
def test_commands_refuse_a_plain_store(asnap: Asnap, place: Path, words: tuple[str, ...]) -> None:
    saved(place, session("01jd"))

    assert asnap(*words).code == 7


@pytest.mark.usefixtures("encrypted")
def test_writing_commands_refuse_to_create_a_plain_store(
    asnap: Asnap, asnap_process: Asnap, home: Path, place: Path
) -> None:
    times = '"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"'
    (home / "session.json").write_text(f'{{"version": 2, "session_id": "s", {times}}}')

    assert asnap("import", home / "session.json").code == 7
    assert asnap_process("run", "--", "true").code == 7
    assert asnap_process("mcp").code == 7
    assert asnap("import", home / "session.json", "--store", f"file://{home}/elsewhere").code == 7
    assert not place.exists()
    assert not (home / "elsewhere").exists()


@pytest.mark.usefixtures("encrypted", "bucket")
def test_encryption_setting_applies_to_buckets(asnap: Asnap, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asnap("list", "--store", URL).code == 7

    monkeypatch.setenv("TEAM", "the words of the team")
    made = asnap("keys", "init", "--store", URL, "--new-variable", "TEAM")
    assert (made.code, "made an encrypted store" in made.err) == (0, True), made.err
    assert asnap("keys", "init", "--store", URL, "--new-variable", "TEAM").code == 2, "there is one already"
    assert not Path("s3:").exists()

    monkeypatch.setenv("ASNAP_PASSPHRASE", "the words of the team")
    assert asnap("list", "--store", URL).code == 0
    assert asnap("keys", "status", "--store", URL, "--json").json["encrypted"]
    assert asnap("keys", "add", "--store", URL, "--new-variable", "TEAM").code == 0
    assert asnap("keys", "rotate", "--store", URL).code == 0
    assert len(asnap("keys", "status", "--store", URL, "--json").json["slots"]) == 2


def test_keys_are_created_at_a_file_url(asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM", "the words of the team")
    place = home / "a b"

    assert asnap("keys", "init", "--store", f"file://{home}/a%20b", "--new-variable", "TEAM").code == 0
    assert (place / "STORE.json").exists()
    assert not list(Path().iterdir()), "nothing is made in the current directory"


async def test_a_manager_refuses_a_plain_store(tmp_path: Path) -> None:
    config = SnapshotConfig(encryption=True, storage_path=str(tmp_path / "mine"))

    for store in (FilesystemStore(tmp_path / "store"), MemoryStore(), tmp_path / "other", None):
        with pytest.raises(KeyMissing):
            SnapshotManager(store, config)
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "mine").exists()
    SnapshotManager(FilesystemStore(tmp_path / "sealed", key="words"), config)


async def test_a_key_given_for_an_existing_plain_store_is_refused(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as plain:
        await plain.save(make_snapshot("in the clear"))

    with pytest.raises(InvalidInput, match="not encrypted"):
        async with open_store(tmp_path, key="words", encryption=True) as store:
            await store.save(make_snapshot("secret"))


@pytest.mark.usefixtures("encrypted")
async def test_persistent_session_follows_the_encryption_setting(tmp_path: Path) -> None:
    for store in (None, tmp_path / "store", f"file://{tmp_path}/store"):
        with pytest.raises(KeyMissing):
            persistent_session(Agent(), agent_id="a", store=store)
    assert not (tmp_path / "store").exists()


@pytest.mark.requirement("ORBIT-CONFIG-PATH")
@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_a_manager_keeps_sessions_at_the_storage_path(tmp_path: Path, form: str) -> None:
    config = SnapshotConfig(storage_path=form.format(tmp_path / "kept"))

    async with SnapshotManager(config=config) as manager:
        await manager.snapshot(Chat("mine", "hello"))
    async with open_store(tmp_path / "kept", create=False) as store:
        assert [meta.session_id for meta in await store.list()] == ["mine"]


async def test_store_opens_by_path_and_by_url(tmp_path: Path) -> None:
    async with open_store(tmp_path / "a", key="words") as store:
        await store.save(make_snapshot("one"))
    async with open_store(f"file://{tmp_path}/a", key="words", create=False) as store:
        assert len(await store.list()) == 1
    with pytest.raises(InvalidInput, match="cannot be encrypted"):
        open_store("memory:", key="words")
    with pytest.raises(InvalidInput, match="no store is registered"):
        open_store("gopher://somewhere")
