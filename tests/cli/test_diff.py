from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot
from snapshot_plugin.codec.document import message_of
from snapshot_plugin.model import Metrics, PlanEntry, TextBlock, ToolCallBlock
from snapshot_plugin.operations.comparing import Compared, compare_snapshots
from snapshot_plugin.testing import make_message, make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.stored import loaded
from tests.cli.terminal import Terminal


def grown(before: SessionSnapshot) -> SessionSnapshot:
    """The same after a turn in which everything changed that can."""
    call = ToolCallBlock(
        tool_call_id="c1", title="edit main.py", status="completed", locations=[{"path": "src/main.py"}]
    )
    return before.append(
        make_message("please go on"),
        Message(role="assistant", content=(TextBlock(text="done"), call)),
        plan=(PlanEntry(content="first", status="completed"), PlanEntry(content="second")),
        config={"mode": "code"},
        metrics=Metrics(turns=2, total_tokens=150, cost=0.3),
        current_task="ship it",
    )


BEFORE = make_snapshot(
    "hello", "hi", session_id="talk", title="Talk", plan=(PlanEntry(content="first"),), config={"mode": "plan"},
    metrics=Metrics(turns=1, total_tokens=100, cost=0.1),
)  # fmt: skip


@pytest.mark.requirement("STORE-VALUE-DIFF")
def test_one_session_is_compared_with_its_previous_snapshot(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    found = asnap("diff", "talk", "--json").json

    assert (found["before"]["seq"], found["after"]["seq"], found["common_prefix"]) == (1, 2, 2)
    assert [(said["number"], said["role"]) for said in found["added"]] == [(3, "user"), (4, "assistant")]
    assert found["tools"] == [{"tool_call_id": "c1", "title": "edit main.py", "status": "completed"}]
    assert found["files"] == ["src/main.py"]
    assert found["plan"] == [
        {"content": "first", "before": "pending", "after": "completed"},
        {"content": "second", "before": None, "after": "pending"},
    ]
    assert found["settings"] == [{"path": "config.mode", "before": "plan", "after": "code"}]
    assert (found["spent"]["total_tokens"], found["spent"]["cost"]) == (50, 0.2)
    assert (found["other"], found["equal"]) == (["current_task"], False)
    jsonschema.validate(found, Compared.json_schema())


@pytest.mark.requirement("TERMINAL-BRANCH-COMPARE")
def test_two_branches_are_compared_from_their_fork_point(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE)
    names = [asnap("fork", "talk", "--json").json["session_id"] for _ in range(2)]
    for name in names:
        saved(place, loaded(place, name).append(make_message("common id", id=name)))
    found = asnap("diff", *names, "--json").json

    assert found["common_prefix"] == 2
    assert [said["number"] for said in found["removed"]] == [3]
    assert [said["number"] for said in found["added"]] == [3]


def test_snapshots_of_one_session_are_compared_in_the_order_given(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    forth, back = (asnap("diff", *pair, "--json").json for pair in (("talk@1", "talk@2"), ("talk@2", "talk@1")))
    assert (len(forth["added"]), len(forth["removed"])) == (len(back["removed"]), len(back["added"])) == (2, 0)


def test_unrelated_sessions_are_compared_too(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, make_snapshot("other", session_id="other"))
    found = asnap("diff", "talk", "other", "--json").json
    assert (found["common_prefix"], len(found["edited"]), len(found["removed"])) == (0, 1, 1)
    assert "session_id" not in found["other"]


def test_edited_message_is_shown_before_and_after(asnap: Asnap, place: Path) -> None:
    edited = BEFORE.evolve(messages=(make_message("hello you"), BEFORE.messages[1]))
    saved(place, BEFORE, edited)
    lines = asnap("diff", "talk").out.splitlines()
    assert "- hello" in lines
    assert "+ hello you" in lines


def test_changes_are_shown_in_the_order_of_the_conversation(asnap: Asnap, place: Path) -> None:
    texts = ["one", "two", "three", "four", "five", "six"]
    messages = [make_message(text, id=text) for text in texts]
    changed = [
        messages[0],
        messages[1].evolve(content="TWO"),
        *messages[3:5],
        make_message("new", id="n"),
        messages[5],
    ]
    saved(place, *(make_snapshot(session_id="s").append(*each) for each in (messages, changed)))
    lines = [line.strip() for line in asnap("diff", "s").out.splitlines() if "──" not in line]
    shown = lines[lines.index("1 message the same") :]
    assert shown == [
        "1 message the same", "- two", "+ TWO", "- three", "2 messages the same", "+ new",
        "1 message the same",
    ]  # fmt: skip


def test_empty_diff_is_reported(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE)
    found = asnap("diff", "talk", "talk", "--json").json
    assert (found["equal"], found["added"], found["removed"], found["edited"]) == (True, [], [], [])


def test_stat_shows_only_the_numbers(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    numbers = dict(line.split("\t") for line in asnap("diff", "talk", "--stat").out.splitlines())
    assert (numbers["messages"], numbers["tools"], numbers["files"]) == ("+2 -0 ~0", "1", "src/main.py")
    assert (numbers["tokens"], numbers["turns"], numbers["cost"]) == ("+50", "+1", "$0.20")


def test_colours_mark_additions_and_removals(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    out = asnap("diff", "talk@2", "talk@1", "--color", "always").out
    assert "\x1b[31m- please go on" in out
    assert "\x1b" not in asnap("diff", "talk", "--color", "never").out


def test_bad_references_have_their_own_exit_codes(asnap: Asnap, place: Path) -> None:
    assert asnap("diff", "talk").code == 10
    saved(place, BEFORE)
    assert asnap("diff", "talk").code == 4  # there is no snapshot before the first
    assert asnap("diff", "talk", "nobody").code == 4
    assert asnap("diff", "talk@7", "talk").code == 4
    assert asnap("diff").code == 2


def test_an_encrypted_store_needs_its_key(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(place, BEFORE, grown(BEFORE), key="secret")
    assert asnap("diff", "talk").code == 7
    monkeypatch.setenv("ASNAP_KEY", "secret")
    assert asnap("diff", "talk").code == 0


def test_damaged_snapshot_is_reported_as_damaged(asnap: Asnap, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    (file,) = (place / "sessions" / "talk").glob("*.snap.gz")
    data = bytearray(file.read_bytes())
    data[len(data) // 4] ^= 0xFF
    file.write_bytes(data)
    assert asnap("diff", "talk@1", "talk@2", "--json").code == 5


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e"
    hostile = BEFORE.append(
        make_message(f"say {evil}"),
        title=f"t{evil}",
        config={"mode": f"m{evil}"},
        plan=(PlanEntry(content=f"p{evil}", status=f"s{evil}"),),
    )
    saved(place, BEFORE, hostile)
    for words in ((), ("--stat",)):
        out = asnap("diff", "talk", *words, "--color", "never").out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_line_numbers_fit_a_narrow_terminal(home: Path, place: Path) -> None:
    saved(place, BEFORE, grown(BEFORE))
    with Terminal("diff", "talk", "--stat", columns=40) as terminal:
        terminal.wait_for("tokens")
        terminal.wait_for("settings  config.mode")


def test_only_messages_that_differ_are_read(place: Path) -> None:
    messages = [make_message(f"message {n}") for n in range(200)]
    long = make_snapshot(session_id="long").append(*messages[:-1])
    saved(place, long, long.append(messages[-1]))
    read: list[str] = []

    def note(frame: Any, event: str, _arg: object) -> None:
        if event == "call" and frame.f_code is message_of.__code__:
            read.append(frame.f_locals["session_id"])

    store = FilesystemStore(place, background=False)
    sys.setprofile(note)
    try:
        found = anyio.run(compare_snapshots, store, "long", 1, 2)
    finally:
        sys.setprofile(None)
    assert (found.common_prefix, [said.number for said in found.added], read) == (199, [200], ["long"])
