"""``forget``: sessions to the trash, snapshots by policy, and everything back again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.operations.forget import Forgotten
from snapshot_plugin.testing import FixedClock
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid
from tests.cli.terminal import Terminal


def names(place: Path) -> list[str]:
    async def listed() -> list[str]:
        async with FilesystemStore(place, background=False) as store:
            return sorted(meta.session_id for meta in await store.list())

    return anyio.run(listed)


def history(place: Path, session_id: str) -> list[int]:
    async def listed() -> list[int]:
        async with FilesystemStore(place, background=False) as store:
            return sorted(meta.seq for meta in await store.history(session_id))

    return anyio.run(listed)


def grown(place: Path, session_id: str, count: int, *, every: timedelta = timedelta(days=1), **more: Any) -> None:
    """Save *count* snapshots, *every* so often until now."""
    clock = FixedClock(datetime.now(UTC) - every * (count - 1))

    async def save() -> None:
        async with FilesystemStore(place, background=False, clock=clock) as store:
            for number in range(count):
                await store.save(session(session_id, *(str(n) for n in range(number + 1)), **more))
                clock.advance(every)

    anyio.run(save)


def lease_of(place: Path, session_id: str) -> Lease:
    return Lease.acquire(place / "sessions" / session_id, Owner.this_process(since=FixedClock()()))


# Whole sessions --------------------------------------------------------------------------------------------------


def test_forgotten_sessions_go_to_the_trash_and_can_be_restored(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa", title="old try"), session("02bbbb"), session("03cccc"))

    ran = asnap("forget", "old try", "02", "--yes", "--json")

    done = valid(Forgotten, ran.json)
    assert ran.code == 0
    assert {each["session_id"]: each["what"] for each in done["sessions"]} == {
        "01aaaa": "session",
        "02bbbb": "session",
    }
    assert names(place) == ["03cccc"]
    assert asnap("undo").code == 0
    assert names(place) == ["01aaaa", "02bbbb", "03cccc"]


def test_script_needs_yes_to_forget(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    ran = asnap("forget", "01", "--json")

    assert (ran.code, ran.error["code"]) == (2, "invalid_input")
    assert "--yes" in ran.error["hint"]
    assert names(place) == ["01aaaa"]


def test_a_dry_run_changes_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    ran = asnap("forget", "01", "--dry-run", "--json")

    assert (ran.code, ran.json["dry_run"], ran.json["operation"]) == (0, True, None)
    assert names(place) == ["01aaaa"]


def test_working_memory_is_forgotten_and_restored_with_its_session(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("01aaaa+memory"), session("01aaaa+memoryx"))

    asnap("forget", "01aaaa", "--yes")
    assert names(place) == ["01aaaa+memoryx"]

    asnap("undo")
    assert names(place) == ["01aaaa", "01aaaa+memory", "01aaaa+memoryx"]


def test_a_live_session_is_refused(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    lease = lease_of(place, "01aaaa")

    ran = asnap("forget", "01", "--yes", "--json")

    assert (ran.code, ran.error["code"]) == (6, "locked")
    assert names(place) == ["01aaaa"]
    lease.release()


def test_live_session_among_several_is_skipped_with_its_memory(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), session("01aaaa+memory"), session("02bbbb"))
    lease = lease_of(place, "01aaaa")

    ran = asnap("forget", "01aaaa", "02", "--yes", "--json")

    assert ran.code == 3
    told = {each["session_id"]: (each["what"], each["code"]) for each in ran.json["sessions"]}
    assert told == {"01aaaa": ("skipped", "locked"), "02bbbb": ("session", None)}
    assert names(place) == ["01aaaa", "01aaaa+memory"]
    lease.release()


def test_a_damaged_session_can_be_forgotten(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))
    [file] = (place / "sessions" / "01aaaa").glob("*.snap.gz")
    file.write_bytes(b"rubbish")

    assert asnap("forget", "01aaaa", "--yes").code == 0
    assert names(place) == []


@pytest.mark.parametrize(
    "words",
    [(), ("01", "--all", "--keep-last", "1"), ("01", "--keep-sessions", "3"), ("--all", "--keep-last", "x")],
)
def test_invalid_command_line_is_refused(asnap: Asnap, place: Path, words: tuple[str, ...]) -> None:
    saved(place, session("01aaaa"))

    assert asnap("forget", *words, "--yes").code == 2
    assert names(place) == ["01aaaa"]


@pytest.mark.requirement("STORE-VALUE-POLICY-EMPTY")
@pytest.mark.parametrize("words", [("--all",), ("--all", "--keep-last", "0"), ("01", "--keep-last", "0")])
def test_a_policy_that_keeps_nothing_is_refused(asnap: Asnap, place: Path, words: tuple[str, ...]) -> None:
    grown(place, "01aaaa", 3)

    ran = asnap("forget", *words, "--yes", "--json")

    assert (ran.code, ran.error["code"]) == (2, "invalid_policy")
    assert history(place, "01aaaa") == [1, 2, 3]


def test_unknown_session_stops_the_command_before_any_change(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"))

    assert asnap("forget", "01aaaa", "09", "--yes").code == 4
    assert names(place) == ["01aaaa"]


def test_encrypted_store_without_its_key_is_refused(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), key="correct horse")

    assert asnap("forget", "01", "--yes").code == 7
    assert asnap("undo").code == 7
    assert asnap("purge", "--yes").code == 7


# Snapshots by policy ---------------------------------------------------------------------------------------------


def test_snapshots_no_rule_keeps_are_dropped_with_reasons_and_can_be_restored(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 6)

    ran = asnap("forget", "01", "--keep-last", "2", "--yes", "--json")

    [told] = valid(Forgotten, ran.json)["sessions"]
    assert (ran.code, told["what"]) == (0, "snapshots")
    assert [(each["snapshot"], each["keep"], each["reasons"]) for each in told["snapshots"]] == [
        (6, True, ["head", "last"]),
        (5, True, ["last"]),
        *((number, False, []) for number in (4, 3, 2, 1)),
    ]
    assert history(place, "01aaaa") == [5, 6]
    asnap("undo")
    assert history(place, "01aaaa") == [1, 2, 3, 4, 5, 6]


@pytest.mark.requirement("STORE-VALUE-POLICY")
@pytest.mark.parametrize(
    ("rule", "every", "period"),
    [
        ("--keep-hourly", timedelta(minutes=25), "%Y-%m-%d %H"),
        ("--keep-daily", timedelta(hours=10), "%Y-%m-%d"),
        ("--keep-weekly", timedelta(days=3), "%G-%V"),
        ("--keep-monthly", timedelta(days=12), "%Y-%m"),
    ],
)
def test_newest_snapshot_of_each_period_is_kept(
    asnap: Asnap, place: Path, rule: str, every: timedelta, period: str
) -> None:
    grown(place, "01aaaa", 9, every=every)
    with FilesystemStore(place, background=False).sync as store:
        newest = {f"{each.saved_at:{period}}": each.seq for each in reversed(store.history("01aaaa"))}

    assert asnap("forget", "01", rule, "2", "--yes").code == 0

    assert history(place, "01aaaa") == sorted(newest.values())[-2:]


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_pinned_session_keeps_every_snapshot(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 4, pinned=True)

    asnap("forget", "01", "--keep-last", "1", "--yes")

    assert history(place, "01aaaa") == [1, 2, 3, 4]


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_policy_rules_are_combined(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 9, every=timedelta(days=2))

    asnap("forget", "01", "--keep-within", "3d", "--keep-daily", "3", "--yes")

    assert history(place, "01aaaa") == [7, 8, 9]


def test_policy_applies_to_all_sessions_and_affects_only_some(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 4)
    grown(place, "02bbbb", 4, pinned=True)
    grown(place, "03cccc", 1)

    ran = asnap("forget", "--all", "--keep-last", "1", "--yes")

    assert [line.split("\t")[:3] for line in ran.out.splitlines()] == [["01aaaa", "", "drop 3 of 4"]]
    assert (history(place, "01aaaa"), history(place, "02bbbb")) == ([4], [1, 2, 3, 4])


@pytest.mark.requirement("STORE-VALUE-POLICY")
def test_tagged_snapshots_are_kept_unless_other_tags_are_named(asnap: Asnap, place: Path) -> None:
    saved(place, session("01aaaa"), tags=["pre-deploy"])
    saved(place, session("01aaaa", "2"), tags=["night"])
    saved(place, session("01aaaa", "3"), session("01aaaa", "4"))

    asnap("forget", "01", "--keep-last", "1", "--yes")
    assert history(place, "01aaaa") == [1, 2, 4]
    asnap("forget", "01", "--keep-tag", "night", "--yes")
    assert history(place, "01aaaa") == [2, 4]


def test_single_snapshot_can_be_forgotten(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 5)

    assert asnap("forget", "01@2", "01@4", "--yes").code == 0
    assert history(place, "01aaaa") == [1, 3, 5]
    assert asnap("forget", "01@5", "--yes").code == 2
    assert asnap("forget", "01@4", "--yes").code == 4
    assert asnap("forget", "01@3", "--keep-last", "1", "--yes").code == 2
    asnap("undo")
    assert history(place, "01aaaa") == [1, 2, 3, 4, 5]


def test_a_live_and_a_damaged_session_are_skipped_with_the_reason(asnap: Asnap, place: Path) -> None:
    for name in ("01aaaa", "02bbbb", "03cccc"):
        grown(place, name, 3)
    lease = lease_of(place, "01aaaa")
    [file] = (place / "sessions" / "02bbbb").glob("*.snap.gz")
    data = bytearray(file.read_bytes())
    data[-12] ^= 1
    file.write_bytes(data)

    trial = asnap("forget", "--all", "--keep-last", "1", "-n", "--json")
    assert (trial.code, [each["what"] for each in trial.json["sessions"] if each["code"]]) == (3, ["skipped"])
    ran = asnap("forget", "--all", "--keep-last", "1", "--yes", "--json")

    assert ran.code == 3
    told = {each["session_id"]: (each["what"], each["code"]) for each in ran.json["sessions"]}
    assert told == {
        "01aaaa": ("skipped", "locked"),
        "02bbbb": ("skipped", "corrupted"),
        "03cccc": ("snapshots", None),
    }
    assert file.read_bytes() == data
    lease.release()


def test_policy_that_drops_nothing_is_reported_without_a_question(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 3)

    ran = asnap("forget", "--all", "--keep-last", "9")

    assert (ran.code, ran.out) == (0, "")
    assert history(place, "01aaaa") == [1, 2, 3]
    assert asnap("undo").code == 4


def test_invalid_policy_value_is_refused(asnap: Asnap, place: Path) -> None:
    grown(place, "01aaaa", 3)

    assert asnap("forget", "01", "--keep-within", "soon", "--yes").code == 2


def test_oldest_sessions_over_the_limit_are_forgotten(asnap: Asnap, place: Path) -> None:
    saved(place, *(session(f"{number:02}", minutes=number) for number in range(12)))
    saved(place, session("00-pinned", minutes=-9, pinned=True), session("03+memory", minutes=99))

    ran = asnap("forget", "--all", "--keep-sessions", "8", "--yes", "--json")

    assert ran.code == 0
    gone = [each["session_id"] for each in ran.json["sessions"]]
    assert gone == ["03", "03+memory", "02", "01", "00"]
    assert names(place) == ["00-pinned", *(f"{number:02}" for number in range(4, 12))]
    asnap("undo")
    assert len(names(place)) == 14
    assert asnap("forget", "--all", "--keep-sessions", "1000", "--yes", "--json").json["sessions"] == []


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    evil = "a\x1b]0;owned\x07b\x1b[2J"
    saved(place, session("01aaaa", title=evil), tags=[evil])
    saved(
        place, session("01aaaa", "2", title=evil), session("01aaaa", "3", title=evil), session("02bbbb", title=evil)
    )

    for words in (("01", "--keep-last", "1"), ("01aaaa", "02bbbb")):
        ran = asnap("forget", *words, "--yes")
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
    assert "\x1b" not in asnap("undo", "--list").out


def test_work_done_before_an_interruption_can_be_undone(
    asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(place, session("01aaaa"), session("02bbbb"))
    delete = FilesystemStore.delete

    async def interrupted(store: FilesystemStore, session_id: str) -> Any:
        if session_id == "02bbbb":
            raise KeyboardInterrupt
        return await delete(store, session_id)

    monkeypatch.setattr(FilesystemStore, "delete", interrupted)
    assert asnap("forget", "01", "02", "--yes").code == 130
    assert names(place) == ["02bbbb"]

    assert asnap("undo").code == 0
    assert names(place) == ["01aaaa", "02bbbb"]


def test_unwritable_operation_log_is_reported_and_nothing_is_lost(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("01aaaa"))
    (home / "state").write_bytes(b"in the way")

    ran = asnap("forget", "01", "--yes", "--json")

    assert (ran.code, ran.error["code"]) == (1, "store_unavailable")
    assert "purge -n" in ran.error["hint"]
    [line] = asnap("purge", "-n").out.splitlines()
    (home / "state").unlink()
    assert asnap("undo", line.split("\t")[-1]).code == 0
    assert names(place) == ["01aaaa"]


# On a terminal ---------------------------------------------------------------------------------------------------


def test_terminal_shows_the_plan_and_asks(place: Path) -> None:
    grown(place, "01aaaa", 4)

    with Terminal("forget", "01", "--keep-last", "1") as terminal:
        terminal.wait_for("y/N]")
        assert "no rule keeps it" in terminal.text
        terminal.send("n\r")
        assert terminal.end() == 130
    assert history(place, "01aaaa") == [1, 2, 3, 4]

    with Terminal("forget", "01", "--keep-last", "1") as terminal:
        terminal.wait_for("y/N]")
        terminal.send("y\r")
        terminal.wait_for("asnap undo")
        assert terminal.end() == 0
        assert terminal.text.count("no rule keeps it") == 3
    assert history(place, "01aaaa") == [4]
