"""``undo``: what a command did is taken back, or it is said why it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.live.sessions import LiveSessions
from snapshot_plugin.operations.undo import Undone
from snapshot_plugin.testing import FixedClock
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.cli.terminal import Terminal
from tests.live.events import Said, blank, texts


def loaded(place: Path, session_id: str) -> SessionSnapshot:
    async def load() -> SessionSnapshot:
        async with FilesystemStore(place, background=False) as store:
            return await store.load(session_id)

    return anyio.run(load)


def names(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "sessions").iterdir())


def states(asnap: Asnap) -> list[tuple[str, str]]:
    """What was done and whether it stands, newest first."""
    return [(each["operation"], each["state"]) for each in asnap("undo", "--list", "--json").json["operations"]]


@pytest.mark.parametrize(
    "words",
    [
        ("rename", "01", "new"),
        ("tag", "01", "new"),
        ("pin", "01"),
        ("note", "01", "new"),
        ("tag", "01", "--remove", "x"),
    ],
)
def test_labels_can_be_undone(asnap: Asnap, place: Path, words: tuple[str, ...]) -> None:
    before = session("01aaaa", title="old", tags=("x", "y"), metadata={"note": "as it was"})
    saved(place, before)
    asnap(*words)
    after = loaded(place, "01aaaa")
    assert after != before

    ran = asnap("undo", "--json")

    done = valid(Undone, ran.json)
    assert (ran.code, done["operations"][0]["operation"]) == (0, words[0])
    assert loaded(place, "01aaaa") == before
    assert asnap("undo", done["redo"]).code == 0
    assert loaded(place, "01aaaa") == after


def test_undo_of_an_older_tag_keeps_the_tags_added_since(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", tags=["kept", "old"]))
    asnap("tag", "01aaaa", "first", "--remove", "old")
    older = asnap("undo", "--list", "--json").json["operations"][0]["id"]
    asnap("tag", "01aaaa", "second")

    undone = asnap("undo", older, "--json")
    assert asnap("tag", "01aaaa", "--json").json["tags"] == ["kept", "second", "old"]

    assert asnap("undo", undone.json["redo"]).code == 0
    assert asnap("tag", "01aaaa", "--json").json["tags"] == ["kept", "first", "second"]


def test_each_undo_reverts_one_earlier_operation(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    for name in ("one", "two", "three"):
        asnap("rename", "01", name)

    found = []
    for _ in range(3):
        asnap("undo")
        found.append(loaded(place, "01aaaa").title)

    assert found == ["two", "one", None]
    assert asnap("undo").code == 4


def test_operations_are_listed(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))
    asnap("rename", "01", "one")
    asnap("forget", "02", "--yes")
    asnap("pin", "01")
    asnap("undo")
    assert states(asnap) == [("undo", "done"), ("pin", "undone"), ("forget", "done"), ("rename", "done")]

    lines = [line.split("\t") for line in asnap("undo", "--list").out.splitlines()]
    assert [line[2] for line in lines] == ["undo", "pin", "forget", "rename"]
    assert asnap("undo", lines[3][0]).code == 0
    assert loaded(place, "01aaaa").title is None


def test_empty_log_lists_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert asnap("undo", "--list", "--json").json["operations"] == []
    assert asnap("undo", "--json").error["code"] == "snapshot_not_found"


def test_a_wrong_or_ambiguous_id_is_refused(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    asnap("rename", "01", "one")
    asnap("rename", "01", "two")

    for wrong in ("zz", "0"):
        ran = asnap("undo", wrong, "--json")
        assert (ran.code, ran.error["next"]) == (4, "asnap undo --list")
    assert loaded(place, "01aaaa").title == "two"


def test_undone_operation_is_not_undone_again(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    done = asnap("rename", "01", "one", "--json").json
    redo = asnap("undo", "--json").json["redo"]

    ran = asnap("undo", done["operation"], "--json")

    assert ran.code == 2
    assert redo in ran.error["hint"]


def test_purged_session_cannot_be_restored_and_this_is_reported(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))
    asnap("forget", "01", "--yes")
    for trashed in (place / "trash").iterdir():
        trashed.rename(place / "elsewhere")

    assert states(asnap) == [("forget", "purged")]
    ran = asnap("undo", "--json")
    assert (ran.code, ran.error["next"]) == (4, "asnap undo --list")
    assert "purged" in ran.error["message"]
    assert states(asnap) == [("forget", "purged")]


def test_session_whose_id_is_taken_stays_in_the_trash(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", "old"))
    asnap("forget", "01", "--yes")
    saved(place, session("01aaaa", "new"))

    assert asnap("undo").code == 6
    assert loaded(place, "01aaaa") == session("01aaaa", "new")


def test_undo_does_what_it_can_and_the_rest_can_be_retried(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))
    asnap("forget", "01", "02", "--yes")
    saved(place, session("01aaaa", "in the way"))

    ran = asnap("undo", "--json")

    assert ran.code == 3
    done = valid(Undone, ran.json)
    assert [each["code"] for each in done["problems"]] == ["conflict"]
    assert names(place) == ["01aaaa", "02bbbb"]
    (place / "sessions" / "01aaaa").rename(place / "elsewhere")
    assert asnap("undo").code == 0
    assert loaded(place, "01aaaa") == session("01aaaa")


def recorded(place: Path, home: Path, steps: list[dict[str, Any]], kind: str = "import") -> None:
    """Another command wrote down what it did."""
    from snapshot_plugin.operations.undo import OperationLog, log_path  # noqa: PLC0415 — for this one

    async def record() -> None:
        async with FilesystemStore(place, background=False) as store:
            path = log_path(home / "state" / "asnap", store.store_id)
        await OperationLog(path).record(kind=kind, summary="a thing", steps=steps)

    anyio.run(record)


def test_undoing_a_creation_moves_it_to_the_trash_and_back(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01made"), session("02else"))
    recorded(place, home, [{"do": "delete", "session_id": "01made"}])
    asnap("rename", "01", "a label is no work")

    operations = asnap("undo", "--list", "--json").json["operations"]
    ran = asnap("undo", operations[1]["id"], "--json")

    assert ran.code == 0
    assert names(place) == ["02else"]
    asnap("undo", ran.json["redo"])
    assert names(place) == ["01made", "02else"]


def test_session_changed_since_is_left_alone(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01made"))
    recorded(place, home, [{"do": "delete", "session_id": "01made"}])
    saved(place, session("01made", "hello", "more"))

    ran = asnap("undo", "--json")

    assert (ran.code, ran.error["session_id"]) == (6, "01made")
    assert names(place) == ["01made"]


def test_session_changed_under_a_clock_that_went_back_is_left_alone(asnap: Asnap, place: Path) -> None:
    saved(place, session("01made"))
    made = asnap("fork", "01made", "--json").json["session_id"]
    with FilesystemStore(place, background=False, clock=FixedClock()).sync as store:
        store.save(store.load(made).append(Message(role="user", content="more")))

    ran = asnap("undo", "--json")

    assert (ran.code, ran.error["session_id"]) == (6, made)
    assert names(place) == sorted(["01made", made])


def test_a_live_session_is_left_alone(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01made"))
    recorded(place, home, [{"do": "delete", "session_id": "01made"}])
    lease = Lease.acquire(place / "sessions" / "01made", Owner.this_process(since=FixedClock()()))

    assert asnap("undo").code == 6
    assert names(place) == ["01made"]
    lease.release()


@pytest.mark.parametrize(
    "step",
    [
        {"do": "explode"},
        {},
        {"do": "delete"},
        {"do": "delete", "session_id": 7},
        {"do": "delete", "session_id": "../../x"},
        {"do": "undelete", "token": "../sessions"},
        {"do": "undelete", "token": None},
        {"do": "label", "session_id": "01aaaa", "tags": "none"},
        {"do": "restore", "session_id": "01aaaa", "token": "x"},
        {"do": "drop", "session_id": "01aaaa", "seqs": ["x"]},
        {"do": "drop", "session_id": "01aaaa", "seqs": 3},
        {"do": "revert", "session_id": "01aaaa", "seq": 9},
    ],
)
def test_malformed_steps_do_no_harm(asnap: Asnap, place: Path, home: Path, step: dict[str, Any]) -> None:
    saved(place, session("01aaaa"))
    recorded(place, home, [step])

    assert asnap("undo").code in (2, 4, 6)
    assert loaded(place, "01aaaa") == session("01aaaa")


def test_trashed_session_is_restored_by_its_id(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"), session("02bbbb", "2"))

    async def forget() -> None:
        async with FilesystemStore(place, background=False) as store:
            await store.delete("01aaaa")
            await store.drop("02bbbb", [1])

    anyio.run(forget)
    trash = {line.split("\t")[0]: line.split("\t")[-1] for line in asnap("purge", "-n").out.splitlines()}

    assert asnap("undo").code == 4
    assert [asnap("undo", trash[name]).code for name in ("01aaaa", "02bbbb")] == [0, 0]

    assert loaded(place, "01aaaa") == session("01aaaa")
    assert asnap("why", "02bbbb@1").code == 0


def test_quiet_prints_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    asnap("rename", "01", "one")

    ran = asnap("undo", "-q")

    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    evil = "a\x1b]0;owned\x07b\x1b[2J"
    saved(place, session("01aaaa", title=evil, tags=(evil,)))
    asnap("rename", "01", "new")
    asnap("tag", "01", "new")

    for words in (("undo", "--list"), ("undo",), ("undo",), ("undo", "--list")):
        ran = asnap(*words)
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err


def test_unwritable_store_is_not_reported_as_a_locked_session(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    asnap("rename", "01", "new")
    lease = place / "sessions" / "01aaaa" / ".lease"
    lease.unlink(missing_ok=True)
    lease.mkdir()  # what a lease cannot be written to, for root as well

    ran = asnap("undo", "--json")

    assert (ran.code, ran.error["code"]) == (1, "store_unavailable")


def test_list_of_operations_fits_a_narrow_window(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))
    assert asnap("rename", "one", "a name that is long enough to be cut").code == 0
    assert asnap("undo").code == 0

    with Terminal("undo", "--list", columns=34) as terminal:
        assert terminal.end() == 0
        assert [line.split()[-1] for line in terminal.lines if "rename " in line and "undid" not in line] == [
            "undone"
        ]


@pytest.mark.requirement("STORE-UNDELETE")
def test_undo_of_a_forget_leaves_a_new_live_session_of_that_id_alone(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", title="old"))
    assert asnap("forget", "01aaaa", "--yes").code == 0
    new = LiveSessions(FilesystemStore(place, background=False), Said)
    live = new.begin(blank("01aaaa"))
    assert live.record({"say": "first"}, durable=True)

    ran = asnap("undo")

    assert (ran.code, "live" in ran.err) == (6, True), ran.err
    assert live.record({"say": "second"}, durable=True)
    new.close()
    assert texts(loaded(place, "01aaaa")) == ["first", "second"]
    assert asnap("forget", "01aaaa", "--yes").code == 0
    trashed = asnap("undo", "--list", "--json").json["operations"]
    assert asnap("undo", trashed[1]["id"]).code == 0
    assert loaded(place, "01aaaa").title == "old"
