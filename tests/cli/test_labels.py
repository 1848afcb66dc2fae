"""``rename``, ``tag``, ``pin`` and ``note``."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot
from snapshot_plugin.cli.commands.organise import Tags
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.codec.sources import EnvironmentKey
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.model import SessionConfig
from snapshot_plugin.operations.organise import Label
from snapshot_plugin.testing import FixedClock
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.manager.processes import PATIENCE, heard, python

EVERY = [("rename", "REF", "new"), ("tag", "REF", "new"), ("pin", "REF"), ("note", "REF", "new")]

_LIVE = """
    import sys, anyio
    sys.path.insert(0, sys.argv[2])
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.store.filesystem import FilesystemStore
    from tests.manager.sessions import Chat, quick

    async def main():
        async with FilesystemStore(sys.argv[1]) as store:
            async with SnapshotManager(store, quick(snapshot_interval=600, event_debounce=600)) as manager:
                chat = Chat("01live", "one")
                await manager.start_auto_snapshot(chat)
                await manager.snapshot(chat)
                print("ready", flush=True)
                await anyio.to_thread.run_sync(sys.stdin.readline)

    anyio.run(main)
"""


def loaded(place: Path, session_id: str, key: str | None = None) -> SessionSnapshot:
    async def load() -> SessionSnapshot:
        async with FilesystemStore(place, key=key, background=False) as store:
            return await store.load(session_id)

    return anyio.run(load)


@contextmanager
def held(place: Path, session_id: str) -> Iterator[None]:
    """Another process, which cannot be asked, has the session."""
    lease = Lease.acquire(place / "sessions" / session_id, Owner.this_process(since=FixedClock()()))
    try:
        yield
    finally:
        lease.release()


def filled(line: tuple[str, ...], ref: str) -> list[str]:
    return [ref if word == "REF" else word for word in line]


def test_session_is_found_by_its_name(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))

    ran = asnap("rename", "01", "fix auth")

    assert (ran.code, ran.out) == (0, "")
    assert "asnap undo" in ran.err
    assert loaded(place, "01aaaa").title == "fix auth"
    assert asnap("rename", "fix auth", "parser", "--json").json["session_id"] == "01aaaa"


def test_label_command_prints_a_json_document(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", title="old"))

    done = valid(Label, asnap("rename", "old", "new", "--json").json)

    assert (done["title"], done["changed"], done["snapshot"], done["live_pid"]) == ("new", True, 2, None)
    assert done["operation"]
    again = asnap("rename", "new", "new", "--json").json
    assert (again["changed"], again["snapshot"], again["operation"]) == (False, 2, None)


def test_name_can_be_removed(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", title="old"))

    assert asnap("rename", "old", "").code == 0
    assert loaded(place, "01aaaa").title is None


@pytest.mark.parametrize("name", ["latest", "latest~3", "tag:x", "fix@3", "two\nlines", "\x1b[31mred", "x" * 300])
def test_name_that_cannot_be_typed_is_refused(asnap: Asnap, place: Path, name: str) -> None:
    saved(place, session("01aaaa"))

    assert asnap("rename", "01", name).code == 2
    assert loaded(place, "01aaaa").title is None


def test_duplicate_name_is_reported(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", title="docs"), session("02bbbb"))

    ran = asnap("rename", "02", "docs")

    assert ran.code == 0
    assert "01aaaa" in ran.err


def test_renaming_does_not_make_a_session_the_latest(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", minutes=1), session("02bbbb", minutes=2))

    asnap("rename", "01", "older")

    assert asnap("note", "latest", "--json").json["session_id"] == "02bbbb"


@pytest.mark.requirement("TERMINAL-TAGS-SET")
def test_tags_are_added_and_removed(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", tags=("old", "keep")))

    done = valid(Tags, asnap("tag", "01", "a", "b", "a", "--remove", "old", "--json").json)

    assert done["tags"] == ["keep", "a", "b"]
    assert loaded(place, "01aaaa").tags == ("keep", "a", "b")
    assert asnap("tag", "tag:b", "-q").out.splitlines()[0].split("\t")[0] == "keep"


@pytest.mark.requirement("TERMINAL-TAGS-AUTO")
def test_suggested_tags_are_shown_and_applied_only_on_request(asnap: Asnap, place: Path) -> None:
    here = SessionConfig(cwd="/home/ann/shop")
    saved(place, session("01aaaa", "```py\n```", tags=("mine",), config=here))

    ran = asnap("tag", "01")
    assert [line.split("\t") for line in ran.out.splitlines()] == [
        ["mine", "", ""],
        ["shop", "suggested", "project, 1x"],
        ["python", "suggested", "language, 2x"],
    ]
    assert loaded(place, "01aaaa").tags == ("mine",)
    told = valid(Tags, asnap("tag", "01", "--json").json)
    assert (told["tags"], [each["tag"] for each in told["suggested"]]) == (["mine"], ["shop", "python"])

    assert asnap("tag", "01", "--suggested", "--remove", "shop").code == 0
    assert loaded(place, "01aaaa").tags == ("mine", "python")


def test_reading_tags_or_a_note_writes_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    before = sorted(path.name for path in (place / "sessions" / "01aaaa").iterdir())

    asnap("tag", "01")
    asnap("note", "01")

    assert sorted(path.name for path in (place / "sessions" / "01aaaa").iterdir()) == before


def test_a_session_is_pinned_and_unpinned(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert valid(Label, asnap("pin", "01", "--json").json)["pinned"] is True
    assert loaded(place, "01aaaa").pinned
    assert asnap("pin", "01", "--off", "--json").json["pinned"] is False
    assert not loaded(place, "01aaaa").pinned


def test_note_is_written_read_and_removed(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(place, session("01aaaa"))

    assert asnap("note", "01", "waits\nfor Ann").code == 0
    assert asnap("note", "01").out == "waits\nfor Ann\n"
    assert valid(Label, asnap("note", "01", "--json").json)["note"] == "waits\nfor Ann"
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    asnap("note", "01", "-")
    assert asnap("note", "01").out == "from a pipe\n"
    asnap("note", "01", "")
    assert asnap("note", "01").out == ""


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    evil = "a\x1b]0;owned\x07b\x1b[2J"
    saved(place, session("01aaaa", title=evil, tags=(evil,), metadata={"note": evil}))

    for words in (
        ("tag", "01"),
        ("note", "01"),
        ("rename", "01", "new"),
        ("tag", "01", "ok"),
        ("tag", "01", "--remove", evil),
    ):
        ran = asnap(*words)
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err


@pytest.mark.parametrize("line", EVERY)
class TestEvery:
    """What holds for each of the four."""

    def test_quiet_prints_nothing(self, asnap: Asnap, place: Path, line: tuple[str, ...]) -> None:
        saved(place, session("01aaaa"))
        ran = asnap(*filled(line, "01"), "-q")
        assert (ran.code, ran.out, ran.err) == (0, "", "")

    def test_unknown_session_is_not_found(self, asnap: Asnap, place: Path, line: tuple[str, ...]) -> None:
        saved(place, session("01aaaa"))
        ran = asnap(*filled(line, "01aaab"), "--json")
        assert (ran.code, ran.error["code"]) == (4, "snapshot_not_found")
        assert "01aaaa" in ran.error["hint"]

    def test_labelling_a_single_snapshot_is_refused(self, asnap: Asnap, place: Path, line: tuple[str, ...]) -> None:
        saved(place, session("01aaaa"))
        assert asnap(*filled(line, "01@1")).code == 2

    def test_encrypted_store_without_its_key_is_refused(
        self, asnap: Asnap, place: Path, line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, home: Path
    ) -> None:
        key = generate_key()
        saved(place, session("01aaaa"), key=EnvironmentKey("KEY", {"KEY": key}))
        assert asnap(*filled(line, "01")).code == 7

        monkeypatch.setenv("ASNAP_KEY", key)
        assert asnap(*filled(line, "01")).code == 0
        written = b"".join(path.read_bytes() for path in (home / "state").rglob("*") if path.is_file())
        assert written
        assert b"01aaaa" not in written

    def test_damaged_session_is_refused(self, asnap: Asnap, place: Path, line: tuple[str, ...]) -> None:
        saved(place, session("01aaaa"), session("01aaaa", "two"))
        [file] = (place / "sessions" / "01aaaa").glob("*.snap.gz")
        data = bytearray(file.read_bytes())
        data[-12] ^= 1
        file.write_bytes(data)

        ran = asnap(*filled(line, "01aaaa"), "--json")

        assert ran.code == 5
        assert "asnap check" in ran.error["next"]
        assert file.read_bytes() == data

    def test_session_of_another_process_is_refused(self, asnap: Asnap, place: Path, line: tuple[str, ...]) -> None:
        saved(place, session("01aaaa"))
        with held(place, "01aaaa"):
            ran = asnap(*filled(line, "01"), "--json")
        assert (ran.code, ran.error["code"]) == (6, "locked")
        assert loaded(place, "01aaaa") == session("01aaaa")


def test_live_session_is_labelled_by_its_owner(asnap: Asnap, place: Path) -> None:
    with python(_LIVE, place, Path(__file__).parents[2]) as process:
        assert heard(process) == "ready"
        done: Any = asnap("rename", "01live", "named", "--json").json
        assert done["live_pid"] == process.pid
        ran = asnap("tag", "named", "x")
        assert ran.code == 0
        assert str(process.pid) in ran.err
        process.communicate("\n", timeout=PATIENCE)
    assert (loaded(place, "01live").title, loaded(place, "01live").tags) == ("named", ("x",))
