"""Every command survives hostile sessions, and shows nothing that a terminal would obey."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import SnapshotError
from snapshot_plugin.testing import make_snapshot
from tests.cli.conftest import Asnap, Ran, saved
from tests.cli.terminal import Terminal

NASTY = "a\x1b[31m\x1b]0;pwned\x07\x9b2J\x85\u202egpj.exe\u2066\u200f\x00\r\u2028z"
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
HUGE = 10**400
COMMANDS = [
    "list", "list --all --why", "list --json", "list --jsonl", "show {}", "show {} --json", "show {} --verbose",
    "search word", "search word --json", "stats", "stats --json", "why {}", "diff {}@1 {}", "resume {} --print",
    "resume {}", "export {} --format markdown", "export {} --format html", "export {} --format json", "check {}",
    "check", "doctor", "paths", "secrets scan", "forget {} --dry-run", "forget --all --keep-last 1 --dry-run",
    "purge --dry-run", "migrate --dry-run", "config show --origin", "keys status", "recover", "undo --list",
    "completion bash",
    "tag {} +x", "rename {} new-name", "pin {}", "fork {}", "snapshot --all", "no-such-command",
]  # fmt: skip
"""Those that change something come last, so that the others see the sessions as they arrived."""


def deep(levels: int) -> Any:
    value: Any = "word"
    for _ in range(levels):
        value = [value]
    return value


def hostile() -> dict[str, dict[str, Any]]:
    """Sessions by what is wrong with them, as documents of ours."""
    now = "2026-11-16T00:00:00Z"
    fine = {"version": 2, "session_id": "s", "created_at": now, "updated_at": now}
    said = [{"role": "user", "content": "word"}, {"role": "assistant", "content": NASTY}]
    call = {
        "type": "tool_call",
        "toolCallId": NASTY,
        "title": NASTY,
        "kind": NASTY,
        "status": NASTY,
        "rawInput": NASTY,
    }
    named = {
        "title": NASTY,
        "tags": [NASTY],
        "current_task": NASTY,
        "agent": {"name": NASTY, "version": NASTY, "command": [NASTY, NASTY]},
        "agent_session_id": NASTY,
        "config": {
            "cwd": f"/{NASTY}",
            "mode": NASTY,
            "model": NASTY,
            "mcp_servers": [{"name": NASTY, "url": NASTY}],
        },
        "plan": [{"content": NASTY, "status": "pending", "priority": "high"}],
        "metadata": {"acp": {NASTY: NASTY}, "note": NASTY, NASTY: NASTY},
    }
    return {
        "controls": {**fine, **named, "messages": [*said, {"role": "assistant", "content": [call]}]},
        "id": {**fine, "session_id": NASTY.replace("\x00", ""), "messages": said},
        "surrogates": {**fine, "title": "\ud800 word", "messages": [{"role": "user", "content": "word \udfff"}]},
        "huge numbers": {
            **fine,
            "messages": [{"role": "user", "content": "word", "metadata": {"n": HUGE, "f": 1e308}}],
            "metrics": {"turns": HUGE, "input_tokens": HUGE, "cost": 1e308},
            "metadata": {"acp": {"context": {"used": HUGE, "size": -HUGE}}},
        },
        "negative numbers": {**fine, "messages": said, "metrics": {"turns": -1, "input_tokens": -5, "cost": -1.0}},
        "deep": {**fine, "messages": said, "metadata": {"d": deep(150)}, "memory": {"d": deep(150)}},
        "very deep": {**fine, "messages": said, "memory": {"d": deep(900)}},
        "other types": {**fine, "messages": said, "metadata": {"acp": 5, "working_memory": [], "label": {"x": 1}}},
        "dates": {
            **fine,
            "created_at": "0001-01-01T00:00:00Z",
            "updated_at": "9999-12-31T23:59:59Z",
            "messages": said,
        },
        "empty": fine,
        "blocks": {
            **fine,
            "messages": [
                {"role": "user", "content": [{"type": NASTY, "x": deep(50)}, {"type": "text", "text": ""}]},
                {"role": "assistant", "content": [{"type": "image", "data": NASTY, "mimeType": NASTY}]},
            ],
        },
    }


def assert_harmless(ran: Ran, line: str) -> None:
    assert "Traceback" not in ran.err, f"{line}: {ran.err[-2000:]}"
    assert "a bug in asnap" not in ran.err, f"{line}: {ran.err[-2000:]}"
    assert not UNSAFE.search(ran.err), f"{line}: {UNSAFE.search(ran.err)} in {ran.err!r}"
    if "html" not in line and "markdown" not in line and "completion" not in line:
        assert not UNSAFE.search(ran.out), f"{line}: {UNSAFE.search(ran.out)} in {ran.out[:2000]!r}"


@pytest.mark.parametrize("name", hostile())
def test_every_command_survives_a_hostile_session(asnap: Asnap, home: Path, place: Path, name: str) -> None:
    file = home / "hostile.json"
    file.write_text(json.dumps(hostile()[name]))
    saved(place, make_snapshot("word", session_id="fine"))
    taken = asnap("import", file)
    assert_harmless(taken, "import")
    found = [row["session_id"] for row in asnap("list", "--all", "--json").json["sessions"]]
    assert taken.code == 0 or found == ["fine"], "refused, then nothing of it is there"
    target = next((each for each in found if each != "fine"), "fine")

    for line in COMMANDS:
        ran = asnap(*(word.replace("{}", target) for word in line.split(" ")))
        assert_harmless(ran, line)
        assert ran.code in (0, 1, 2, 3, 4, 5, 9), f"{line}: {ran.code}"


def test_hostile_directory_names_are_shown_inert(asnap: Asnap, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home / NASTY.replace("\x00", "").replace("/", "")
    place.mkdir()
    monkeypatch.chdir(place)
    saved(place / "store", make_snapshot("word", session_id="s1", config={"cwd": str(place)}))
    for line in ("paths", "list", "doctor", "show s1", "forget s1 --dry-run", "config show --origin", "resume s1"):
        assert_harmless(asnap(*line.split(), "--store", place / "store"), line)
    assert_harmless(asnap("list", "--store", place / "none"), "list")


def test_titles_and_ids_cannot_control_the_terminal(home: Path, place: Path) -> None:
    try:
        saved(place, make_snapshot("word", session_id=NASTY.replace("\x00", ""), title=NASTY))
    except SnapshotError:
        saved(place, make_snapshot("word", session_id="s1", title=NASTY))
    for line in ("list", "search word", "stats", "forget --all --keep-last 1 --dry-run"):
        with Terminal(*line.split(), env={**os.environ, "PAGER": "cat"}) as terminal:
            terminal.end()
        assert b"\x1b]" not in terminal.received
        assert b"\xc2\x9b" not in terminal.received
        assert "\u202e".encode() not in terminal.received
