from __future__ import annotations

import io
import json
import os
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot
from snapshot_plugin.live.lease import FilePlace, Owner
from snapshot_plugin.operations.showing import Shown
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, saved
from tests.cli.terminal import Terminal

TOOL = {
    "type": "tool_call",
    "toolCallId": "t1",
    "title": "Edit auth.py",
    "kind": "edit",
    "status": "completed",
    "rawInput": {"path": "auth.py"},
    "content": [{"type": "diff", "path": "auth.py", "oldText": "a = 1\n", "newText": "a = 2\n"}],
}


def session(**fields: Any) -> SessionSnapshot:
    answer: list[Any] = [{"type": "thought", "text": "hmm"}, {"type": "text", "text": "Done."}, TOOL]
    answer += [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]
    messages = (Message(role="user", content="Fix it"), Message(role="assistant", content=answer))
    return make_snapshot(session_id="01jd7aaa", **{"title": "fix auth", "messages": messages, **fields})


@pytest.mark.requirement("TERMINAL-FEATURE-FULL-HISTORY")
def test_whole_conversation_is_shown_with_tools_folded(asnap: Asnap, place: Path) -> None:
    saved(place, session())

    done = asnap("show", "01jd")

    for text in ("fix auth", "01jd7aaa", "1 · user", "Fix it", "Done.", "✓ Edit auth.py", "[image image/png, 3 B]"):
        assert text in done.out
    assert "+a = 2" not in done.out
    assert "+a = 2" in asnap("show", "01jd", "--tools").out


def test_json_holds_every_message_and_conforms_to_its_schema(asnap: Asnap, place: Path) -> None:
    texts = [f"message {n}" for n in range(300)]
    saved(place, make_snapshot(*texts, session_id="long"))

    document = asnap("show", "long", "--json").json

    jsonschema.validate(document, Shown.json_schema())
    assert [message["pieces"][0]["text"] for message in document["messages"]] == texts
    assert [message["number"] for message in document["messages"]] == list(range(1, 301))


@pytest.mark.requirement("STORE-VALUE-REPAIR")
def test_summary_shows_settings_context_and_repairs(asnap: Asnap, place: Path) -> None:
    open_call = {**TOOL, "toolCallId": "t2", "status": "in_progress"}
    saved(
        place,
        session(
            messages=(
                Message(role="user", content="x"),
                Message(role="assistant", content=[open_call]),
                Message(role="assistant", content=[]),
            ),
            agent={"name": "codex", "version": "1.2", "command": ["codex-acp"]},
            config={"cwd": "/p", "mode": "code", "model": "gpt", "mcp_servers": [{"name": "db"}]},
            metadata={"acp": {"context": {"used": 45_000, "size": 200_000}}, "note": "ask Ann"},
            plan=[{"content": "a", "status": "completed"}, {"content": "b"}],
        ),
    )

    about = asnap("show", "01jd", "--json").json["about"]

    assert (about["mode"], about["model"], about["mcp_servers"]) == ("code", "gpt", ["db"])
    assert (about["context_tokens"], about["context_size"], about["context_is_estimate"]) == (
        45_000,
        200_000,
        False,
    )
    assert (about["plan_done"], about["plan_total"], about["note"]) == (1, 2, "ask Ann")
    closed, dropped = about["notices"]
    assert "t2" in closed
    assert "empty" in dropped
    assert "45k of 200k tokens" in asnap("show", "01jd", "--summary").out


def test_last_restore_is_shown(asnap: Asnap, place: Path) -> None:
    report = {"grade": "native-load", "messages": 2, "tried": ["load: whole"], "notices": [], "differences": []}
    saved(place, session(metadata={"acp": {"restored": report}}))

    assert asnap("show", "01jd", "--json").json["about"]["last_restore"] == report
    assert "native-load · 2 messages · load: whole" in asnap("show", "01jd").out


def test_message_number_jumps_to_its_message(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", "two", "three", session_id="s"))

    assert [m["number"] for m in asnap("show", "s", "--message", "2", "--json").json["messages"]] == [2]
    assert [m["number"] for m in asnap("show", "s", "--from", "2", "--json").json["messages"]] == [2, 3]
    assert asnap("show", "s", "--message", "4").code == 2


def test_timeline_lists_every_snapshot_newest_first(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"), tags=("first",))
    saved(place, make_snapshot("one", "two", session_id="s"))

    history = asnap("show", "s", "--history", "--json").json["history"]

    assert [(row["seq"], row["messages"], row["tags"]) for row in history] == [(2, 2, []), (1, 1, ["first"])]
    assert [line.split("\t")[0] for line in asnap("show", "s", "--history").out.splitlines()] == ["2", "1"]


def test_an_older_snapshot_is_shown_as_it_was(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"), make_snapshot("one", "two", session_id="s"))

    document = asnap("show", "s@1", "--json").json

    assert (document["snapshot"], len(document["messages"])) == (1, 1)


def test_raw_is_the_snapshot_itself(asnap: Asnap, place: Path) -> None:
    snapshot = session(metadata={"x": "\x1b[2J ünï"})
    saved(place, snapshot)

    assert SessionSnapshot.model_validate(json.loads(asnap("show", "01jd", "--raw").out)) == snapshot


def test_a_reference_can_come_through_a_pipe(asnap: Asnap, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(place, session())
    monkeypatch.setattr(sys, "stdin", io.StringIO("01jd7aaa\n"))

    assert asnap("show", "-", "--json").json["session"]["session_id"] == "01jd7aaa"


# Bad input -----------------------------------------------------------------------------------------------


def test_unknown_references_damage_and_missing_stores_have_their_exit_codes(asnap: Asnap, place: Path) -> None:
    assert asnap("show", "x").code == 10
    saved(place, session())
    done = asnap("show", "01je", "--json")
    assert (done.code, done.error["code"]) == (4, "snapshot_not_found")
    assert "01jd7aaa" in done.error["hint"]
    assert asnap("show", "01jd@9").code == 4
    file = next((place / "sessions" / "01jd7aaa").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    done = asnap("show", "01jd", "--json")
    assert (done.code, done.error["next"]) == (5, "asnap check 01jd7aaa")


def test_size_is_that_of_the_shown_snapshot(asnap: Asnap, place: Path) -> None:
    early = session()
    later = early.append(Message(role="user", content="and now?"))
    saved(place, early, later.evolve(metrics=later.metrics.evolve(turns=2)))

    assert "\nsize      2 messages\n" in asnap("show", "01jd@1", "--summary").out
    assert "\nsize      2 turns · 3 messages\n" in asnap("show", "01jd", "--summary").out
    assert asnap("show", "01jd@1", "--json").json["about"]["messages"] == 2


def test_damage_at_the_end_hides_only_the_end_and_is_reported(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("one", session_id="s"))
    first = next((place / "sessions" / "s").glob("*.snap.gz")).stat().st_size
    saved(place, make_snapshot("one", "two", session_id="s"))
    file = next((place / "sessions" / "s").glob("*.snap.gz"))
    data = bytearray(file.read_bytes())
    data[first + 40] ^= 0xFF
    file.write_bytes(bytes(data))

    document = asnap("show", "s", "--json").json

    assert (document["snapshot"], document["session"]["state"]) == (1, "damaged")
    assert document["about"]["skipped"]


def test_an_encrypted_store_needs_its_key(asnap: Asnap, place: Path) -> None:
    saved(place, session(), key="words")

    assert asnap("show", "01jd").code == 7


def test_session_content_cannot_control_the_terminal(asnap: Asnap, place: Path) -> None:
    hostile = "\x1b]0;pwned\x07\x1b[2J\u202eevil"
    content: list[dict[str, Any]] = [
        {"type": "text", "text": hostile},
        {**TOOL, "title": hostile, "rawOutput": hostile},
        {"type": hostile},
    ]
    saved(
        place,
        session(
            title=hostile,
            messages=(Message(role="user", content=content),),
            config={"cwd": hostile, "mode": hostile, "model": hostile, "mcp_servers": [{"name": hostile}]},
            agent={"name": hostile, "version": hostile, "command": [hostile]},
            current_task=hostile,
            tags=(hostile,),
            metadata={"note": hostile, "acp": {"restored": {"grade": hostile, "tried": [hostile]}}},
        ),
    )

    done = asnap("show", "01jd", "--tools")

    assert not set("\x1b\x07\u202e") & set(done.out + done.err)
    assert "evil" in done.out


# On a terminal -------------------------------------------------------------------------------------------


def _pager(home: Path) -> Path:
    script = home / "pager"
    script.write_text(f"#!{sys.executable}\nimport sys\nprint('PAGED', len(sys.stdin.read().splitlines()))\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_long_output_goes_through_the_users_pager(place: Path, home: Path) -> None:
    saved(place, make_snapshot(*(f"message {n}" for n in range(40)), session_id="long"))
    saved(place, make_snapshot("short", session_id="short"))
    pager = {"PAGER": str(_pager(home))}

    with Terminal("show", "long", env=pager) as terminal:
        assert terminal.end() == 0
        assert "PAGED" in terminal.text
        assert "message 3" not in terminal.text
    with Terminal("show", "short", env=pager) as terminal:
        assert terminal.end() == 0
        assert "PAGED" not in terminal.text
        assert terminal.colour_of("── 1") == "green"


def test_raw_on_a_terminal_is_escaped(place: Path) -> None:
    saved(place, session(title="\x1b[2J\u202eevil"))

    with Terminal("show", "01jd", "--raw", lines=200) as terminal:
        assert terminal.end() == 0
        assert b"\x1b" not in terminal.received
        assert "\\u202eevil" in terminal.text


def test_closed_output_pipe_is_not_an_error(place: Path) -> None:
    saved(place, make_snapshot(*("x" * 5000 for _ in range(100)), session_id="long"))

    pipe = os.popen(f"{sys.executable} -m snapshot_plugin show long 2>&1 | head -c 10")
    text = pipe.read()

    assert pipe.close() is None
    assert "Error" not in text
    assert len(text) == 10


def test_live_session_without_a_snapshot_is_named_as_such(asnap: Asnap, place: Path) -> None:
    saved(place, make_snapshot("hello"))
    owner = Owner.this_process(since=datetime.now(UTC))
    hold = FilePlace(FilesystemStore(place)).take("new", owner)

    ran = asnap("show", "new")

    hold.release()
    assert (ran.code, "has no snapshot yet" in ran.err) == (4, True), ran
