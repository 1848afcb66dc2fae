from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_plugin.cli.commands.care import Checked
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid


def segment(place: Path, session_id: str) -> Path:
    return next((place / "sessions" / session_id).glob("*.snap.gz"))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_intact_store_has_no_findings(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"), session("two"))

    ran = asnap("check", "--json")

    assert ran.code == 0
    assert valid(Checked, ran.json)["sessions"] == 2
    assert ran.json["findings"] == []
    assert ran.json["bytes_read"] > 0


def test_flipped_bit_is_found_explained_and_quarantined(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"), session("two"))
    damage(segment(place, "two"))

    found = asnap("check", "--json")
    assert found.code == 5
    assert [(each["session_id"], each["is_damage"]) for each in found.json["findings"]] == [("two", True)]
    assert found.json["findings"][0]["explanation"]

    text = asnap("check", "two")
    assert text.code == 5
    assert "asnap check --repair" in text.err

    repaired = asnap("check", "--repair", "--yes", "--json")
    assert repaired.code == 0
    assert repaired.json["repaired"]
    assert list((place / "sessions" / "two" / "quarantine").iterdir())
    assert asnap("check").code == 0


def test_salvage_keeps_intact_snapshots_and_doctor_names_the_quarantine(asnap: Asnap, place: Path) -> None:
    saved(place, *(session("one", *(f"word-{n}" for n in range(count))) for count in range(2, 12)))
    data = bytearray((file := segment(place, "one")).read_bytes())
    data[len(data) // 4] ^= 1
    file.write_bytes(data)
    assert asnap("check").code == 5

    done = asnap("check", "--salvage", "one", "--json")

    assert any("snapshot 11" in line for line in done.json["repaired"])
    shown = asnap("show", "one", "--json").json
    assert "word-10" in str(shown)
    assert "salvaged" in str(asnap("show", "one", "--history", "--json").json["history"][0])
    assert asnap("check", "--repair", "--yes").code == 0
    aside = [each for each in asnap("doctor", "--json").json["findings"] if each["area"] == "quarantine"]
    assert [each["run"] for each in aside] == ["asnap check --salvage one"]


def test_repair_in_a_script_needs_yes(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))

    assert asnap("check", "--repair").code == 2


def test_parts_together_check_the_store_exactly_once(asnap: Asnap, place: Path) -> None:
    saved(place, *(session(f"s{n}") for n in range(5)))

    parts = [asnap("check", "--subset", f"{n}/3", "--json").json["sessions"] for n in (1, 2, 3)]

    assert sum(parts) == 5
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("part", ["0/3", "4/3", "x", "1/0"])
def test_invalid_part_is_refused(asnap: Asnap, place: Path, part: str) -> None:
    saved(place, session("one"))

    assert asnap("check", "--subset", part).code == 2


def test_an_unknown_session_is_not_found(asnap: Asnap, place: Path) -> None:
    saved(place, session("fix-auth"))

    ran = asnap("check", "fix-atuh", "--json")

    assert ran.code == 4
    assert "fix-auth" in ran.error["hint"]
    assert ran.error["next"] == "asnap list --all"
