"""``purge``: what is in the trash goes for ever, and only that."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.operations.forget import Purged
from snapshot_plugin.search.database import heads
from snapshot_plugin.testing import FixedClock
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.cli.stored import operations
from tests.cli.terminal import Terminal


def forgotten(place: Path, session_id: str, *, days: int) -> None:
    """Save a session and forget it so many days ago."""
    clock = FixedClock(datetime.now(UTC) - timedelta(days=days))

    async def forget() -> None:
        async with FilesystemStore(place, background=False, clock=clock) as store:
            await store.save(session(session_id))
            await store.delete(session_id)

    anyio.run(forget)


def test_trash_is_emptied_permanently(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"), session("02bbbb", "2"), session("03cccc"))
    asnap("forget", "01", "--yes")
    asnap("forget", "02", "--keep-last", "1", "--yes")

    ran = asnap("purge", "--yes", "--json")

    done = valid(Purged, ran.json)
    assert ran.code == 0
    assert {each["session_id"]: each["is_copy"] for each in done["removed"]} == {"01aaaa": False, "02bbbb": True}
    assert done["size_bytes"] == sum(each["size_bytes"] for each in done["removed"]) > 0
    assert list((place / "trash").iterdir()) == []
    assert asnap("undo").code == 4
    assert sorted(path.name for path in (place / "sessions").iterdir()) == ["02bbbb", "03cccc"]


def test_search_index_drops_purged_sessions(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01aaaa", "marvellous"), session("02bbbb"))
    asnap("search", "marvellous")
    asnap("forget", "01", "--yes")

    asnap("purge", "--yes")

    [index] = (home / "cache" / "asnap").glob("search-*.db")
    connection = sqlite3.connect(index)
    assert heads(connection) == {}
    connection.close()


def test_purge_does_not_create_an_index(asnap: Asnap, place: Path, home: Path) -> None:
    forgotten(place, "01old", days=40)

    asnap("purge", "--yes")

    assert not (home / "cache").exists()


def test_newer_trash_is_kept(asnap: Asnap, place: Path) -> None:
    forgotten(place, "01old", days=40)
    forgotten(place, "02new", days=3)

    done = asnap("purge", "--older-than", "30d", "--yes", "--json").json

    assert ([each["session_id"] for each in done["removed"]], done["kept"]) == (["01old"], 1)
    assert [path.name.partition(".")[0] for path in (place / "trash").iterdir()] == ["02new"]


def test_a_dry_run_removes_nothing(asnap: Asnap, place: Path) -> None:
    forgotten(place, "01old", days=40)

    done = asnap("purge", "-n", "--json").json

    assert (len(done["removed"]), done["dry_run"]) == (1, True)
    assert len(list((place / "trash").iterdir())) == 1


def test_script_needs_yes_to_purge(asnap: Asnap, place: Path) -> None:
    forgotten(place, "01old", days=40)

    assert asnap("purge").code == 2
    assert len(list((place / "trash").iterdir())) == 1


def test_empty_trash_asks_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    ran = asnap("purge", "--json")

    assert (ran.code, ran.json["removed"]) == (0, [])


def test_names_of_purged_sessions_leave_the_operation_log(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))
    asnap("rename", "02", "still-here")
    asnap("forget", "01aaaa", "--yes")

    asnap("purge", "--yes")

    written = b"".join(path.read_bytes() for path in (home / "state").rglob("*.jsonl"))
    assert b"01aaaa" not in written
    assert b"still-here" in written


@pytest.mark.parametrize("span", ["soon", "-3d", ""])
def test_invalid_duration_is_refused(asnap: Asnap, place: Path, span: str) -> None:
    forgotten(place, "01old", days=40)

    assert asnap("purge", "--older-than", span, "--yes").code == 2
    assert len(list((place / "trash").iterdir())) == 1


def test_terminal_asks_before_purging(place: Path) -> None:
    forgotten(place, "01old", days=40)

    with Terminal("purge") as terminal:
        terminal.wait_for("permanently")
        terminal.send("n\r")
        assert terminal.end() == 130
    assert len(list((place / "trash").iterdir())) == 1


def test_operations_on_purged_sessions_are_forgotten_so_that_undo_reaches_earlier_ones(
    asnap: Asnap, place: Path, home: Path
) -> None:
    saved(place, session("kept"), session("gone"))
    assert asnap("rename", "kept", "first name").code == 0
    assert asnap("rename", "gone", "secret plan").code == 0
    assert asnap("forget", "gone", "--yes").code == 0
    assert asnap("purge", "--yes").code == 0

    assert "secret plan" not in str(operations(home))
    assert asnap("undo").code == 0
    assert asnap("list", "--all", "--json").json["sessions"][0]["title"] is None


def test_operations_on_a_session_that_lost_only_snapshots_stay(asnap: Asnap, place: Path) -> None:
    saved(place, session("kept", "one"))
    saved(place, session("kept", "one", "two"))
    assert asnap("rename", "kept", "a name").code == 0
    assert asnap("forget", "kept", "--keep-last", "1", "--yes").code == 0
    assert asnap("purge", "--yes").code == 0

    assert asnap("undo").code == 0
    assert asnap("list", "--all", "--json").json["sessions"][0]["title"] is None
