from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from snapshot_plugin import Message, SessionSnapshot
from snapshot_plugin.cli.commands.resume import Resume
from snapshot_plugin.cli.remembered import news_of
from snapshot_plugin.live.lease import Lease, Owner
from snapshot_plugin.testing import make_snapshot
from tests.acp.proxied import UNABLE, proxied
from tests.acp_client import AGENT, Client
from tests.cli.conftest import Asnap, saved
from tests.cli.terminal import Terminal
from tests.cli.test_picker import row

NOW = datetime.now(UTC)


def session(name: str = "01jd", *, age: float = 0.0, **fields: Any) -> SessionSnapshot:
    """A session that last changed *age* hours ago, here."""
    when = datetime.now(UTC) - timedelta(hours=age)
    defaults = {
        "created_at": when,
        "updated_at": when,
        "config": {"cwd": str(Path.cwd()), "mode": "code", "model": "gpt"},
        "agent": {"name": "codex", "command": ["codex-acp", "--quiet mode"]},
        "agent_session_id": "agent-1",
        "metrics": {"turns": 1},
    }
    return make_snapshot("hello", "there", session_id=name, **{**defaults, **fields})


@contextmanager
def held(place: Path, name: str) -> Iterator[None]:
    lease = Lease.acquire(place / "sessions" / name, Owner.this_process(since=NOW))
    try:
        yield
    finally:
        lease.release()


# What it says --------------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-BRIDGE-RESTORE-SAID")
def test_resume_announces_what_will_be_restored(asnap: Asnap, place: Path) -> None:
    saved(
        place,
        session(metadata={"acp": {"capabilities": {"load": True}, "context": {"used": 45_000, "size": 90_000}}}),
    )

    done = asnap("resume", "01jd", "--json")

    jsonschema.validate(done.json, Resume.json_schema())
    document = done.json
    assert (document["expected_grade"], document["cold"]) == ("native-load", False)
    assert document["about"]["context_tokens"] == 45_000
    assert document["restores"] == ["2 messages", "mode code", "model gpt"]
    said = asnap("resume", "01jd").err
    for text in ("codex", "45k of 90k tokens", "2 messages", "mode code", "model gpt", "native-load"):
        assert text in said


def test_stdout_is_the_command_and_print_adds_nothing(asnap: Asnap, place: Path) -> None:
    saved(place, session())

    done = asnap("resume", "01jd", "--print")

    here, line = done.out.rstrip("\n").split(" && ")
    assert shlex.split(here) == ["cd", str(Path.cwd())]
    assert shlex.split(line) == ["asnap", "run", "--session", "01jd", "--", "codex-acp", "--quiet mode"]
    assert done.err == ""
    assert asnap("resume", "01jd").out == done.out


def test_command_names_a_store_other_than_the_default(asnap: Asnap, tmp_path: Path) -> None:
    saved(tmp_path / "own", session())

    line = asnap("resume", "01jd", "--store", tmp_path / "own", "--json").json["command"]

    assert line[2:4] == ["--store", str(tmp_path / "own")]


@pytest.mark.parametrize(
    ("framework", "session_id", "called"),
    [
        ("langgraph", "t", "t"),
        ("openai-agents", "user 1", "user 1"),
        ("claude-agent-sdk", "6f1e.0123456789abcdef", "6f1e"),
        ("pydantic-ai", "chat", "chat"),
        ("google-adk", "s.0123456789abcdef", "s"),
        ("agent-framework", "trip", "trip"),
        ("agent-framework-workflow", "refunds+workflow", "refunds"),
        ("persistent", "bot", "bot"),
    ],
)
def test_framework_session_is_continued_in_code(
    asnap: Asnap, place: Path, framework: str, session_id: str, called: str
) -> None:
    saved(place, session(session_id, provider_type=framework, agent={"name": framework}))
    done = asnap("resume", session_id)
    assert done.code != 0
    assert f"belongs to {framework}: it is continued in code" in done.err
    assert repr(called) in done.err
    assert repr(str(place)) in done.err


def test_framework_without_a_resume_recipe_is_named(asnap: Asnap, place: Path) -> None:
    saved(place, session("01jd", provider_type="google-adk", agent={"name": "google-adk"}))
    assert "google-adk itself" in asnap("resume", "01jd").err


def test_old_session_is_reported_as_cold(asnap: Asnap, place: Path) -> None:
    saved(place, session("old", age=3), session("new", age=0.5))

    assert asnap("resume", "old", "--json").json["cold"] is True
    assert asnap("resume", "new", "--json").json["cold"] is False
    assert "cold" in asnap("resume", "old").err


def test_open_tool_calls_and_missing_directories_are_mentioned(asnap: Asnap, place: Path) -> None:
    call = {"type": "tool_call", "toolCallId": "t", "title": "rm", "status": "in_progress"}
    config = {"cwd": "/not/there"}
    saved(place, session(messages=(Message(role="assistant", content=[call]),), config=config))

    done = asnap("resume", "01jd")

    assert "repair" in done.err
    assert "/not/there does not exist" in done.err
    assert asnap("resume", "01jd", "--cwd", "/", "--json").json["cwd"] == "/"
    assert asnap("resume", "01jd", "--cwd", "/not/there").code == 2


# Which one -----------------------------------------------------------------------------------------------


def test_default_without_a_terminal_is_the_newest_intact_session_here(
    asnap: Asnap, place: Path, home: Path
) -> None:
    saved(place, session("far", config={"cwd": str(home / "far")}), session("live"))
    saved(place, session("damaged", age=1), session("good", age=2), session("older", age=3))
    file = next((place / "sessions" / "damaged").glob("*.snap.gz"))
    whole = file.stat().st_size
    saved(place, session("damaged", age=1).append(Message(role="user", content="more")))
    data = bytearray(file.read_bytes())
    data[whole + 40] ^= 0xFF
    file.write_bytes(bytes(data))

    with held(place, "live"):
        assert asnap("resume", "--json").json["session"]["session_id"] == "good"


def test_no_session_here_suggests_what_to_do(asnap: Asnap, place: Path, home: Path) -> None:
    saved(place, session("far", config={"cwd": str(home / "far")}))

    done = asnap("resume", "--json")

    assert (done.code, done.error["code"], done.error["next"]) == (4, "snapshot_not_found", "asnap list --all")


def test_live_session_is_refused_with_its_owner_and_a_remedy(asnap: Asnap, place: Path) -> None:
    saved(place, session())

    with held(place, "01jd"):
        done = asnap("resume", "01jd", "--json")

    assert (done.code, done.error["code"], done.error["next"]) == (6, "locked", "asnap fork 01jd")
    assert "process" in done.error["message"]


def test_older_snapshot_suggests_a_fork(asnap: Asnap, place: Path) -> None:
    saved(place, session(), session().append(Message(role="user", content="more")))

    done = asnap("resume", "01jd@1", "--json")

    assert (done.code, done.error["next"]) == (2, "asnap fork 01jd@1")
    assert asnap("resume", "01jd@2").code == 0


def test_bad_references_stores_keys_and_damage_have_their_exit_codes(asnap: Asnap, place: Path) -> None:
    assert asnap("resume").code == 10
    saved(place, session())
    assert asnap("resume", "zzz").code == 4
    file = next((place / "sessions" / "01jd").glob("*.snap.gz"))
    file.write_bytes(file.read_bytes()[:-20] + b"x" * 20)
    assert asnap("resume", "01jd").code == 5


def test_an_encrypted_store_needs_its_key(asnap: Asnap, place: Path) -> None:
    saved(place, session(), key="words")

    assert asnap("resume").code == 7


# In which agent ------------------------------------------------------------------------------------------


def test_another_agent_gets_the_session_as_context(asnap: Asnap, place: Path) -> None:
    saved(place, session(metadata={"acp": {"capabilities": {"load": True}}}))

    document = asnap("resume", "01jd", "--with", "opencode acp", "--json").json

    assert document["command"][-3:] == ["--", "opencode", "acp"]
    assert document["expected_grade"] == "context"


@pytest.mark.parametrize(
    ("able", "require", "code"),
    [
        ({"load": True}, "exact", 0),
        ({"load": False, "resume": True}, "history", 0),
        ({"load": False, "resume": True}, "exact", 9),
        ({"load": False, "resume": False}, "history", 9),
        ({"load": False, "resume": False}, "context", 0),
        ({}, "exact", 0),
    ],
)
def test_unreachable_fidelity_is_refused_before_anything_starts(
    asnap: Asnap, place: Path, able: dict[str, bool], require: str, code: int
) -> None:
    saved(place, session(metadata={"acp": {"capabilities": able}}))

    done = asnap("resume", "01jd", "--require", require, "--print")

    assert done.code == code
    assert (f"--require {require}" in done.out) == (code == 0)


def test_session_without_a_command_asks_for_one(asnap: Asnap, place: Path) -> None:
    saved(place, session(agent=None))

    done = asnap("resume", "01jd", "--json")

    assert done.code == 2
    assert "--with" in done.error["hint"]
    assert asnap("resume", "01jd", "--with", "unbalanced '").code == 2


def test_agent_text_is_escaped_and_quoted(asnap: Asnap, place: Path) -> None:
    hostile = "\x1b]0;x\x07$(touch pwned); evil"
    config = {"cwd": hostile, "mode": hostile, "model": hostile}
    saved(place, session(title=hostile, config=config, agent={"name": hostile, "command": ["a", hostile]}))

    done = asnap("resume", "01jd")

    assert not set("\x1b\x07") & set(done.err)
    assert done.out.rstrip("\n").isprintable()
    arguments = done.out.rstrip("\n").partition(" && ")[2].partition(" -- ")[2]
    assert subprocess.check_output(["bash", "-c", f"printf '%s|' {arguments}"]).decode() == f"a|{hostile}|"


# Going on ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("TERMINAL-BRIDGE-RESTORE-FLAG", "TERMINAL-BRIDGE-RESTORE-SAID")
@pytest.mark.parametrize("flags", [(), UNABLE])
def test_exec_becomes_the_agent_with_the_session_restored(
    asnap: Asnap, place: Path, home: Path, flags: tuple[str, ...]
) -> None:
    agent = (*AGENT, "--state", str(home / "agent.json"), *flags)
    with proxied(place, agent=agent) as client:
        client.initialize()
        session_id = client.new_session(home / "work")
        client.prompt(session_id, "say hello\ntool\nplan")
    expected = asnap("resume", session_id, "--print", "--json").json

    line = (sys.executable, "-m", "snapshot_plugin", "resume", session_id, "--store", str(place), "--exec")
    with Client(line) as client:
        client.initialize()
        result = client.request("session/new", {"cwd": str(home / "work"), "mcpServers": []})
        assert result["sessionId"] == session_id
        report = result["_meta"]["asnap"]["restored"]
        assert (report["messages"], report["grade"]) == (2, "context" if flags else "native-load")
        client.wait_for_stderr("2 messages")
        client.wait_for_update("plan")  # the end of the replay, which comes after the answer
        prompt, *notes = json.loads(client.prompt(session_id, "echo-blocks"))
        assert prompt["text"] == "echo-blocks"
        assert [len(note["text"]) for note in notes] == ([expected["note_characters"]] if flags else [])
    assert expected["expected_grade"] == report["grade"]
    assert (expected["note_characters"] is None) == (not flags)

    about = asnap("show", session_id, "--json").json["about"]
    assert about["last_restore"]["grade"] == report["grade"]
    assert about["expected_grade"] == report["grade"]


def test_branch_is_expected_as_context_and_comes_back_so(asnap: Asnap, place: Path, home: Path) -> None:
    agent = (*AGENT, "--state", str(home / "agent.json"))
    with proxied(place, agent=agent) as client:
        client.initialize()
        client.prompt(client.new_session(home / "work"), "say hello")
    branch = asnap("fork", "latest", "--json").json["session_id"]

    expected = asnap("resume", branch, "--print", "--json").json
    with proxied(place, run=("--session", branch), agent=agent) as client:
        client.initialize()
        report = client.request("session/new", {"cwd": "/", "mcpServers": []})["_meta"]["asnap"]["restored"]
        _, note = json.loads(client.prompt(branch, "echo-blocks"))

    assert expected["expected_grade"] == report["grade"] == "context"
    assert expected["note_characters"] == len(note["text"])


def test_terminal_shows_the_command_and_editor_settings(place: Path) -> None:
    saved(place, session(title="fix auth"))

    with Terminal("resume", "01jd", "--print", columns=300, lines=40) as terminal:
        assert terminal.end() == 0
        assert "asnap run --session 01jd -- codex-acp '--quiet mode'" in terminal.text
        assert '"codex": {"type": "custom", "command": "asnap", "args": ["run", ' in terminal.text
        assert "fix auth (01jd)" in terminal.text


# Crashes are mentioned once ------------------------------------------------------------------------------


def test_crash_is_announced_once_before_or_after_recovery() -> None:
    crashed = replace(row("a"), ended_unexpectedly=True, last_sign=NOW)
    recovered = replace(row("a", trigger="recovered"), changed_at=NOW, seq=4)
    later = NOW + timedelta(minutes=5)

    first = news_of([crashed], {}, later)
    assert [each.session_id for each in first.rows] == ["a"]
    assert news_of([crashed], first.told, later).rows == ()
    then = news_of([recovered], first.told, later)
    assert then.rows == ()
    assert news_of([recovered], then.told, later).rows == ()
    assert [each.session_id for each in news_of([recovered], {}, later).rows] == ["a"]


def test_second_crash_of_a_session_is_announced_again() -> None:
    later = NOW + timedelta(minutes=5)
    crashed = replace(row("a"), ended_unexpectedly=True, last_sign=NOW)
    told = news_of([crashed], {}, later).told

    again = replace(crashed, last_sign=later + timedelta(minutes=1))

    assert len(news_of([again], told, later + timedelta(minutes=2)).rows) == 1


def test_old_crash_is_not_announced_and_a_malformed_file_is_ignored() -> None:
    crashed = replace(row("a"), ended_unexpectedly=True, last_sign=NOW)

    assert news_of([crashed], {}, NOW + timedelta(days=30)).rows == ()
    for nonsense in (None, 3, [], ["x"], ["never", 1], {"at": 1}):
        assert len(news_of([crashed], {"a": nonsense}, NOW).rows) == 1


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        ("langgraph", "trip", "SnapshotSaver("),
        ("openai-agents", "user-123", "SnapshotSession('user-123', "),
        ("claude-agent-sdk", "5b0e.0123456789abcdef", "resume='5b0e'"),
        ("pydantic-ai", "chat-7", "load('chat-7')"),
        ("persistent", "bot", "agent_id='bot'"),
    ],
)
def test_framework_session_names_the_code_that_continues_it(
    asnap: Asnap, place: Path, kind: str, name: str, line: str
) -> None:
    saved(place, session(name, provider_type=kind, agent={"name": kind}))
    ran = asnap("resume", name, "--json")
    assert ran.code == 2
    assert "continued in code" in ran.error["message"]
    assert line in ran.error["hint"]
    assert str(place) in ran.error["hint"]


def test_a_command_that_is_stored_without_its_secrets_is_not_run_as_it_is(asnap: Asnap, place: Path) -> None:
    command = (*AGENT, "--api-key", "sk-do-not-keep-me")
    saved(place, make_snapshot("one", session_id="01jd", agent={"command": command}))

    refused = asnap("resume", "01jd", "--json")
    given = asnap("resume", "01jd", "--with", shlex.join(command), "--json").json

    assert not any(b"sk-do-not" in file.read_bytes() for file in place.rglob("*") if file.is_file())
    assert (refused.code, "--api-key" in refused.error["message"]) == (2, True)
    assert refused.error["next"].startswith("asnap resume 01jd --with ")
    assert "sk-do-not-keep-me" in " ".join(given["command"])
