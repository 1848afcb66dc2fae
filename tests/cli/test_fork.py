from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from snapshot_plugin.model import Metrics, Parent
from snapshot_plugin.operations.organise import Forked, free_title
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.stored import loaded, operations, session_ids

SESSION = make_snapshot(
    "one", "two", "three", "four", session_id="talk", title="Talk", metrics=Metrics(total_tokens=9)
)


@pytest.mark.requirement("TERMINAL-BRANCH-ANYWHERE", "STORE-VALUE-LINEAGE")
@pytest.mark.parametrize("at", [0, 1, 3, 4])
def test_session_can_be_forked_at_any_message_and_stays_unchanged(asnap: Asnap, place: Path, at: int) -> None:
    saved(place, SESSION)
    done = asnap("fork", "talk", "--messages", str(at), "--json").json

    new = loaded(place, done["session_id"])
    assert new.messages == SESSION.messages[:at]
    assert new.parent == Parent(session_id="talk", seq=1, message_index=at)
    assert loaded(place, "talk") == SESSION
    jsonschema.validate(done, Forked.json_schema())


def test_fork_without_a_position_copies_the_whole_named_snapshot(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION.evolve(messages=SESSION.messages[:2]), SESSION)

    newest = asnap("fork", "talk", "--json").json
    earlier = asnap("fork", "talk@1", "--json").json
    assert (newest["messages"], newest["parent_seq"]) == (4, 2)
    assert (earlier["messages"], earlier["parent_seq"]) == (2, 1)


def test_id_is_on_stdout_and_the_next_command_on_stderr(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION)
    done = asnap("fork", "latest")
    (new,) = set(session_ids(place)) - {"talk"}
    assert done.out == f"{new}\n"
    assert f"asnap resume {new}" in done.err

    assert asnap("fork", "talk", "-q").err == ""


def test_fork_gets_its_own_name_so_names_stay_unique(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION)
    titles = [asnap("fork", "talk", "--json").json["title"] for _ in range(2)]
    assert titles == ["Talk (fork)", "Talk (fork 2)"]
    assert asnap("fork", "talk", "--title", "mine", "--json").json["title"] == "mine"
    assert asnap("fork", "Talk", "--json").code == 0


def test_fork_of_an_untitled_session_is_untitled() -> None:
    assert free_title(None, "fork", set()) is None


def test_fork_does_not_inherit_the_spool(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION.evolve(metadata={"spool": {"upto": 7}, "note": "kept"}))
    assert loaded(place, asnap("fork", "talk", "--json").json["session_id"]).metadata == {"note": "kept"}


def test_fork_is_logged_for_undo(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, SESSION)
    new = asnap("fork", "talk", "--json").json["session_id"]
    (done,) = operations(home)
    assert (done["kind"], done["steps"]) == ("fork", [{"do": "delete", "session_id": new, "seq": 1}])


def test_fork_can_be_undone(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION)
    asnap("fork", "talk")
    assert asnap("undo").code == 0
    assert session_ids(place) == ["talk"]


REMEMBERING = SESSION.evolve(metadata={"working_memory": {"session_id": "talk+memory", "seq": 1}})
MEMORY = make_snapshot(session_id="talk+memory", memory={"kept": True})


def test_fork_has_the_memory_of_its_parent(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION.evolve(memory={"kept": True}))
    new = asnap("fork", "talk", "--json").json["session_id"]
    assert loaded(place, new).memory == {"kept": True}
    assert session_ids(place) == sorted([new, "talk"])


def test_fork_has_the_memory_that_release_0_2_stored_beside_its_parent(asnap: Asnap, place: Path) -> None:
    saved(place, MEMORY, REMEMBERING)
    new = asnap("fork", "talk", "--json").json["session_id"]
    assert loaded(place, new).memory == {"kept": True}

    assert asnap("undo").code == 0
    assert session_ids(place) == ["talk", "talk+memory"]


def test_fork_succeeds_if_the_operation_log_cannot_be_written(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, SESSION)
    (home / "state").write_text("no directory")
    done = asnap("fork", "talk", "-q")
    assert (done.code, done.out.strip()) == (0, (set(session_ids(place)) - {"talk"}).pop())
    assert "undo" in done.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("talk", "--at", "5"), 2),
        (("talk", "--at", "-1"), 2),
        (("talk", "--title", "latest"), 2),
        (("talk", "--title", "two\nlines"), 2),
        (("nobody",), 4),
        (("talk@9",), 4),
        ((), 2),
    ],
)
def test_invalid_fork_is_refused_and_creates_nothing(
    asnap: Asnap, place: Path, words: tuple[str, ...], code: int
) -> None:
    saved(place, SESSION)
    assert asnap("fork", *words).code == code
    assert session_ids(place) == ["talk"]


def test_missing_store_or_key_creates_nothing(asnap: Asnap, place: Path) -> None:
    assert asnap("fork", "talk").code == 10
    assert not place.exists()
    saved(place, SESSION, key="secret")
    assert asnap("fork", "talk").code == 7


def test_title_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    saved(place, SESSION.evolve(title="\x1b]0;owned\x07evil\x1b[31m"))
    done = asnap("fork", "talk", "--color", "never")
    assert "\x1b" not in done.out + done.err


def test_a_forks_length_is_that_of_the_whole_conversation(asnap: Asnap, place: Path) -> None:
    whole = SESSION.evolve(metrics=Metrics(turns=2))
    parent = Parent(session_id="talk", seq=1, message_index=2)
    forked = SESSION.evolve(session_id="branch", title="Branch", metrics=Metrics(turns=1), parent=parent)
    saved(place, whole, forked)
    assert "4 messages" in asnap("show", "branch").out
    assert "1 turn" not in asnap("show", "branch").out
    assert "2 turns" in asnap("show", "talk").out
