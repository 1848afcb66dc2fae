from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from snapshot_plugin.cli.commands.organise import Merging
from snapshot_plugin.model.merge import FROM
from snapshot_plugin.testing import make_message, make_snapshot
from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.stored import loaded, operations, session_ids

ROOT = make_snapshot("hello", "hi there", session_id="root", title="Talk")


@pytest.fixture
def branches(asnap: Asnap, place: Path) -> tuple[str, str]:
    """Two branches of a stored conversation, each with a message of its own."""
    saved(place, ROOT)
    names = [asnap("fork", "root", "--json", "--title", title).json["session_id"] for title in ("left", "right")]
    for name in names:
        saved(place, loaded(place, name).append(make_message(f"only {name}")))
    return names[0], names[1]


@pytest.mark.requirement("TERMINAL-BRANCH-MERGE")
def test_two_branches_merge_into_a_new_session_with_everything(
    asnap: Asnap, place: Path, home: Path, branches: tuple[str, str]
) -> None:
    done = asnap("merge", *branches, "--title", "both", "--json").json
    new = loaded(place, done["session_id"])

    assert [message.text for message in new.messages] == [
        "hello",
        "hi there",
        f"only {branches[0]}",
        f"only {branches[1]}",
    ]
    assert [message.metadata[FROM]["session_id"] for message in new.messages[2:]] == list(branches)
    assert (done["shared"], done["from_first"], done["from_second"], done["title"]) == (2, 1, 1, "both")
    assert done["resume"] == f"asnap resume {new.session_id}"
    assert operations(home)[-1]["steps"] == [{"do": "delete", "session_id": new.session_id, "seq": 1}]
    jsonschema.validate(done, Merging.json_schema())


def test_merge_can_be_undone(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    before = session_ids(place)
    asnap("merge", *branches)
    assert asnap("undo").code == 0
    assert session_ids(place) == before


def test_merged_branches_are_unchanged(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    before = [loaded(place, name) for name in branches]
    asnap("merge", *branches)
    assert [loaded(place, name) for name in branches] == before


def test_dry_run_reports_the_merge_and_saves_nothing(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    before = session_ids(place)
    done = asnap("merge", *branches, "--dry-run", "--json").json

    assert (done["session_id"], done["messages"], done["dry_run"]) == (None, 4, True)
    assert "title" in {conflict["path"] for conflict in done["conflicts"]}
    assert session_ids(place) == before
    assert "title" in asnap("merge", *branches, "--dry-run").out
    jsonschema.validate(done, Merging.json_schema())


def test_conflicts_are_shown_with_both_versions(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    for name, mode in zip(branches, ("plan", "code"), strict=True):
        saved(place, loaded(place, name).evolve(config={"mode": mode}))
    done = asnap("merge", *branches)

    assert done.out.strip() in session_ids(place)
    assert "config.mode" in done.err
    assert "plan" in done.err
    assert "code" in done.err
    assert loaded(place, done.out.strip()).config.mode == "plan"


def test_bookkeeping_of_the_recorder_is_not_shown_as_a_conflict(
    asnap: Asnap, place: Path, branches: tuple[str, str]
) -> None:
    for name, told in zip(branches, (6, 8), strict=True):
        saved(place, loaded(place, name).evolve(metadata={"acp": {"told": told}}))
    assert "metadata.acp" not in asnap("merge", *branches).err


def test_change_in_one_branch_only_is_not_a_conflict(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    saved(place, loaded(place, branches[1]).evolve(config={"mode": "code"}))
    done = asnap("merge", *branches, "--json", "--title", "both").json

    assert done["conflicts"] == []
    assert loaded(place, done["session_id"]).config.mode == "code"


def test_branches_merge_after_their_parent_is_gone(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    import shutil  # noqa: PLC0415 — for this one accident

    shutil.rmtree(place / "sessions" / "root")
    assert asnap("merge", *branches, "--json").json["shared"] == 2


def test_branch_merges_into_its_parent(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    done = asnap("merge", "root", branches[0], "--json").json
    assert (done["shared"], done["from_first"], done["from_second"], done["title"]) == (2, 0, 1, "left (merged)")


def test_unrelated_sessions_are_refused(asnap: Asnap, place: Path) -> None:
    saved(place, ROOT, make_snapshot("something", "else", session_id="other"))
    done = asnap("merge", "root", "other", "--json")

    assert (done.code, done.error["code"]) == (2, "invalid_input")
    assert session_ids(place) == ["other", "root"]


def refusal(done: Ran) -> int:
    assert done.out == ""
    return done.code


def test_bad_references_and_stores_have_their_own_exit_codes(asnap: Asnap, place: Path) -> None:
    assert refusal(asnap("merge", "root", "root")) == 10
    saved(place, ROOT, key="secret")
    assert refusal(asnap("merge", "root", "root")) == 7


def test_name_that_means_something_else_is_refused(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    before = session_ids(place)
    assert refusal(asnap("merge", *branches, "--title", "tag:x")) == 2
    assert session_ids(place) == before


def test_unknown_or_identical_sessions_are_refused(asnap: Asnap, place: Path) -> None:
    saved(place, ROOT)
    assert refusal(asnap("merge", "root", "nobody")) == 4
    assert refusal(asnap("merge", "root", "root")) == 2
    assert refusal(asnap("merge", "root")) == 2


def test_quiet_prints_only_the_id(asnap: Asnap, branches: tuple[str, str]) -> None:
    done = asnap("merge", *branches, "-q")
    assert len(done.out.split()) == 1
    assert done.err == ""


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path, branches: tuple[str, str]) -> None:
    for name in branches:
        saved(place, loaded(place, name).evolve(title=f"{name}\x1b]0;owned\x07", config={"mode": f"{name}\x1b[2J"}))
    done = asnap("merge", *branches, "--dry-run", "--color", "never")
    assert "config.mode" in done.out
    assert "\x1b" not in done.out + done.err
