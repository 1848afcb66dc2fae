"""Every data field a seed names is a field of ours, by its own name, and is the same after save and load."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_core import to_json

from snapshot_plugin import FilesystemStore, Message, SessionSnapshot, SnapshotMeta
from snapshot_plugin.model import CURRENT_VERSION, Metrics, SessionConfig, TextBlock, ToolCallBlock
from snapshot_plugin.model.value import Value

Stored = tuple[SessionSnapshot, SnapshotMeta]

BEGAN = datetime(2026, 11, 16, 0, 51, 47, 1, tzinfo=UTC)
CHANGED = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)
TEXT = TextBlock(text="Done.")
CALL = ToolCallBlock(tool_call_id="call-1", title="read_file", raw_input={"path": "auth.log"}, status="completed")
ENTRY = {
    "description": "how to answer",
    "value": {"verbosity": "concise"},
    "scope": "persistent",
    "sizeBytes": 128,
    "basePriority": "high",
    "pinned": False,
    "createdAt": "2026-01-31T10:00:00Z",
    "lastAccessedAt": "2026-01-31T10:01:40Z",
}
CONFIG = SessionConfig(
    cwd="project",
    model="large-1",
    system_prompt="You help.",
    instructions="Be brief.",
    tools={"enabled": {"shell": False}, "namespaces": {"git": ["log"]}, "priorities": {"shell": 3}},
    permissions={"approvals": {"shell": "once"}, "blocklist": ["rm"], "allowlist": ["ls"]},
    options={"maxContextTokens": 128000, "strategy": "proactive"},
)
EVERYTHING = SessionSnapshot(
    session_id="2025-10-04_114203",
    provider_type="acp",
    created_at=BEGAN,
    updated_at=CHANGED,
    agent_session_id="the-agents-own",
    config=CONFIG,
    messages=(
        Message(role="system", content="Begin."),
        Message(role="user", content="Read the log.", timestamp=BEGAN),
        Message(role="assistant", content=(CALL, TEXT), token_count=156, metadata={"temperature": 0.2}),
        Message(role="tool", content="a line"),
    ),
    current_task="debugging",
    metrics=Metrics(turns=1, input_tokens=12, output_tokens=156, total_tokens=168, duration_seconds=2.5),
    title="Debug authentication",
    tags=("bug", "auth"),
    plugins={"in_context_memory": {"entries": [1], "config": {}}},
    memory={"preferences": ENTRY},
    metadata={"files": ["auth.py"]},
)


FIELDS = [
    pytest.param("session_id", EVERYTHING.session_id, marks=pytest.mark.requirement("ORBIT-MODEL-ID")),
    pytest.param("provider_type", "acp", marks=pytest.mark.requirement("ORBIT-MODEL-PROVIDER")),
    pytest.param(
        "created_at", BEGAN, marks=pytest.mark.requirement("ORBIT-MODEL-CREATED", "ONERING-STATE-CREATED")
    ),
    pytest.param(
        "updated_at", CHANGED, marks=pytest.mark.requirement("ORBIT-MODEL-UPDATED", "ONERING-STATE-ACTIVE")
    ),
    pytest.param(
        "version",
        CURRENT_VERSION,
        marks=pytest.mark.requirement("ORBIT-MODEL-VERSION", "ONERING-STATE-VERSION", "ORBIT-STORE-VERSIONED"),
    ),
    pytest.param("config", CONFIG, marks=pytest.mark.requirement("ORBIT-MODEL-CONFIG", "ONERING-STATE-CONTEXT")),
    pytest.param("agent_session_id", "the-agents-own", marks=pytest.mark.requirement("ORBIT-MODEL-AGENT-ID")),
    pytest.param(
        "messages",
        EVERYTHING.messages,
        marks=pytest.mark.requirement("ORBIT-MODEL-MESSAGES", "ONERING-FILE-HISTORY"),
    ),
    pytest.param("current_task", "debugging", marks=pytest.mark.requirement("ORBIT-MODEL-TASK")),
    pytest.param("metrics", EVERYTHING.metrics, marks=pytest.mark.requirement("ORBIT-MODEL-METRICS")),
    pytest.param(
        "metadata",
        {"files": ["auth.py"]},
        marks=pytest.mark.requirement("ORBIT-MODEL-METADATA", "ONERING-STATE-METADATA"),
    ),
    pytest.param("title", "Debug authentication", marks=pytest.mark.requirement("ONERING-FILE-TITLE")),
    pytest.param("tags", ("bug", "auth"), marks=pytest.mark.requirement("ONERING-FILE-TAGS")),
    pytest.param("plugins", EVERYTHING.plugins, marks=pytest.mark.requirement("ONERING-STATE-PLUGINS")),
    pytest.param(
        "memory",
        {"preferences": ENTRY},
        marks=pytest.mark.requirement("ONERING-STATE-MEMORY", "ONERING-FILE-MEMORY-ENTRY"),
    ),
    pytest.param("config.system_prompt", "You help.", marks=pytest.mark.requirement("ONERING-FILE-SYSTEM-PROMPT")),
    pytest.param("config.instructions", "Be brief.", marks=pytest.mark.requirement("ONERING-FILE-INSTRUCTIONS")),
    pytest.param("config.model", "large-1", marks=pytest.mark.requirement("ONERING-FILE-MODEL")),
]
INSIDE = [
    pytest.param(
        "config.tools", "enabled", {"shell": False}, marks=pytest.mark.requirement("ONERING-FILE-TOOLS-ENABLED")
    ),
    pytest.param(
        "config.tools",
        "namespaces",
        {"git": ["log"]},
        marks=pytest.mark.requirement("ONERING-FILE-TOOLS-NAMESPACES"),
    ),
    pytest.param(
        "config.tools", "priorities", {"shell": 3}, marks=pytest.mark.requirement("ONERING-FILE-TOOLS-PRIORITIES")
    ),
    pytest.param(
        "config.permissions",
        "approvals",
        {"shell": "once"},
        marks=pytest.mark.requirement("ONERING-FILE-APPROVALS"),
    ),
    pytest.param(
        "config.permissions", "blocklist", ["rm"], marks=pytest.mark.requirement("ONERING-FILE-BLOCKLIST")
    ),
    pytest.param(
        "config.permissions", "allowlist", ["ls"], marks=pytest.mark.requirement("ONERING-FILE-ALLOWLIST")
    ),
    pytest.param(
        "config.options", "maxContextTokens", 128000, marks=pytest.mark.requirement("ONERING-FILE-MAX-TOKENS")
    ),
    pytest.param("config.options", "strategy", "proactive", marks=pytest.mark.requirement("ONERING-FILE-STRATEGY")),
]
OF_MESSAGES = [
    pytest.param(0, "role", "system", marks=pytest.mark.requirement("TERMINAL-ROLE-SYSTEM", "ORBIT-MODEL-ROLE")),
    pytest.param(1, "role", "user", marks=pytest.mark.requirement("TERMINAL-ROLE-USER", "ORBIT-MODEL-ROLE")),
    pytest.param(
        2, "role", "assistant", marks=pytest.mark.requirement("TERMINAL-ROLE-ASSISTANT", "ORBIT-MODEL-ROLE")
    ),
    pytest.param(3, "role", "tool", marks=pytest.mark.requirement("TERMINAL-ROLE-TOOL")),
    pytest.param(1, "timestamp", BEGAN, marks=pytest.mark.requirement("ORBIT-MODEL-TIME", "TERMINAL-MESSAGE-TIME")),
    pytest.param(
        2,
        "content",
        (CALL, TEXT),
        marks=pytest.mark.requirement(
            "TERMINAL-MESSAGE-TOOL-CALLS", "ORBIT-MODEL-BLOCKS", "ONERING-FILE-TOOL-CALLS"
        ),
    ),
    pytest.param(2, "token_count", 156, marks=pytest.mark.requirement("TERMINAL-MESSAGE-TOKENS")),
    pytest.param(1, "token_count", None, marks=pytest.mark.requirement("TERMINAL-MESSAGE-TOKENS")),
    pytest.param(2, "metadata", {"temperature": 0.2}, marks=pytest.mark.requirement("TERMINAL-MESSAGE-METADATA")),
    pytest.param(1, "metadata", {}, marks=pytest.mark.requirement("TERMINAL-MESSAGE-METADATA")),
]
LISTED = [
    pytest.param("session_id", EVERYTHING.session_id, marks=pytest.mark.requirement("TERMINAL-META-ID")),
    pytest.param("created_at", BEGAN, marks=pytest.mark.requirement("TERMINAL-META-CREATED")),
    pytest.param("updated_at", CHANGED, marks=pytest.mark.requirement("TERMINAL-META-UPDATED")),
    pytest.param("messages", 4, marks=pytest.mark.requirement("TERMINAL-META-COUNT")),
    pytest.param("tokens", 168, marks=pytest.mark.requirement("TERMINAL-META-TOKENS")),
    pytest.param("title", "Debug authentication", marks=pytest.mark.requirement("TERMINAL-META-TITLE")),
    pytest.param("tags", ("bug", "auth"), marks=pytest.mark.requirement("TERMINAL-META-TAGS")),
]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return anyio.run(save_load_and_list, tmp_path_factory.mktemp("store"))


async def save_load_and_list(place: Path) -> Stored:
    async with FilesystemStore(place) as store:
        await store.save(EVERYTHING)
    async with FilesystemStore(place) as store:
        (listed,) = await store.list()
        return await store.load(EVERYTHING.session_id), listed


def field(value: Value, path: str) -> Any:
    """A field that was declared; those we merely carry along do not count."""
    for name in path.split("."):
        assert name in type(value).model_fields
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(("path", "expected"), FIELDS)
def test_a_snapshot_has_every_field_a_seed_names(path: str, expected: Any, stored: Stored) -> None:
    assert field(stored[0], path) == expected


@pytest.mark.parametrize(("path", "key", "expected"), INSIDE)
def test_settings_a_seed_names_are_kept_in_their_section(
    path: str, key: str, expected: Any, stored: Stored
) -> None:
    assert field(stored[0], path)[key] == expected


@pytest.mark.parametrize(("index", "name", "expected"), OF_MESSAGES)
def test_a_message_has_every_field_a_seed_names(index: int, name: str, expected: Any, stored: Stored) -> None:
    assert field(stored[0].messages[index], name) == expected


@pytest.mark.parametrize(("name", "expected"), LISTED)
def test_a_listed_session_has_every_field_a_seed_names(name: str, expected: Any, stored: Stored) -> None:
    assert name in {field.name for field in fields(SnapshotMeta)}
    assert getattr(stored[1], name) == expected


@pytest.mark.requirement("TERMINAL-META-TAGS", "TERMINAL-META-TITLE", "ONERING-STATE-MEMORY")
def test_title_tags_and_memory_are_optional() -> None:
    plain = SessionSnapshot(session_id="s", created_at=BEGAN, updated_at=BEGAN)
    assert (plain.title, plain.tags, plain.memory) == (None, (), {})


@pytest.mark.requirement(
    "ORBIT-TEST-ROUND-TRIP",
    "ORBIT-TEST-SERIAL",
    "ORBIT-SUCCESS-STATE",
    "TERMINAL-MESSAGE-ROUND-TRIP",
    "TERMINAL-SESSION-ROUND-TRIP",
    "TERMINAL-TEST-FLOW",
    "TERMINAL-QUALITY-INTEGRITY",
    "ONERING-STORAGE-SAVE",
)
def test_fully_populated_session_round_trips(stored: Stored) -> None:
    assert stored[0] == EVERYTHING


@pytest.mark.requirement("TERMINAL-META-ROUND-TRIP")
def test_list_summary_round_trips_through_json(stored: Stored) -> None:
    assert SnapshotMeta.told(json.loads(to_json(stored[1]))) == stored[1]
