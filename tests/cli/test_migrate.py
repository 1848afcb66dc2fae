from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin.cli.commands.care import Migrated
from snapshot_plugin.live.lease import Lease, Owner
from tests.cli.conftest import Asnap, saved
from tests.cli.examples import session, valid

GOLDEN = Path(__file__).parents[1] / "golden" / "documents"


def old_file(tmp_path: Path, name: str) -> Path:
    sources = [path for path in (GOLDEN / name).iterdir() if path.suffix == ".json"]
    source = next(path for path in sources if "expect" not in path.name)
    return Path(shutil.copy(source, tmp_path / f"{name}.json"))


@pytest.mark.requirement("STORE-MIGRATE-DRY-RUN", "STORE-MIGRATE-FOREIGN", "STORE-MIGRATE-INPUT")
@pytest.mark.parametrize(
    ("name", "steps"), [("openagent-parser", 2), ("oneringai-librarian", 2), ("orbit-refactor", 1)]
)
def test_old_files_are_migrated_into_new_files(asnap: Asnap, tmp_path: Path, name: str, steps: int) -> None:
    old = old_file(tmp_path, name)
    before = old.read_bytes()

    planned = asnap("migrate", old, "--dry-run", "--json")
    assert len(valid(Migrated, planned.json)["moved"][0]["steps"]) == steps
    assert not old.with_suffix(".v2.json").exists()

    assert asnap("migrate", old).code == 0
    new = json.loads(old.with_suffix(".v2.json").read_text())
    assert new["version"] == 2
    assert old.read_bytes() == before
    assert asnap("migrate", old.with_suffix(".v2.json"), "--json").json["moved"] == []
    assert asnap("migrate", old).code == 2, "what is there is not overwritten"


def test_file_of_a_newer_release_is_refused(asnap: Asnap, tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    path.write_text(json.dumps({"version": 99, "session_id": "x"}))

    assert asnap("migrate", path).code == 8


@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000])
def test_file_that_is_not_a_session_is_refused(asnap: Asnap, tmp_path: Path, text: str) -> None:
    path = tmp_path / "junk.json"
    path.write_text(text)

    assert asnap("migrate", path).code == 2


def test_current_store_needs_no_migration(asnap: Asnap, place: Path) -> None:
    saved(place, session("one"))

    ran = asnap("migrate", "--json")

    assert (ran.json["looked_at"], ran.json["moved"]) == (1, [])


def test_live_session_is_not_migrated(asnap: Asnap, place: Path) -> None:
    shutil.copytree(GOLDEN.parent / "store" / "format-1" / "plain", place)
    lease = Lease.acquire(place / "sessions" / "written-by-version-1", Owner.this_process(since=datetime.now(UTC)))
    try:
        ran = asnap("migrate", "--json")
    finally:
        lease.release()

    [left] = valid(Migrated, ran.json)["moved"]
    assert (ran.code, left["written"]) == (3, None)
    assert "written-by-version-1" in left["problem"]
    assert asnap("migrate").code == 0
