"""What a released version left on a disk is read by this one for ever: stores, spools, keys, trash, operation log.

``releases/<version>/`` was written by that version (`write_release.py`). No golden file is ever edited.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import Damaged, FilesystemStore, SessionSnapshot, persistent_session
from snapshot_plugin.codec.sources import KeyFile
from snapshot_plugin.live.place import place_of
from snapshot_plugin.manager.places import user_state_dir
from snapshot_plugin.operations.undo import log_path
from snapshot_plugin.testing import make_message
from tests.cli.conftest import Asnap, asnap, home  # noqa: F401 — pytest uses them
from tests.golden.write_release import _Agent, told

GOLDEN = Path(__file__).parent
CASES = [(path, kind) for path in sorted((GOLDEN / "releases").iterdir()) for kind in ("plain", "encrypted")]


class Left:
    """A copy of what a release left."""

    def __init__(self, place: Path, *, encrypted: bool) -> None:
        self.place, self.key = place / "store", place.parent / "key.txt" if encrypted else None
        self.expected: dict[str, Any] = json.loads((place / "expected.json").read_bytes())
        self.names = [*self.expected["sessions"], *self.expected["acknowledged"], "damaged"]

    def store(self) -> FilesystemStore:
        return FilesystemStore(self.place, key=KeyFile(self.key) if self.key else None, create=False)

    def load(self, session_id: str) -> SessionSnapshot:
        with self.store().sync as store:
            return store.load(session_id)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].name} {case[1]}")
def left(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Left:  # noqa: F811
    source, kind = request.param
    shutil.copytree(source, tmp_path / "release")
    found = Left(tmp_path / "release" / kind, encrypted=kind == "encrypted")
    (tmp_path / "release" / "key.txt").chmod(0o600)
    monkeypatch.setenv("ASNAP_STORE", str(found.place))
    if found.key:
        monkeypatch.setenv("ASNAP_KEY_FILE", str(found.key))
    log = log_path(user_state_dir(os.environ), found.store().store_id)
    log.parent.mkdir(parents=True, mode=0o700)
    shutil.copy(tmp_path / "release" / kind / "operations.jsonl", log)
    return found


def test_every_file_of_a_release_is_pinned() -> None:
    pinned = {line.split("  ", 1)[1] for line in (GOLDEN / "MANIFEST.sha256").read_text("utf-8").splitlines()}
    folders = (GOLDEN / "releases", GOLDEN / "spools")
    present = {
        path.relative_to(GOLDEN).as_posix() for each in folders for path in each.rglob("*") if path.is_file()
    }

    assert len(CASES) == 4
    assert present <= pinned


def test_every_snapshot_of_a_release_loads_as_it_was_saved(left: Left) -> None:
    with left.store().sync as store:
        assert {meta.session_id for meta in store.list()} - {"killed", "damaged"} == set(left.expected["sessions"])
        for name, session in left.expected["sessions"].items():
            newest = store.load(name)
            assert (newest.title, list(newest.tags), newest.pinned) == (
                session["title"], session["tags"], session["pinned"],
            )  # fmt: skip
            found = {str(meta.seq): told(store.load(name, at=meta.seq)) for meta in store.history(name)}
            assert found == session["snapshots"]


def test_a_check_finds_the_damage_of_a_release_and_nothing_else(left: Left) -> None:
    with left.store().sync as store:
        assert {finding.session_id for finding in store.check().findings} == {"damaged"}
        with pytest.raises(Damaged):
            store.load("damaged", strict=True)
        assert store.load("damaged").messages[0].text == "first"
        assert [finding.session_id for finding in store.quarantined()] == ["repaired"]
        store.check(repair=True)
        assert store.check().ok
        assert store.load("damaged", strict=True).messages[0].text == "first"


def test_spools_that_a_release_left_are_recovered(left: Left, asnap: Asnap) -> None:  # noqa: F811
    ran = asnap("recover", "--json")

    assert (ran.code, len(ran.json["sessions"])) == (0, 3), ran.err
    for name, words in left.expected["acknowledged"].items():
        said = [message.text for message in left.load(name).messages if message.text]
        assert "\n".join(said).startswith("\n".join(words)), name
    place = place_of(left.store())
    assert place is not None
    assert list(place.abandoned()) == []


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
@pytest.mark.parametrize("release", ["0.1.0", "0.2.0"])
def test_records_after_those_that_a_release_dropped_are_recovered_once(
    release: str,
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asnap: Asnap,  # noqa: F811
) -> None:
    place = shutil.copytree(GOLDEN / "spools" / release, tmp_path / "spools")
    (place / "key.txt").chmod(0o600)
    monkeypatch.setenv("ASNAP_STORE", str(place / kind))
    if kind == "encrypted":
        monkeypatch.setenv("ASNAP_KEY_FILE", str(place / "key.txt"))

    ran = asnap("recover", "--json")

    assert {
        each["session_id"]: (each["records"], each["problem"]) for each in ran.json["sessions"]
    } == dict.fromkeys(("in-place", "replaced", "about-to-be-replaced"), (2, None))
    key = KeyFile(place / "key.txt") if kind == "encrypted" else None
    with FilesystemStore(place / kind, key=key, create=False).sync as store:
        for meta in store.list():
            words = [message.text for message in store.load(meta.session_id).messages]
            assert words == [f"word {number}" for number in range(1, 6)]


def test_the_trash_of_a_release_comes_back_or_is_purged(left: Left) -> None:
    with left.store().sync as store:
        trash = {entry.token: entry.session_id for entry in store.trash()}
        assert trash == {token: name for name, token in left.expected["trash"]}
        oldest = min(token for token, name in trash.items() if name == "deleted")
        assert store.undelete(oldest) == "deleted"
        assert store.load("deleted").messages[0].text == "deleted as number 0"
        assert len(store.purge()) == 2  # deleted years ago


def test_what_a_release_logged_can_be_undone(left: Left, asnap: Asnap) -> None:  # noqa: F811
    listed = asnap("undo", "--list", "--json").json["operations"]
    assert [each["operation"] for each in listed] == ["forget", "forget", "fork", "note", "pin", "tag", "rename"]

    for each in listed:
        assert asnap("undo", each["id"], "--json").code == 0, each

    labelled = left.load("labelled")
    assert (labelled.title, labelled.tags, labelled.pinned) == ("the session labelled", (), False)
    assert [message.text for message in left.load("recorded").messages if message.role == "user"] == ["one", "two"]
    with left.store().sync as store:
        assert [meta.seq for meta in store.history("dropped")] == [4, 3, 2, 1]
        names = {meta.session_id for meta in store.list()}
    assert "recorded" in names
    assert not [name for name in names if left.load(name).title == "the session parent (fork)"]


def test_sessions_of_a_release_go_on(left: Left) -> None:
    names = [name for name in left.expected["sessions"] if "+" not in name]
    with left.store().sync as store:
        for name in names:
            longer = store.load(name).append(make_message("still here"))
            seq = store.save(longer).seq
            assert seq > max(map(int, left.expected["sessions"][name]["snapshots"]))
            store.compact(name)
            assert store.load(name, strict=True).messages[-1].text == "still here"


def test_the_working_memory_of_a_release_is_there(left: Left) -> None:
    async def remembered() -> Any:
        async with (
            left.store() as store,
            persistent_session(_Agent(), agent_id="with-memory", store=store) as session,
        ):
            return await session.memory.get("preference")

    assert anyio.run(remembered) == {"theme": "dark"}
    assert left.load("with-memory").memory == {"preference": {"theme": "dark"}}, "it moved with the first save"


def test_a_session_that_a_release_recorded_is_resumed(left: Left, asnap: Asnap) -> None:  # noqa: F811
    ran = asnap("resume", "killed", "--print", "--json")
    assert ran.code == 0, ran.err
    assert "agent.py" in ran.out


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
def test_frameworks_of_0_2_0_have_left_sessions(kind: str) -> None:
    expected = json.loads((GOLDEN / "releases" / "0.2.0" / kind / "expected.json").read_bytes())
    assert {"openai", "langgraph", "langgraph+subgraphs"} <= set(expected["sessions"])
