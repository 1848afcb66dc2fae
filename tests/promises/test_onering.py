"""What oneringai promises of a persistent session, asked of `persistent_session` and ``asnap import``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidSnapshotVersion,
    MemoryStore,
    SessionLocked,
    StoreUnavailable,
    persistent_session,
)
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it
from tests.promises.doors import PATIENCE, Json, User

STATE: Json = {
    "version": 1,
    "agentId": "my-assistant",
    "agentType": "agent",
    "createdAt": "2026-01-31T10:00:00.000Z",
    "lastActiveAt": "2026-01-31T15:30:00.000Z",
    "context": {
        "version": 1,
        "core": {
            "systemPrompt": "You are a helpful assistant",
            "instructions": "Be brief.",
            "history": [
                {"role": "user", "content": "hi", "timestamp": 1769853600000},
                {"role": "assistant", "content": "hello", "timestamp": 1769853601000},
            ],
            "toolCalls": [{"name": "read_file", "args": {"path": "x"}, "result": "y", "timestamp": 1769853600500}],
        },
        "tools": {"enabled": {"shell": False}, "namespaces": {"git": ["log"]}, "priorities": {"shell": 3}},
        "permissions": {"version": 1, "approvals": {"shell": "once"}, "blocklist": ["rm"], "allowlist": ["ls"]},
        "plugins": {"in_context_memory": {"entries": [1], "config": {}}},
        "config": {"model": "gpt-4", "maxContextTokens": 128000, "strategy": "proactive"},
    },
    "memory": {
        "version": 1,
        "entries": [
            {
                "key": "user_preferences",
                "description": "User prefers dark mode and concise responses",
                "value": {"theme": "dark", "verbosity": "concise"},
                "scope": "persistent",
                "sizeBytes": 128,
                "basePriority": "high",
                "pinned": False,
                "createdAt": 1706699400000,
                "lastAccessedAt": 1706699500000,
            }
        ],
        "stats": {"totalEntries": 1, "totalSizeBytes": 128},
    },
    "plugins": {"calendar": {"open": [1]}},
    "metadata": {"title": "My Assistant Session", "tags": ["personal"]},
}
"""The session file of the design, with its memory in it."""


class Agent:
    """An agent that knows nothing of persistence."""

    def __init__(self) -> None:
        self.history: list[Json] = []
        self.system_prompt = "You help."
        self.instructions = "Be brief."
        self.model = "large-1"
        self.tools: Json = {"enabled": {"shell": True}}
        self.permissions: Json = {"allowlist": ["ls"]}
        self.connector = {"api_key": "sk-zebra-0123456789abcdef", "authorization": "Bearer zebra"}
        self.api_key = "sk-zebra-0123456789abcdef"
        self.options: Json = {"effort": "high", "api_key": "sk-zebra-0123456789abcdef"}

    def chat(self, text: str) -> None:
        self.history += [{"role": "user", "content": text}, {"role": "assistant", "content": text.upper()}]


@pytest.fixture
def imported(user: User) -> Json:
    (user.work / "session.json").write_text(json.dumps(STATE))
    user.asnap("import", "session.json")
    return user.stored("my-assistant")


@pytest.mark.requirement(
    "ONERING-MIGRATE-V1",
    "ONERING-STATE-CREATED",
    "ONERING-STATE-ACTIVE",
    "ONERING-STATE-CONTEXT",
    "ONERING-STATE-METADATA",
    "ONERING-STATE-AGENT-ID",
    "ONERING-FILE-SYSTEM-PROMPT",
    "ONERING-FILE-INSTRUCTIONS",
    "ONERING-FILE-HISTORY",
    "ONERING-FILE-TOOL-CALLS",
    "ONERING-FILE-TOOLS-ENABLED",
    "ONERING-FILE-TOOLS-NAMESPACES",
    "ONERING-FILE-TOOLS-PRIORITIES",
    "ONERING-FILE-APPROVALS",
    "ONERING-FILE-BLOCKLIST",
    "ONERING-FILE-ALLOWLIST",
    "ONERING-FILE-CONTEXT-PLUGINS",
    "ONERING-FILE-MODEL",
    "ONERING-FILE-MAX-TOKENS",
    "ONERING-FILE-STRATEGY",
    "ONERING-FILE-TITLE",
    "ONERING-FILE-TAGS",
)
def test_version_1_session_file_is_imported_completely(imported: Json) -> None:
    context = STATE["context"]
    assert (imported["session_id"], imported["provider_type"]) == ("my-assistant", "oneringai")
    assert (imported["created_at"], imported["updated_at"]) == (
        "2026-01-31T10:00:00.000000Z",
        "2026-01-31T15:30:00.000000Z",
    )
    config = imported["config"]
    assert config["system_prompt"] == context["core"]["systemPrompt"]
    assert config["instructions"] == context["core"]["instructions"]
    assert (config["tools"], config["permissions"]) == (context["tools"], context["permissions"])
    assert (config["model"], config["options"]) == ("gpt-4", {"maxContextTokens": 128000, "strategy": "proactive"})
    question, answer = imported["messages"]
    assert (question["role"], question["content"][0]["text"]) == ("user", "hi")
    text, call = answer["content"]
    assert (answer["role"], text["text"]) == ("assistant", "hello")
    assert (call["title"], call["rawInput"], call["rawOutput"]) == ("read_file", {"path": "x"}, "y")
    assert imported["plugins"] == {**context["plugins"], **STATE["plugins"]}
    assert (imported["title"], imported["tags"]) == ("My Assistant Session", ["personal"])


@pytest.mark.requirement("ONERING-FILE-MEMORY-ENTRY", "ONERING-STATE-MEMORY-VERSION")
def test_a_memory_entry_of_a_session_file_keeps_all_its_fields(imported: Json) -> None:
    [entry] = STATE["memory"]["entries"]
    [(key, kept)] = imported["memory"].items()
    assert key == entry["key"]
    for name in ("description", "value", "scope", "sizeBytes", "basePriority", "pinned"):
        assert kept[name] == entry[name]
    assert (kept["createdAt"], kept["lastAccessedAt"]) == (
        "2024-01-31T11:10:00.000000Z",
        "2024-01-31T11:11:40.000000Z",
    )
    about = imported["metadata"]["oneringai"]["memory"]
    assert (about["version"], about["stats"]) == (1, {"totalEntries": 1, "totalSizeBytes": 128})


@pytest.mark.requirement("ONERING-MIGRATE-V0", "ONERING-MIGRATE-UNKNOWN")
def test_unversioned_state_is_migrated_and_an_unknown_version_is_named(user: User) -> None:
    before = {name: value for name, value in STATE.items() if name != "version"}
    (user.work / "old.json").write_text(json.dumps(before))
    (user.work / "new.json").write_text(json.dumps({**STATE, "version": 7, "agentId": "newer"}))
    user.asnap("import", "old.json")
    assert user.stored("my-assistant")["title"] == "My Assistant Session"
    refused = user.asnap("import", "new.json", fails=True)
    assert refused.code == 8
    assert "version 7" in refused.err
    assert user.asnap("show", "newer", fails=True).code == 4


@pytest.mark.anyio
@pytest.mark.requirement(
    "ONERING-STATE-MEMORY",
    "ONERING-STATE-VERSION",
    "ONERING-STATE-PLUGINS",
    "ONERING-PLACE-MEMORY",
    "ONERING-PLACE-PER-AGENT",
    "ONERING-PLACE-SESSION",
    "ONERING-GOAL-PLACE",
)
async def test_session_works_with_and_without_memory(tmp_path: Path) -> None:
    store = tmp_path / "store"
    async with persistent_session(Agent(), agent_id="without", store=store) as session:
        session.agent.chat("hello")  # type: ignore[attr-defined]
    async with persistent_session(Agent(), agent_id="with", store=store) as session:
        session.agent.chat("hello")  # type: ignore[attr-defined]
        session.register_plugin("notes", lambda: {"open": [1]}, print)
        await session.memory.set("preferences", {"theme": "dark"})
    async with FilesystemStore(store) as opened:
        plain, kept = await opened.load("without"), await opened.load("with")
    assert (dict(plain.memory), dict(plain.plugins)) == ({}, {})
    assert (dict(kept.plugins), kept.version) == ({"notes": {"open": [1]}}, 2)
    assert dict(kept.memory) == {"preferences": {"theme": "dark"}}
    assert {path.name for path in (store / "sessions").iterdir()} == {"without", "with"}
    async with persistent_session(Agent(), agent_id="with", store=store) as session:
        assert await session.memory.get("preferences") == {"theme": "dark"}
        assert await session.delete()
    assert {path.name for path in (store / "sessions").iterdir()} == {"without"}


@pytest.mark.anyio
@pytest.mark.requirement(
    "ONERING-USAGE-BACKEND", "ONERING-OPTION-STORE", "ONERING-GOAL-BACKENDS", "ORBIT-STORE-SWAP"
)
async def test_custom_backend_is_used_when_given(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(MemoryStore):
        """What an author might write: another place, and a word on each save."""

        def __init__(self) -> None:
            super().__init__()
            self.saved: list[str] = []

        async def save(self, snapshot: Any, **options: Any) -> Any:
            self.saved.append(snapshot.session_id)
            return await super().save(snapshot, **options)

    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(user.home))
    store, agent = Theirs(), Agent()
    async with persistent_session(agent, agent_id="mine", store=store):
        agent.chat("hello")
    again = Agent()
    async with persistent_session(again, agent_id="mine", store=store) as session:
        assert session.report.found
    assert (set(store.saved), again.history) == ({"mine"}, agent.history)
    assert [path for path in user.home.rglob("*") if path != user.work] == []


@pytest.mark.anyio
@pytest.mark.requirement("ONERING-CARE-AUTH-APART", "ONERING-CARE-CREDENTIALS")
async def test_connector_credentials_are_not_in_the_session(tmp_path: Path) -> None:
    agent = Agent()
    async with persistent_session(agent, agent_id="mine", store=tmp_path):
        agent.chat("hello")
    async with FilesystemStore(tmp_path) as store:
        kept = str((await store.load("mine")).model_dump())
    assert "HELLO" in kept
    assert "effort" in kept
    assert "zebra" not in kept
    other = Agent()
    other.connector = {"api_key": "another"}
    other.options = {"effort": "low", "api_key": "another"}
    async with persistent_session(other, agent_id="mine", store=tmp_path):
        assert other.history == agent.history
    assert other.connector == {"api_key": "another"}
    assert other.options == {"effort": "high", "api_key": "another"}


@pytest.mark.anyio
@pytest.mark.requirement("ONERING-GOAL-OPT-IN", "ONERING-ERROR-MISSING", "ONERING-USAGE-MANUAL")
async def test_agent_is_unchanged_by_a_session_that_is_not_entered(tmp_path: Path) -> None:
    agent = Agent()
    before = dict(vars(agent))
    session = persistent_session(agent, agent_id="mine", store=tmp_path / "store")
    agent.chat("hello")
    assert vars(agent) == {**before, "history": agent.history}
    assert type(agent) is Agent
    assert not (tmp_path / "store").exists()
    assert not (await session.load()).found
    assert len(agent.history) == 2
    await session.aclose()


@pytest.mark.requirement("ONERING-GOAL-OPT-IN", "ONERING-OPTION-OFF")
def test_importing_the_package_leaves_nothing_behind(user: User) -> None:
    program = "import snapshot_plugin; [getattr(snapshot_plugin, name) for name in snapshot_plugin.__all__]"
    assert user.python("-c", program).code == 0
    assert list(user.home.rglob("*")) == [user.work]


_HOLDER = """
import sys, anyio
from snapshot_plugin import persistent_session

class Agent:
    history = []

async def main():
    async with persistent_session(Agent(), agent_id="mine", store=sys.argv[1]):
        print("open", flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.requirement("ONERING-CARE-PROCESSES", "ONERING-CARE-ONE-WRITER")
def test_second_process_is_refused_until_the_first_exits(user: User, tmp_path: Path) -> None:
    async def enter() -> None:
        async with persistent_session(Agent(), agent_id="mine", store=tmp_path / "store"):
            """Free."""

    line = [sys.executable, "-c", _HOLDER, str(tmp_path / "store")]
    with subprocess.Popen(line, env=user.environment, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(SessionLocked) as refused:
            anyio.run(enter)
        assert str(holder.pid) in str(refused.value)
        holder.kill()
        holder.wait(PATIENCE)
    anyio.run(enter)


@pytest.mark.anyio
@pytest.mark.requirement("ONERING-ERROR-STORAGE")
async def test_storage_error_reaches_the_caller_with_cause_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the directory should be")
    with pytest.raises(StoreUnavailable) as refused:
        async with persistent_session(Agent(), agent_id="mine", store=tmp_path / "store"):
            """Not reached."""
    assert str(tmp_path / "store") in refused.value.message


class FromTheFuture(MemoryStore):
    """Holds what only a newer release can read."""

    async def read(self, session_id: str, **options: Any) -> Any:
        raise InvalidSnapshotVersion("version 99 is newer than this release", session_id=session_id)


@pytest.mark.anyio
async def test_snapshot_of_a_newer_release_is_refused_and_left_alone() -> None:
    """The design starts fresh here, and overwrites; the package does not, on purpose (ONERING-ERROR-VERSION)."""
    store, agent = FromTheFuture(), Agent()
    with pytest.raises(InvalidSnapshotVersion):
        async with persistent_session(agent, agent_id="mine", store=store):
            agent.chat("lost?")
    assert await store.list() == []
