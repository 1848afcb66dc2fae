"""``asnap export``: what ends up in which file, and what does not."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
from pathlib import Path

import pytest

from snapshot_plugin.exchange.bundle import unpack
from snapshot_plugin.operations.exporting import Exported
from snapshot_plugin.store.transfer import verified
from snapshot_plugin.testing import make_message, make_snapshot
from tests import forkserver
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.cli.stored import loaded
from tests.cli.terminal import Terminal

TOKEN = "ghp_" + "A1b2" * 9
KEY = "correct horse battery staple"


@pytest.fixture
def kept(place: Path) -> Path:
    first = session("01aaaa", "hello", title="Fix auth")
    saved(place, first, first.append(make_message("more")), session("01aaaa+memory", memory={"k": 1}))
    saved(place, session("02bbbb", f"my token is {TOKEN}", minutes=5, title="Secrets"))
    return place


def test_a_bundle_is_exported_with_history_and_memory(asnap: Asnap, kept: Path) -> None:
    ran = asnap("export", "fix auth", "-o", "a.asnap", "--json")
    document = valid(Exported, ran.json)
    sessions = unpack(Path("a.asnap").read_bytes())

    assert ran.code == 0
    assert [copies[0].header.sid for copies in sessions] == ["01aaaa", "01aaaa+memory"]
    assert [copy.header.hi for copy in sessions[0]] == [1, 2]
    assert (document["format"], document["file"], document["is_redacted"]) == ("bundle", "a.asnap", False)
    assert document["sha256"] == hashlib.sha256(Path("a.asnap").read_bytes()).hexdigest()
    assert [(each["session_id"], each["snapshots"]) for each in document["sessions"]] == [
        ("01aaaa", 2),
        ("01aaaa+memory", 1),
    ]


def test_an_exported_snapshot_has_the_memory_of_that_moment(asnap: Asnap, place: Path) -> None:
    first = session("01aaaa", "hello", memory={"step": 1})
    saved(place, first, first.append(make_message("more")).evolve(memory={"step": 2}))

    assert asnap("export", "01aaaa@1", "-o", "a.asnap").code == 0
    assert asnap("import", "a.asnap", "--as", "earlier").code == 0
    assert loaded(place, "earlier").memory == {"step": 1}


def test_exported_file_is_private(asnap: Asnap, kept: Path) -> None:
    asnap("export", "01a", "-o", "a.asnap")
    assert stat.S_IMODE(Path("a.asnap").stat().st_mode) == 0o600


def test_format_follows_the_file_extension(asnap: Asnap, kept: Path) -> None:
    for name, start in (("a.md", "# Fix auth"), ("a.html", "<!DOCTYPE html>"), ("a.json", "{")):
        assert asnap("export", "01a", "-o", name).code == 0
        assert Path(name).read_text("utf-8").startswith(start)
    assert asnap("export", "01a", "-o", "b.md", "--format", "html").code == 0
    assert Path("b.md").read_text("utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.requirement("TERMINAL-USE-EXPORT")
def test_markdown_goes_to_stdout_and_messages_to_stderr(asnap: Asnap, kept: Path) -> None:
    ran = asnap("export", "01a", "--format", "markdown")

    assert ran.out.startswith("# Fix auth\n")
    assert "hello, indeed" in ran.out
    assert "wrote" in ran.err
    assert asnap("export", "01a", "--format", "markdown", "-q").err == ""


@pytest.mark.requirement("STORE-VALUE-REDACT")
def test_readable_exports_are_redacted(asnap: Asnap, kept: Path) -> None:
    for form in ("markdown", "html"):
        ran = asnap("export", "02b", "--format", form)
        assert TOKEN not in ran.out
        assert "removed: 2 github-token" in ran.err
        assert TOKEN in asnap("export", "02b", "--format", form, "--no-redact").out
    assert TOKEN in asnap("export", "02b", "--format", "json").out
    assert TOKEN not in asnap("export", "02b", "--format", "json", "--redact").out


def test_bundle_can_be_redacted(asnap: Asnap, kept: Path) -> None:
    document = asnap("export", "02b", "-o", "a.asnap", "--redact", "--json").json

    assert document["is_redacted"]
    assert sum(document["redacted"].values()) >= 1
    (copies,) = unpack(Path("a.asnap").read_bytes())
    assert TOKEN not in verified(copies).messages[0].text


def test_one_snapshot_can_be_chosen(asnap: Asnap, kept: Path) -> None:
    assert "more" not in asnap("export", "01a", "--at", "1", "--format", "markdown").out
    assert "more" not in asnap("export", "01a@1", "--format", "json").out
    asnap("export", "01a@1", "-o", "a.asnap")
    assert [copy.header.hi for copy in unpack(Path("a.asnap").read_bytes())[0]] == [1]
    assert asnap("export", "01a@9", "-o", "b.asnap").code == 4
    assert not Path("b.asnap").exists()


def test_several_sessions_share_a_file(asnap: Asnap, kept: Path) -> None:
    asnap("export", "01a", "02b", "01a", "-o", "a.asnap")
    assert len(unpack(Path("a.asnap").read_bytes())) == 3
    assert asnap("export", "01a", "02b", "--format", "html").out.count("<article>") == 2
    assert [each["session_id"] for each in json.loads(asnap("export", "01a", "02b", "--format", "json").out)] == [
        "01aaaa",
        "02bbbb",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("export",),
        ("export", "01a", "--json"),
        ("export", "01a", "-o", "-", "--json"),
        ("export", "01a", "02b", "--at", "1", "-o", "a.asnap"),
        ("export", "01a@1", "01a@2", "-o", "a.asnap"),
        ("export", "01a", "--no-tools", "-o", "a.asnap"),
        ("export", "01a", "-o", "."),
        ("export", "01a", "--format", "pdf"),
        ("export", "0", "-o", "a.asnap"),
    ],
)
def test_invalid_combinations_are_refused(asnap: Asnap, kept: Path, words: tuple[str, ...]) -> None:
    ran = asnap(*words)

    assert ran.code == 2
    assert ran.out == ""
    assert not Path("a.asnap").exists()


def test_existing_file_is_not_overwritten_without_yes(asnap: Asnap, kept: Path) -> None:
    Path("a.md").write_text("mine")
    assert asnap("export", "01a", "-o", "a.md").code == 2
    assert Path("a.md").read_text() == "mine"
    assert asnap("export", "01a", "-o", "a.md", "--yes").code == 0
    assert Path("a.md").read_text("utf-8").startswith("# Fix auth")


def test_disk_error_is_reported(asnap: Asnap, kept: Path) -> None:
    ran = asnap("export", "01a", "-o", "no/such/dir/a.md", "--json")
    assert (ran.code, ran.error["code"]) == (1, "store_unavailable")


def test_unknown_references_and_missing_stores_have_their_exit_codes(
    asnap: Asnap, kept: Path, tmp_path: Path
) -> None:
    assert asnap("export", "nope", "-o", "a.asnap").code == 4
    assert asnap("export", "x", "--store", tmp_path / "none", "-o", "a.asnap").code == 10


def test_an_encrypted_store_needs_its_key_and_the_bundle_does_not(
    asnap: Asnap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "secret", session("01aaaa", "hello"), key=KEY)
    monkeypatch.setenv("ASNAP_STORE", str(tmp_path / "secret"))
    assert asnap("export", "01a", "-o", "a.asnap").code == 7

    monkeypatch.setenv("ASNAP_KEY", KEY)
    ran = asnap("export", "01a", "-o", "a.asnap", "-q")
    assert ran.code == 0
    assert ran.err
    assert asnap("export", "01a", "-o", "b.asnap", "--json").json["warning"]
    monkeypatch.setenv("WORDS", "asnap-key-" + "A" * 43)
    sealed = asnap("export", "01a", "-o", "c.asnap", "--passphrase-variable", "WORDS", "--json").json
    assert (sealed["is_sealed"], sealed["warning"]) == (True, None)
    assert verified(unpack(Path("a.asnap").read_bytes())[0]).messages[0].text == "hello"


def damage(place: Path) -> None:
    (file,) = place.glob("sessions/01aaaa/*.snap.gz")
    data = bytearray(file.read_bytes())
    data[-20] ^= 1
    file.write_bytes(data)


def test_damage_stops_a_bundle_and_is_mentioned_in_a_text_export(asnap: Asnap, kept: Path) -> None:
    damage(kept)
    ran = asnap("export", "01a", "-o", "a.asnap", "--json")
    assert (ran.code, ran.error["code"]) == (5, "corrupted")
    assert not Path("a.asnap").exists()

    ran = asnap("export", "01a", "-o", "a.md", "--json")
    assert ran.code == 3
    assert ran.json["sessions"][0]["problem"]
    assert "hello, indeed" in Path("a.md").read_text("utf-8")


def test_exported_text_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("\x1b[31mred\x07\u202e", session_id="s", title="\x1b]0;x\x07"))
    for form in ("markdown", "html", "json"):
        ran = asnap("export", "s", "--format", form)
        assert not {"\x1b", "\x07", "\u202e"} & set(ran.out + ran.err)


def test_a_bundle_through_a_pipe_is_the_same_bytes(kept: Path) -> None:
    line = [sys.executable, "-m", "snapshot_plugin", "export", "01a"]
    done = forkserver.run(line, timeout=60, check=True)
    assert len(unpack(done.stdout)) == 2


def test_bundle_on_a_terminal_is_refused_with_a_request_for_a_file(kept: Path) -> None:
    with Terminal("export", "01aaaa") as terminal:
        assert terminal.end() == 2
        assert "not for a terminal" in terminal.text

    Path("a.md").write_text("mine")
    for answer, code, start in (("n", 130, "mine"), ("y", 0, "# Fix auth")):
        with Terminal("export", "01aaaa", "-o", "a.md") as terminal:
            terminal.wait_for("Overwrite it?")
            terminal.send(f"{answer}\r")
            assert terminal.end() == code
        assert Path("a.md").read_text("utf-8").startswith(start)


def test_the_conversation_fits_a_terminal(kept: Path) -> None:
    with Terminal("export", "01aaaa", "--format", "markdown", "--color", "always", columns=40) as terminal:
        assert terminal.end() == 0
        assert "hello, indeed" in terminal.text
