"""What openagent-terminal promises people, asked of the ``asnap`` command as a real process."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot
from tests.promises.doors import Json, User

SESSION: Json = {
    "metadata": {
        "session_id": "2025-10-04_114203",
        "created_at": "2025-10-04T11:42:03Z",
        "updated_at": "2025-10-04T12:15:30",
        "message_count": 2,
        "total_tokens": 168,
        "title": "Debug authentication issue",
        "tags": ["bug", "auth", "python"],
    },
    "messages": [
        {
            "role": "user",
            "content": "Help me debug this authentication error",
            "timestamp": "2025-10-04T11:42:03Z",
            "token_count": 12,
            "metadata": {},
        },
        {
            "role": "assistant",
            "content": "I'll help you debug the authentication error. Let me check the logs...",
            "timestamp": "2025-10-04T11:42:05Z",
            "token_count": 156,
            "tool_calls": [{"tool": "read_file", "args": {"path": "/var/log/auth.log"}}],
            "metadata": {"temperature": 0.2},
        },
    ],
}
"""A session file as the design of openagent-terminal shows it; one time has no zone."""

INDEX = {"version": "1.0", "sessions": [SESSION["metadata"]]}


@pytest.fixture
def imported(user: User) -> User:
    (user.work / "session.json").write_text(json.dumps(SESSION))
    user.asnap("import", "session.json")
    return user


@pytest.mark.requirement(
    "TERMINAL-FILE-SESSION",
    "TERMINAL-FILE-TOOL-CALL",
    "TERMINAL-FILE-OPTIONAL",
    "STORE-MIGRATE-FOREIGN",
)
def test_terminal_session_file_is_imported_completely(imported: User) -> None:
    stored = imported.stored("2025-10-04_114203")
    assert (stored["title"], stored["tags"]) == ("Debug authentication issue", ["bug", "auth", "python"])
    assert (stored["created_at"], stored["updated_at"]) == (
        "2025-10-04T11:42:03.000000Z",
        "2025-10-04T12:15:30.000000Z",
    )
    assert stored["metrics"]["total_tokens"] == 168
    question, answer = stored["messages"]
    assert (question["role"], question["content"]) == (
        "user",
        [{"type": "text", "text": SESSION["messages"][0]["content"]}],
    )
    text, call = sorted(answer["content"], key=lambda block: block["type"])
    assert (text["text"], answer["token_count"], answer["metadata"]) == (
        SESSION["messages"][1]["content"],
        156,
        {"temperature": 0.2},
    )
    assert (call["title"], call["rawInput"]) == ("read_file", {"path": "/var/log/auth.log"})


@pytest.mark.requirement("TERMINAL-FILE-INDEX")
def test_index_file_is_not_mistaken_for_a_session(user: User) -> None:
    (user.work / "index.json").write_text(json.dumps(INDEX))
    refused = user.asnap("import", "index.json", fails=True)
    assert refused.code == 2
    assert "index" in refused.err
    assert "Traceback" not in refused.err
    assert not user.store.exists()


@pytest.mark.requirement(
    "TERMINAL-EXPORT-TITLE",
    "TERMINAL-EXPORT-HEAD",
    "TERMINAL-EXPORT-MESSAGES",
    "TERMINAL-EXPORT-TOOLS",
    "TERMINAL-USE-EXPORT",
)
def test_export_has_title_header_messages_and_tool_calls(imported: User) -> None:
    page = imported.asnap("export", "2025-10-04_114203", "--format", "markdown").out
    assert page.startswith("# Debug authentication issue\n")
    head = dict(re.findall(r"^- \*\*(\w+):\*\* (.*)$", page, re.MULTILINE))
    assert head["Session"].strip("`") == "2025-10-04_114203"
    assert (head["Created"], head["Updated"]) == ("2025-10-04 11:42:03 UTC", "2025-10-04 12:15:30 UTC")
    assert (head["Messages"], head["Tokens"]) == ("2", "168")
    sections = re.findall(r"^## (\w+) \[2025-10-04 (.*) UTC\]\n\n(\w+)", page, re.MULTILINE)
    assert sections == [("User", "11:42:03", "Help"), ("Assistant", "11:42:05", "I")]
    [fenced] = re.findall(r"^```json\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    assert json.loads(fenced)["rawInput"] == {"path": "/var/log/auth.log"}


@pytest.mark.requirement(
    "TERMINAL-TEST-EMPTY", "TERMINAL-TEST-LARGE", "TERMINAL-TEST-SPECIAL", "TERMINAL-EXPORT-TITLE"
)
def test_empty_large_and_special_sessions_are_exported_whole(user: User) -> None:
    special = "Grüße 👩‍👩‍👧 日本語 עברית 5 < 6 > 4 C:\\dir |pipes| ~tilde~ *stars* `ticks`"
    with user.bridge() as bridge:
        empty = bridge.ask("session_create")["session_id"]
        bridge.ask("session_create", title=special)
        large = bridge.exchange(special, "x" * 500_000)["session_id"]
        for number in range(5):
            said = [{"role": "user", "content": f"message {number} {n} " + "word " * 100} for n in range(200)]
            bridge.ask("session_message", messages=said)
        assert bridge.close() == 0
    page = user.asnap("export", empty, "--format", "markdown").out
    assert page.startswith("# Untitled session\n")
    assert "- **Messages:** 0" in page
    page = user.asnap("export", large, "--format", "markdown", "--no-redact").out
    assert page.count("\n## ") == 1002
    assert "x" * 500_000 in page
    shown = page.replace("\\", "")
    for word in special.replace("\\", "").split():
        assert word in shown or word.replace("<", "&lt;").replace(">", "&gt;") in shown


@pytest.mark.requirement("TERMINAL-FEATURE-RECENT", "TERMINAL-MANAGER-LIST", "TERMINAL-MANAGER-SAVE-INDEX")
def test_recent_sessions_are_listed_with_date_messages_and_tokens(imported: User) -> None:
    with imported.bridge() as bridge:
        bridge.ask("session_create", title="Newer")
        bridge.exchange("question", "answer", tokens=(3, 4))
        assert bridge.close() == 0
    rows = imported.asnap("list", "--all", "--json").json["sessions"]
    assert [(row["title"], row["messages"], row["tokens"]) for row in rows] == [
        ("Newer", 2, 7),
        ("Debug authentication issue", 2, 168),
    ]
    assert rows[1]["changed_at"] == "2025-10-04T12:15:30Z"
    [older] = [line for line in imported.asnap("list", "--all").out.splitlines() if "Debug" in line]
    assert "2025-10-04T12:15:30" in older
    assert "168" in older.split("\t")
    shown = imported.asnap("show", "2025-10-04_114203", "--summary").out
    assert "2 messages" in shown


@pytest.mark.requirement(
    "TERMINAL-SEARCH-TEXT", "TERMINAL-FEATURE-SHOW", "TERMINAL-FEATURE-FULL-HISTORY", "TERMINAL-USE-REVIEW"
)
def test_past_conversations_are_searched_and_shown_in_full(imported: User) -> None:
    [hit] = imported.asnap("search", "check the logs", "--json").json["hits"]
    assert (hit["session_id"], hit["message"]) == ("2025-10-04_114203", 2)
    shown = imported.asnap("show", hit["session_id"]).out
    for message in SESSION["messages"]:
        assert message["content"] in shown
    assert "read_file" in shown


@pytest.mark.requirement("ORBIT-STORE-INDEX", "TERMINAL-PERF-INDEX")
def test_sessions_are_listed_though_nothing_of_their_conversation_can_be_read(user: User) -> None:
    with user.bridge() as bridge:
        session_id = bridge.ask("session_create", title="Long")["session_id"]
        for number in range(4):
            bridge.exchange(f"question {number}", random.Random(number).randbytes(4000).hex())
        bridge.exchange("the", "end")
        assert bridge.close() == 0
    [segment] = user.store.glob(f"sessions/{session_id}/*.snap.gz")
    with segment.open("r+b") as frames:  # what lists need is in the newest frame
        frames.write(bytes(segment.stat().st_size * 9 // 10))
    [row] = user.asnap("list", "--all", "--json").json["sessions"]
    assert (row["title"], row["messages"], row["state"]) == ("Long", 10, "ok")
    assert user.asnap("show", session_id, fails=True).code == 5


@pytest.mark.requirement("TERMINAL-MANAGER-INDEX")
def test_missing_index_is_made_again(imported: User) -> None:
    def shown() -> tuple[Json, Json]:
        listed = imported.asnap("list", "--all", "--json").json
        return listed["sessions"], imported.asnap("search", "logs", "--json").json["hits"]

    before = shown()
    [index] = imported.home.rglob("search-*.db")
    index.unlink()
    assert shown() == before
    assert index.exists()
    assert len(before[0]) == len(before[1]) == 1


@pytest.mark.requirement("TERMINAL-SECURITY-NAMES")
def test_file_names_contain_no_title_tag_or_message_text(imported: User) -> None:
    imported.asnap("rename", "2025-10-04_114203", "zebra-title")
    imported.asnap("tag", "zebra-title", "zebra-tag")
    with imported.bridge() as bridge:
        bridge.ask("session_create", title="zebra-other")
        bridge.exchange("zebra-question", "zebra-answer")
        assert bridge.close() == 0
    imported.asnap("search", "zebra")
    names = [str(path) for path in imported.home.rglob("*")]
    assert len(names) > 10
    assert [name for name in names if "zebra" in name] == []


@pytest.mark.requirement("TERMINAL-SECURITY-ESCAPE")
def test_control_sequences_and_markup_are_inert_when_shown(user: User) -> None:
    hostile = "\x1b]0;pwned\x07\x1b[31m red <script>alert(1)</script>"
    with user.bridge() as bridge:
        session_id = bridge.ask("session_create", title=hostile)["session_id"]
        bridge.exchange(hostile, hostile)
        assert bridge.close() == 0
    for words in (
        ("list", "--all"),
        ("show", session_id),
        ("search", "red"),
        ("export", session_id, "--format", "markdown"),
    ):
        ran = user.asnap(*words)
        assert "red" in ran.out
        assert "\x1b" not in ran.out + ran.err
        assert "\x07" not in ran.out + ran.err
    page = user.asnap("export", session_id, "--format", "html").out
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.requirement("TERMINAL-SECURITY-TRAVERSAL", "ONERING-CARE-AGENT-ID")
@pytest.mark.parametrize("session_id", ["../../evil", "/etc/evil", "a/../../evil", "..%2fevil", "C:\\evil"])
def test_no_id_leads_outside_the_store(user: User, session_id: str) -> None:
    (user.work / "session.json").write_text(
        json.dumps({**SESSION, "metadata": {**SESSION["metadata"], "session_id": session_id}})
    )
    user.asnap("import", "session.json")
    outside = [path for path in user.home.rglob("*evil*") if not path.is_relative_to(user.store / "sessions")]
    assert outside == []
    assert user.asnap("list", "--all", "--json").json["sessions"][0]["session_id"] == session_id


@pytest.mark.requirement("TERMINAL-PERF-COMPRESS", "ORBIT-STORE-GZIP")
def test_stored_files_are_gzip_compressed(imported: User) -> None:
    with imported.bridge() as bridge:
        session_id = bridge.exchange("question", "the same words again and again. " * 30_000)["session_id"]
        for number in range(20):
            bridge.exchange(f"question {number}", "the same words again and again. " * 300)
        assert bridge.close() == 0
    stored = len(json.dumps(imported.stored(session_id)))
    files = list(imported.store.glob(f"sessions/{session_id}/*.snap.gz"))
    open_segment = 64 << 10  # so much may stay as it was written, until there is more of it
    assert sum(file.stat().st_size for file in files) < stored / 10 + open_segment
    assert b"the same words" in b"".join(gzip.decompress(file.read_bytes()) for file in files)


@pytest.mark.requirement("TERMINAL-LIMIT-SESSION")
def test_a_session_over_100_mb_is_reported_and_kept_whole(tmp_path: Path) -> None:
    async def save() -> tuple[tuple[str, ...], tuple[str, ...], int]:
        part = Message(role="user", content="x" * 1_000_000)
        state = make().append(*[part] * 100)
        async with FilesystemStore(tmp_path) as store:
            small = await store.save(state)
            large = await store.save(state.append(*[part] * 6))
            return small.notices, large.notices, len((await store.load("s")).messages)

    before, after, kept = anyio.run(save)
    assert (before, kept) == ((), 106)
    assert "session" in after[0]
    assert "104857600" in after[0]


def make() -> SessionSnapshot:
    now = "2026-01-01T00:00:00Z"
    return SessionSnapshot.model_validate({"session_id": "s", "created_at": now, "updated_at": now})


async def _called(user: User, tool: str, **arguments: Any) -> Json:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "snapshot_plugin", "mcp"], cwd=user.work, env=user.environment
    )
    with anyio.fail_after(60):
        async with Client(server) as client:
            result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@pytest.mark.requirement("TERMINAL-USE-CONTEXT")
def test_agent_in_a_new_session_finds_earlier_conversations(user: User) -> None:
    with user.agent() as client:
        client.initialize()
        first = client.new_session(user.work)
        client.prompt(first, "say the database listens on port 5433")
    with user.agent() as client:
        client.initialize()
        assert client.new_session(user.work) != first

        found = anyio.run(lambda: _called(user, "search_sessions", query="database"))
    [hit] = [each for each in found["hits"] if each["role"] == "assistant"]
    assert hit["session_id"] == first
    shown = anyio.run(lambda: _called(user, "show_session", session_id=first))
    assert "port 5433" in shown["messages"][-1]["text"]
