"""``secrets scan``: kinds and places, never a secret; and out of the session with them."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.cli.commands.share import Secrets
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import EnvironmentKey
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.search.database import heads
from snapshot_plugin.testing import FixedClock
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.model.test_secret_recall import FORMS

TOKEN = "ghp_" + "a1B2" * 9


def loaded(place: Path, session_id: str, key: EnvironmentKey | None = None) -> SessionSnapshot:
    async def load() -> SessionSnapshot:
        async with FilesystemStore(place, key=key, background=False) as store:
            return await store.load(session_id)

    return anyio.run(load)


@pytest.mark.requirement("STORE-VALUE-REDACT")
def test_findings_never_show_the_secret(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", TOKEN, title=f"about {TOKEN}"), session("02bbbb"))

    for words in ((), ("--all",), ("01",), ("--all", "-q")):
        ran = asnap("secrets", "scan", *words)
        assert ran.code == 1
        assert TOKEN not in ran.out + ran.err
        [line] = ran.out.splitlines()
        assert line.split("\t")[:4] == ["01aaaa", "about [redacted:github-token]", "github-token", "3"]
    assert asnap("secrets", "scan", "02").code == 0


def test_the_document_names_kinds_places_and_snapshots(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("01aaaa", "hello", TOKEN), session("02bbbb"))

    ran = asnap("secrets", "scan", "--json")

    done = valid(Secrets, ran.json)
    [found] = done["sessions"]
    assert (done["searched"], found["secrets"], found["snapshots"]) == (2, {"github-token": 2}, [2])
    assert [each["path"] for each in found["places"]] == [
        "$.messages[2].content[0].text",
        "$.messages[3].content[0].text",
    ]
    assert TOKEN not in ran.out


def test_secrets_are_removed_and_purged_permanently(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("01aaaa", "hello", TOKEN), session("02bbbb", TOKEN), session("03cccc"))

    ran = asnap("secrets", "scan", "--all", "--fix", "--yes", "--json")

    done = valid(Secrets, ran.json)
    assert ran.code == 0
    assert {each["session_id"]: each["dropped"] for each in done["sessions"]} == {"01aaaa": [2], "02bbbb": [1]}
    assert loaded(place, "01aaaa").messages[2].text == "[redacted:github-token]"
    assert all(each["trash"] for each in asnap("secrets", "scan", "--json").json["sessions"])
    assert asnap("purge", "--yes").code == 0
    assert asnap("undo").code == 4


def test_search_index_drops_removed_secrets(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01aaaa", f"marvellous {TOKEN}"))
    assert asnap("search", "marvellous").code == 0
    [index] = (home / "cache" / "asnap").glob("search-*.db")
    connection = sqlite3.connect(index)
    assert set(heads(connection)) == {"01aaaa"}
    connection.close()

    asnap("secrets", "scan", "--all", "--fix", "--yes")

    connection = sqlite3.connect(index)
    assert heads(connection) == {}
    connection.close()
    assert "redacted" in asnap("search", "marvellous").out


def test_fix_can_be_undone_until_purged_and_redone(asnap: Asnap, place: Path) -> None:
    before = session("01aaaa", "hello", TOKEN)
    saved(place, session("01aaaa"), before)
    asnap("secrets", "scan", "01", "--fix", "--yes")
    assert loaded(place, "01aaaa") != before

    ran = asnap("undo", "--json")

    assert (ran.code, ran.json["redo"]) == (0, None)
    assert loaded(place, "01aaaa") == before
    undo = asnap("undo", "--list", "--json").json["operations"][0]["id"]
    assert asnap("undo", undo).code == 2
    assert asnap("secrets", "scan", "01", "--fix", "--yes").code == 0
    assert all(each["trash"] for each in asnap("secrets", "scan", "--json").json["sessions"])


def test_fix_needs_yes_and_named_sessions(asnap: Asnap, place: Path) -> None:
    before = session("01aaaa", TOKEN)
    saved(place, before)

    assert asnap("secrets", "scan", "01", "--fix").code == 2
    assert asnap("secrets", "scan", "--fix", "--yes").code == 2
    assert asnap("secrets", "scan", "01", "--all").code == 2
    assert asnap("secrets", "scan", "01@1").code == 2
    assert loaded(place, "01aaaa") == before


def test_clean_session_asks_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    ran = asnap("secrets", "scan", "--all", "--fix")

    assert (ran.code, ran.out) == (0, "")


def test_live_and_damaged_sessions_are_skipped_and_reported(asnap: Asnap, place: Path) -> None:
    saved(place, session("01live", TOKEN), session("02broken"), session("03fine", TOKEN))
    [file] = (place / "sessions" / "02broken").glob("*.snap.gz")
    file.write_bytes(b"rubbish")
    lease = Lease.acquire(place / "sessions" / "01live", Owner.this_process(since=FixedClock()()))

    ran = asnap("secrets", "scan", "--all", "--fix", "--yes", "--json")

    assert ran.code == 3
    told = {each["session_id"]: (each["fixed"], each["code"]) for each in ran.json["sessions"]}
    assert told == {"01live": (False, "locked"), "02broken": (False, "corrupted"), "03fine": (True, None)}
    assert asnap("secrets", "scan", "02broken").code == 5
    assert asnap("secrets", "scan", "01", "--fix", "--yes").code == 6
    lease.release()


def test_encrypted_store_needs_its_key(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = generate_key()
    saved(place, session("01aaaa", TOKEN), key=EnvironmentKey("KEY", {"KEY": key}))
    assert asnap("secrets", "scan").code == 7

    monkeypatch.setenv("ASNAP_KEY", key)
    assert asnap("secrets", "scan").code == 1
    assert asnap("secrets", "scan", "--all", "--fix", "--yes").code == 0
    assert all(each["trash"] for each in asnap("secrets", "scan", "--json").json["sessions"])


def test_unknown_session_is_not_found(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert asnap("secrets", "scan", "nobody").code == 4


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    evil = "a\x1b]0;owned\x07b\x1b[2J"
    saved(place, session("01aaaa", title=evil, memory={evil: {"password": "hunter2x"}}))

    ran = asnap("secrets", "scan")

    assert ran.code == 1
    assert "\x1b" not in ran.out + ran.err


def test_trash_is_searched_for_secrets_too(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", TOKEN), session("02bbbb"))
    assert asnap("forget", "01aaaa", "--yes").code == 0

    ran = asnap("secrets", "scan", "--json")

    assert ran.code == 1
    [found] = valid(Secrets, ran.json)["sessions"]
    assert (found["session_id"], found["secrets"]) == ("01aaaa", {"github-token": 2})
    assert found["trash"]
    assert TOKEN not in ran.out
    assert "asnap purge" in asnap("secrets", "scan").err
    assert asnap("purge", "--yes").code == 0
    assert asnap("secrets", "scan").code == 0


@pytest.mark.requirement("STORE-VALUE-REDACT")
@pytest.mark.parametrize("sealed", [False, True])
def test_fix_leaves_no_secret_of_a_name_tag_or_note_to_undo(
    asnap: Asnap, place: Path, home: Path, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    key = EnvironmentKey("KEY", {"KEY": (secret := generate_key())}) if sealed else None
    if key:
        monkeypatch.setenv("ASNAP_KEY", secret)
    saved(place, session("01aaaa"), key=key)
    for word in ("rename", "tag", "note"):
        assert asnap(word, "01", TOKEN).code == 0
    for words in (["rename", "01", "plain"], ["tag", "01", "--remove", TOKEN], ["note", "01", "plain"]):
        assert asnap(*words).code == 0
    assert asnap("secrets", "scan", "--json").json["operations"] == 5

    assert asnap("secrets", "scan", "--all", "--fix", "--yes").code == 0
    assert asnap("purge", "--yes").code == 0

    told = asnap("undo", "--list", "--json")
    renamed = next(each["id"] for each in told.json["operations"] if each["operation"] == "rename")
    assert TOKEN not in told.out
    assert not any(TOKEN.encode() in file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert asnap("secrets", "scan", "--json").json["operations"] == 0
    assert asnap("undo", renamed).code == 0
    assert loaded(place, "01aaaa", key).title == "[redacted:github-token]"
    assert asnap("secrets", "scan").code == 0


def test_secret_that_only_undo_remembers_is_found_and_removed(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    asnap("rename", "01", TOKEN)
    asnap("rename", "01", "plain")
    asnap("forget", "01@2", "--yes")
    asnap("purge", "--yes")

    found = asnap("secrets", "scan")
    assert (found.code, TOKEN in found.out + found.err) == (1, False)
    assert "undo" in found.err

    assert asnap("secrets", "scan", "--all", "--fix").code == 2
    fixed = asnap("secrets", "scan", "--all", "--fix", "--yes", "--json")
    assert (fixed.code, fixed.json["operation"], fixed.json["operations"]) == (0, None, 2)
    assert asnap("secrets", "scan").code == 0
    assert asnap("undo", "--list").out.count("[redacted:github-token]") == 2


def test_scan_removes_generated_tokens_from_a_session(asnap: Asnap, place: Path) -> None:
    rng = random.Random("scan")
    made = [(make(rng), around) for make, around in FORMS for _ in range(20)]
    saved(place, session("01aaaa", *(around.replace("{}", token) for token, around in made)))

    assert asnap("secrets", "scan", "01", "--fix", "--yes").code == 0

    said = "\n".join(message.text for message in loaded(place, "01aaaa").messages)
    assert [token for token, _ in made if token[-12:] in said] == []
