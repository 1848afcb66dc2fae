"""``asnap import``: what comes in, under which name, and what is refused."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, LimitExceeded, MemoryStore, Message, SessionSnapshot
from snapshot_plugin.cli.commands.share import Imported
from snapshot_plugin.exchange.bundle import pack, unpack
from snapshot_plugin.exchange.carrying import bring
from snapshot_plugin.store.transfer import Copied
from snapshot_plugin.testing import make_message, make_snapshot
from tests import forkserver
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.cli.stored import loaded, session_ids
from tests.cli.terminal import Terminal

FILES = Path(__file__).parents[1] / "exchange/files"
KEY = "correct horse battery staple"


@pytest.fixture
def bundle(asnap: Asnap, tmp_path: Path) -> Path:
    """A bundle from somebody else's store."""
    there = tmp_path / "there"
    first = session("01aaaa", "hello", title="Fix auth", config={"cwd": "/home/ann/shop"})
    saved(there, first, first.append(make_message("more")), session("01aaaa+memory", memory={"k": 1}), tags=["t"])
    assert asnap("export", "01aaaa", "--store", there, "-o", tmp_path / "b.asnap").code == 0
    return tmp_path / "b.asnap"


def listed(place: Path) -> set[str]:
    """The sessions of the user's store, without memories."""

    async def names() -> set[str]:
        async with FilesystemStore(place, create=False, background=False) as store:
            return {meta.session_id for meta in await store.list()}

    return {name for name in anyio.run(names) if not name.endswith("+memory")} if place.exists() else set()


def test_bundle_round_trips_through_import_and_export(asnap: Asnap, bundle: Path) -> None:
    ran = asnap("import", bundle, "--json")
    (row,) = valid(Imported, ran.json)["sessions"]

    assert ran.code == 0
    assert (row["outcome"], row["session_id"], row["snapshots"], row["messages"]) == ("imported", "01aaaa", 2, 3)
    assert row["with_memory"]
    assert asnap("export", "01aaaa", "-o", "again.asnap").code == 0
    assert Path("again.asnap").read_bytes() == bundle.read_bytes()


def test_importing_twice_changes_nothing(asnap: Asnap, bundle: Path, place: Path) -> None:
    asnap("import", bundle)
    ran = asnap("import", bundle)

    assert ran.code == 0
    assert "already there" in ran.out
    assert listed(place) == {"01aaaa"}


def test_existing_session_is_kept_on_conflict(asnap: Asnap, bundle: Path, place: Path) -> None:
    saved(place, session("01aaaa", "mine"))
    ran = asnap("import", bundle, "--json")
    (row,) = ran.json["sessions"]

    assert row["outcome"] == "renamed"
    assert row["session_id"] != "01aaaa" == row["source_id"]
    assert "mine" in asnap("export", "01aaaa", "--format", "markdown").out
    assert "hello" in asnap("export", row["session_id"], "--format", "markdown").out


def test_import_can_be_undone(asnap: Asnap, bundle: Path, place: Path) -> None:
    asnap("import", bundle)
    assert asnap("undo").code == 0
    assert listed(place) == set()


@pytest.fixture
def newer(asnap: Asnap, bundle: Path, tmp_path: Path) -> Path:
    """The bundle of the same session, a day later."""
    there = tmp_path / "there"
    saved(there, session("01aaaa+memory", memory={"k": 2}))
    first = session("01aaaa", "hello", title="Fix auth", config={"cwd": "/home/ann/shop"})
    saved(there, first.append(make_message("more")).append(make_message("a day later")))
    assert asnap("export", "01aaaa", "--store", there, "-o", tmp_path / "newer.asnap").code == 0
    return tmp_path / "newer.asnap"


def test_session_continued_elsewhere_is_updated(asnap: Asnap, bundle: Path, newer: Path, place: Path) -> None:
    asnap("import", bundle)
    dry = asnap("import", newer, "--dry-run", "--json").json["sessions"]
    (row,) = valid(Imported, asnap("import", newer, "--json").json)["sessions"]

    assert [row] == dry
    assert (row["outcome"], row["session_id"], row["messages"]) == ("updated", "01aaaa", 4)
    assert (row["snapshots"], row["with_memory"]) == (3, True)
    assert listed(place) == {"01aaaa"}
    assert asnap("export", "01aaaa", "-o", "again.asnap").code == 0
    assert Path("again.asnap").read_bytes() == newer.read_bytes()
    assert "already there" in asnap("import", newer).out


def test_update_can_be_undone_and_nothing_is_lost(asnap: Asnap, bundle: Path, newer: Path, place: Path) -> None:
    asnap("import", bundle)
    before = asnap("export", "01aaaa", "--format", "markdown").out
    assert "updated" in asnap("import", newer).out

    assert asnap("undo").code == 0
    assert asnap("export", "01aaaa", "--format", "markdown").out == before
    assert "a day later" in asnap("export", "01aaaa@3", "--format", "markdown").out


def test_dry_run_creates_nothing_not_even_a_store(asnap: Asnap, bundle: Path, place: Path) -> None:
    ran = asnap("import", bundle, "--dry-run", "--json")

    assert ran.json["dry_run"]
    assert ran.json["sessions"][0]["outcome"] == "imported"
    assert not place.exists()
    saved(place, session("01aaaa", "mine"))
    assert asnap("import", bundle, "--dry-run", "--json").json["sessions"][0]["outcome"] == "renamed"
    assert listed(place) == {"01aaaa"}


def test_paths_can_be_mapped_and_ids_chosen(asnap: Asnap, bundle: Path, place: Path) -> None:
    ran = asnap("import", bundle, "--map", "/home/ann=/Users/bob", "--as", "shop", "--json")
    (row,) = ran.json["sessions"]

    assert (row["session_id"], row["cwd"]) == ("shop", "/Users/bob/shop")
    assert ran.json["paths"] == {"/home/ann": "/Users/bob"}
    assert listed(place) == {"shop"}


@pytest.mark.parametrize("value", ["/home/ann", "=/x", "/x=", ""])
def test_invalid_mapping_is_refused(asnap: Asnap, bundle: Path, value: str) -> None:
    assert asnap("import", bundle, "--map", value).code == 2


def test_taken_id_is_refused(asnap: Asnap, bundle: Path, place: Path) -> None:
    saved(place, session("mine", "x"))
    assert asnap("import", bundle, "--as", "mine").code == 6
    assert asnap("import", bundle, "--as", "..").code == 2


def test_standard_input_can_be_imported(bundle: Path, asnap: Asnap, place: Path) -> None:
    line = [sys.executable, "-m", "snapshot_plugin", "import", "-", "--json"]
    done = forkserver.run(line, input=bundle.read_bytes(), timeout=60, check=True)

    assert json.loads(done.stdout)["sessions"][0]["session_id"] == "01aaaa"
    assert listed(place) == {"01aaaa"}


def test_an_encrypted_store_takes_a_bundle_with_its_key(
    asnap: Asnap, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "secret", session("x", "x"), key=KEY)
    monkeypatch.setenv("ASNAP_STORE", str(tmp_path / "secret"))
    assert asnap("import", bundle).code == 7
    monkeypatch.setenv("ASNAP_KEY", KEY)
    assert asnap("import", bundle).code == 0
    assert asnap("export", "01aaaa", "-o", "again.asnap").code == 0
    assert Path("again.asnap").read_bytes() == bundle.read_bytes()
    assert asnap("check").code == 0


@pytest.mark.parametrize(
    ("name", "form", "messages"),
    [("claude-code.jsonl", "claude-code", 3), ("codex.jsonl", "codex", 3), ("opencode.json", "opencode", 2)],
)
def test_sessions_of_other_tools_are_imported(asnap: Asnap, name: str, form: str, messages: int) -> None:
    for wanted in ("auto", form):
        document = asnap("import", FILES / name, "--format", wanted, "--dry-run", "--json").json
        assert (document["format"], document["sessions"][0]["messages"]) == (form, messages)
    assert asnap("import", FILES / name).code == 0
    assert "already there" in asnap("import", FILES / name).out


def test_every_bad_file_is_refused_with_its_exit_code_and_imports_nothing(
    asnap: Asnap, bundle: Path, place: Path
) -> None:
    good = bundle.read_bytes()
    bad = {
        "empty": (b"", 2),
        "junk": (bytes(range(256)) * 10, 2),
        "cut": (good[:-7], 5),
        "changed": (good[:-30] + b"?" + good[-29:], 5),
        "newer": (good.replace(b'"bundle":1', b'"bundle":7', 1), 8),
        "words": (b"hello there", 2),
        "newer-document": (b'{"version": 99, "session_id": "x"}', 8),
        "long": (b'{"a": "' + b"x" * 5_000_000 + b'"}', 2),
    }
    for name, (data, code) in bad.items():
        Path(name).write_bytes(data)
        ran = asnap("import", name, "--json")
        assert ran.code == code, (name, ran.err)
        assert ran.error["hint"]
        assert ran.out == ""
    assert listed(place) == set()


def test_decompression_bomb_is_refused(
    asnap: Asnap, bundle: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setattr(
        "snapshot_plugin.exchange.reading.read_sessions.__kwdefaults__", {"wanted": None, "limit": 100}
    )
    ran = asnap("import", bundle, "--json")

    assert (ran.code, ran.error["code"]) == (1, "limit_exceeded")
    assert listed(place) == set()


def test_oversized_file_is_refused_without_reading_it(
    asnap: Asnap, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("snapshot_plugin.cli.commands.share._MAX_FILE", 100)
    assert asnap("import", bundle, "--json").error["code"] == "limit_exceeded"


def test_unreadable_files_are_reported(asnap: Asnap, tmp_path: Path) -> None:
    assert asnap("import", "nowhere.asnap").code == 4
    assert asnap("import", tmp_path).code == 2


def test_hostile_names_cannot_control_the_terminal(asnap: Asnap, tmp_path: Path) -> None:
    document = {
        "version": 2,
        "session_id": "a\u202eb",
        "title": "\x1b[31m\u202ex",
        "created_at": "2026-01-01T00:00:00Z",
    }
    (tmp_path / "f.json").write_text(json.dumps({**document, "updated_at": "2026-01-01T00:00:00Z"}))
    ran = asnap("import", tmp_path / "f.json")

    assert ran.code == 0
    assert not {"\x1b", "\u202e"} & set(ran.out + ran.err)


def test_empty_bundle_does_not_crash(asnap: Asnap, tmp_path: Path) -> None:
    sessions: list[list[Copied]] = []
    (tmp_path / "none.asnap").write_bytes(pack(sessions))
    ran = asnap("import", tmp_path / "none.asnap", "--json")

    assert (ran.code, ran.json["sessions"]) == (0, [])


# With a passphrase -----------------------------------------------------------------------------------------------


@pytest.fixture
def sealed(asnap: Asnap, bundle: Path, tmp_path: Path) -> Path:
    (tmp_path / "words").write_text(KEY)
    (tmp_path / "words").chmod(0o600)
    words = ("--passphrase-file", tmp_path / "words")
    ran = asnap("export", "01aaaa", "--store", tmp_path / "there", "-o", tmp_path / "s.asnap", *words, "--json")
    assert ran.json["is_sealed"]
    return tmp_path / "s.asnap"


def test_sealed_bundle_is_imported_with_its_passphrase(
    asnap: Asnap, bundle: Path, sealed: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    assert b"hello" not in sealed.read_bytes()
    ran = asnap("import", sealed, "--no-input", "--json")
    assert (ran.code, ran.error["code"]) == (7, "key_missing")
    monkeypatch.setenv("WRONG", "other words")
    assert asnap("import", sealed, "--passphrase-variable", "WRONG").code == 7
    assert listed(place) == set()

    monkeypatch.setenv("RIGHT", KEY)
    assert asnap("import", sealed, "--passphrase-variable", "RIGHT").code == 0
    assert asnap("export", "01aaaa", "-o", "again.asnap").code == 0
    assert Path("again.asnap").read_bytes() == bundle.read_bytes()
    both = ("--passphrase-variable", "RIGHT", "--passphrase-file", sealed.with_name("words"))
    assert asnap("import", sealed, *both).code == 2


def test_modified_sealed_bundle_is_refused(asnap: Asnap, sealed: Path, tmp_path: Path) -> None:
    data = bytearray(sealed.read_bytes())
    data[-1] ^= 1
    sealed.write_bytes(data)
    assert asnap("import", sealed, "--passphrase-file", tmp_path / "words").code == 5


def test_passphrase_is_only_accepted_for_bundles(asnap: Asnap, tmp_path: Path, sealed: Path) -> None:
    words = ("--passphrase-file", tmp_path / "words")
    assert asnap("export", "01aaaa", "--store", tmp_path / "there", "-o", "a.md", *words).code == 2
    assert asnap("export", "01aaaa", "--store", tmp_path / "there", "-o", "a.asnap", "--passphrase").code == 7


def test_terminal_asks_for_the_passphrase(asnap: Asnap, sealed: Path, place: Path) -> None:
    with Terminal("import", sealed) as terminal:
        terminal.wait_for("Passphrase of the bundle")
        terminal.send(f"{KEY}\r")
        assert terminal.end() == 0
        assert KEY not in terminal.text
    assert listed(place) == {"01aaaa"}


# Hostile files ----------------------------------------------------------------------------------------------------


def multiplied(bundle: bytes, times: int) -> bytes:
    """A bundle whose last message is there *times* times: small in the file, large in memory."""
    [[copy]] = unpack(bundle)
    *lines, last, _end = copy.payload.split(b"\n")
    return pack([[Copied(copy.header, b"\n".join([*lines, *[last] * times, b""]))]])


@pytest.mark.parametrize("form", ["bundle", "json", "blocks", "numbers"])
def test_small_file_with_a_million_messages_is_refused_in_little_memory(
    asnap: Asnap, home: Path, place: Path, form: str
) -> None:
    file = home / "bomb"
    if form == "bundle":
        saved(place, make_snapshot("x", session_id="bomb"))
        asnap("export", "bomb", "-o", file)
        file.write_bytes(multiplied(file.read_bytes(), 1_000_000))
        assert file.stat().st_size < 1 << 20
    else:
        many = {
            "json": '{"role":"user","content":"x"},' * 1_000_000,
            "blocks": '{"role":"user","content":[' + '{"type":"text","text":"x"},' * 500_000 + '""]},',
            "numbers": '{"role":"user","content":[' + "0," * 21_000_000 + "0]},",
        }
        file.write_text(f'{{"version":2,"session_id":"bomb","messages":[{many[form][:-1]}]}}')
    line = [
        sys.executable,
        "-P",
        "-m",
        "snapshot_plugin",
        "import",
        str(file),
        "--store",
        str(home / "new"),
        "--json",
    ]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))

    done = subprocess.run(line, capture_output=True, timeout=60, check=False, preexec_fn=limit)

    assert (done.returncode, json.loads(done.stderr.splitlines()[-1])["code"]) == (1, "limit_exceeded")
    assert not (home / "new" / "sessions").exists()


def test_many_small_steps_cannot_add_up_to_a_million_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_plugin.exchange.carrying.MAX_MESSAGES", 5)

    async def bring_steps() -> None:
        async with MemoryStore() as source, MemoryStore() as target:
            snapshot = make_snapshot("x", session_id="bomb")
            for _ in range(3):
                await source.save(snapshot)
                snapshot = (await source.load("bomb")).append(*[Message(role="user", content="x")] * 2)
            await bring(target, [await source.take_out("bomb")])
            await source.save(snapshot)
            with pytest.raises(LimitExceeded):
                await bring(target, [await source.take_out("bomb")])

    anyio.run(bring_steps)


def test_oneringai_agent_directory_is_imported_with_memory_plugins_and_instructions(
    asnap: Asnap, tmp_path: Path, place: Path
) -> None:
    agent = oneringai_directory(tmp_path / "bot")
    (agent / "plugins" / "link.json").symlink_to(tmp_path / "elsewhere.json")
    (tmp_path / "elsewhere.json").write_text('"outside"')
    ran = asnap("import", agent, "--json")
    assert ran.code == 0
    assert [row["session_id"] for row in valid(Imported, ran.json)["sessions"]] == ["bot"]

    async def found() -> SessionSnapshot:
        async with FilesystemStore(place) as store:
            return await store.load("bot")

    session_ = anyio.run(found)
    assert [message.text for message in session_.messages] == ["hello"]
    assert session_.memory["preferences"]["value"] == {"theme": "dark"}
    assert session_.plugins == {"in_context_memory": {"notes": [1]}}
    assert "Be brief." in str(session_.config.raw())


def test_an_agents_directory_with_a_broken_file_is_refused(asnap: Asnap, tmp_path: Path) -> None:
    broken = oneringai_directory(tmp_path / "broken")
    (broken / "memory.json").write_text("{")
    ran = asnap("import", broken, "--json")
    assert ran.code != 0
    assert "memory.json" in ran.error["message"]


def oneringai_directory(place: Path) -> Path:
    (place / "plugins").mkdir(parents=True)
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastActiveAt": "2026-01-01T00:00:00Z"}
    core = {"history": [{"role": "user", "content": "hello", "timestamp": "2026-01-01T00:00:00Z"}], "toolCalls": []}
    document = {"version": 1, "agentId": "bot", "agentType": "agent", **times, "metadata": {}, "plugins": {}}
    (place / "session.json").write_text(json.dumps({**document, "context": {"version": 1, "core": core}}))
    entries = [{"key": "preferences", "value": {"theme": "dark"}, "description": "likes"}]
    (place / "memory.json").write_text(json.dumps({"version": 1, "entries": entries}))
    (place / "plugins" / "in_context_memory.json").write_text('{"notes": [1]}')
    (place / "custom_instructions.md").write_text("Be brief.")
    return place


# Several files, directories, OrbitMesh ---------------------------------------------------------------------

ORBITMESH = {
    "SessionID": "orbit-1",
    "ProviderType": "acp",
    "CreatedAt": "2026-01-02T03:04:05Z",
    "UpdatedAt": "0001-01-01T00:00:00Z",
    "Version": 3,
    "Config": {"WorkingDir": "/home/me/shop", "Agent": "gemini"},
    "ACPSessionID": "agent-7",
    "Messages": [
        {"Role": "user", "Content": [{"Type": "text", "Text": "hello"}], "Timestamp": "2026-01-02T03:04:06Z"},
        {"Role": "assistant", "Content": [{"Type": "text", "Text": "hi"}], "Timestamp": "0001-01-01T00:00:00Z"},
    ],
    "CurrentTask": "say hello",
    "Metrics": {"TokensIn": 5, "TokensOut": 7, "RequestCount": 1},
    "Metadata": {"note": "kept"},
}


def test_an_orbitmesh_session_is_read_with_its_go_names(asnap: Asnap, tmp_path: Path, place: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text(json.dumps(ORBITMESH))
    done = asnap("import", file, "--json")
    assert (done.code, done.json["format"]) == (0, "orbitmesh")
    session = loaded(place, "orbit-1")
    assert [message.text for message in session.messages] == ["hello", "hi"]
    assert (session.config.cwd, session.agent_session_id, session.current_task) == (
        "/home/me/shop",
        "agent-7",
        "say hello",
    )
    assert (session.metrics.input_tokens, session.metrics.output_tokens) == (5, 7)
    assert session.metadata["orbitmesh"]["Metrics"] == {"RequestCount": 1}
    assert session.metadata["note"] == "kept"


def test_directory_and_several_files_are_imported_and_undone_together(
    asnap: Asnap, tmp_path: Path, place: Path
) -> None:
    folder = tmp_path / "sessions" / "deep"
    folder.mkdir(parents=True)
    for number in (1, 2):
        (folder / f"{number}.json").write_text(json.dumps({**ORBITMESH, "SessionID": f"in-{number}"}))
    (folder / "index.json").write_text('{"sessions": []}')
    (folder / "notes.txt").write_text("not a session")
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps({**ORBITMESH, "SessionID": "alone"}))
    done = asnap("import", tmp_path / "sessions", alone)
    assert done.code == 0
    assert "index.json" in done.err
    assert session_ids(place) == ["alone", "in-1", "in-2"]
    assert asnap("undo").code == 0
    assert session_ids(place) == []


def test_links_pipes_and_devices_in_a_directory_are_left_out(asnap: Asnap, tmp_path: Path, place: Path) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    (folder / "good.json").write_text(json.dumps(ORBITMESH))
    (tmp_path / "elsewhere.json").write_text(json.dumps({**ORBITMESH, "SessionID": "elsewhere"}))
    os.mkfifo(folder / "pipe.json")
    (folder / "endless.json").symlink_to("/dev/zero")
    (folder / "linked.json").symlink_to(tmp_path / "elsewhere.json")
    (folder / "nowhere.json").symlink_to(tmp_path / "nowhere.json")

    done = asnap("import", folder)

    assert done.code == 0, done.err
    assert all(f"skipped {folder}/{name}.json" in done.err for name in ("pipe", "endless", "linked", "nowhere"))
    assert session_ids(place) == [ORBITMESH["SessionID"]]


def test_empty_directory_or_one_bad_file_imports_nothing(asnap: Asnap, tmp_path: Path, place: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert asnap("import", tmp_path / "empty").code == 2
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(ORBITMESH))
    bad.write_text("nonsense")
    assert asnap("import", good, bad).code != 0
    assert not place.exists() or session_ids(place) == []
