"""`SnapshotSessionStore` under the SDK's own 14 contracts, and killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from claude_agent_sdk import (
    InMemorySessionStore,
    fork_session_via_store,
    get_session_messages_from_store,
    project_key_for_directory,
)
from claude_agent_sdk.testing import run_session_store_conformance

from integration.frameworks.claude_agent import HERE, SESSION, turn
from integration.frameworks.faults import AdapterFaults
from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidSnapshotVersion
from snapshot_plugin.frameworks.claude_agent_sdk import SnapshotSessionStore
from snapshot_plugin.frameworks.claude_entries import message_of

KEY: Any = {"project_key": "p", "session_id": "s"}
ODD: list[Any] = [
    {"type": "summary", "summary": "what happened", "leafUuid": "x"},
    {"type": "queue-operation", "operation": "enqueue", "content": {"deep": [1, 2.5, None, True]}},
    {"type": "user", "uuid": "u1", "message": {"role": "user", "content": []}},
    {"type": "user", "uuid": "u2", "message": "no object"},
    {"type": "user", "message": {"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}},
    {"type": "assistant", "uuid": "a1", "timestamp": "now", "message": {"content": [{"type": "text", "text": ""}]}},
    {"type": "assistant", "uuid": "a2", "parts": 1, "message": {"content": [
        {"type": "thinking", "thinking": "hm", "signature": "abc"}, {"type": "redacted_thinking", "data": "x"}]}},
    {"type": "user", "uuid": "u3", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": ""}], "is_error": 1}]}},
]  # fmt: skip


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_all_contracts_of_the_sdk_hold(tmp_path: Path, backend: str, key: str | None) -> None:
    made: list[SnapshotSessionStore] = []

    def fresh() -> SnapshotSessionStore:
        made.append(SnapshotSessionStore(tmp_path / str(len(made)), key))
        return made[-1]

    async def main() -> None:
        await run_session_store_conformance(fresh)

    anyio.run(main, backend=backend)
    assert len(made) == 15  # one to ask what it can do, and one for each contract


@pytest.mark.parametrize("entries", [turn(), ODD], ids=["a turn", "odd entries"])
def test_entries_round_trip_as_through_the_in_memory_store(tmp_path: Path, entries: list[Any]) -> None:
    async def main() -> None:
        theirs = InMemorySessionStore()
        await theirs.append(KEY, entries)
        await SnapshotSessionStore(tmp_path).append(KEY, entries)
        assert await SnapshotSessionStore(FilesystemStore(tmp_path)).load(KEY) == await theirs.load(KEY)

    anyio.run(main)


def test_a_batch_that_is_repeated_is_kept_once(tmp_path: Path) -> None:
    async def main() -> None:
        store = SnapshotSessionStore(tmp_path)
        await store.append(KEY, turn()[:3])
        await store.append(KEY, turn()[1:])
        assert await store.load(KEY) == turn()

    anyio.run(main)


def test_the_helpers_of_the_sdk_fork_a_session(tmp_path: Path) -> None:
    async def main() -> None:
        store = SnapshotSessionStore(tmp_path)
        await store.append({"project_key": project_key_for_directory(str(HERE)), "session_id": SESSION}, turn())
        fork = await fork_session_via_store(store, SESSION, directory=str(HERE))
        assert len(await get_session_messages_from_store(store, fork.session_id, directory=str(HERE))) == 4

    anyio.run(main)


def test_threads_with_loops_of_their_own_lose_no_entry(tmp_path: Path) -> None:
    def work(name: int) -> None:
        async def main() -> None:
            store = SnapshotSessionStore(FilesystemStore(tmp_path))
            for number in range(5):
                await store.append(KEY, [{"type": "x", "uuid": f"{name}-{number}"}])

        anyio.run(main, backend="trio" if name % 2 else "asyncio")

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found: Any = anyio.run(SnapshotSessionStore(tmp_path).load, KEY)
    assert {each["uuid"] for each in found} == {f"{name}-{number}" for name in range(4) for number in range(5)}


def test_a_transcript_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    store = SnapshotSessionStore(tmp_path)
    anyio.run(store.append, KEY, turn())
    direct = FilesystemStore(tmp_path).sync
    found = direct.load(direct.list()[0].session_id)
    direct.save(found.evolve(plugins={**found.plugins, "claude-agent-sdk": {"format": 3}}))
    with pytest.raises(InvalidSnapshotVersion, match="newer claude-agent-sdk adapter"):
        anyio.run(store.load, KEY)


def test_a_killed_writer_loses_nothing_and_another_completes_the_turn(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.claude_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    begun = agent("begin")
    assert begun.returncode == -9, begun.stderr
    resumed = agent("resume")
    assert resumed.stdout.splitlines() == [f"{SESSION}: Which files are here?", "2 messages before, 4 after"]


def test_people_see_the_conversation(tmp_path: Path) -> None:
    anyio.run(SnapshotSessionStore(tmp_path).append, KEY, [*turn(), ODD[0]])
    anyio.run(SnapshotSessionStore(tmp_path).append, {**KEY, "subpath": "subagents/a"}, turn())
    store = FilesystemStore(tmp_path).sync
    [meta] = store.list()
    assert (meta.title, meta.turns, meta.tokens, meta.agent, meta.tags) == (
        "Which files are here?", 1, 28, "claude-agent-sdk", (),
    )  # fmt: skip
    snapshot = store.load(meta.session_id)
    assert snapshot.config.model == "claude-x"
    assert [message.role for message in snapshot.messages[:4]] == ["user", "assistant", "tool", "assistant"]
    assert snapshot.messages[2].metadata["tool_call_id"] == "toolu_1"


def test_entries_of_subagents_that_release_0_2_stored_move_into_their_session(tmp_path: Path) -> None:
    sub = {**KEY, "subpath": "subagents/a"}
    anyio.run(SnapshotSessionStore(tmp_path).append, KEY, turn())
    direct = FilesystemStore(tmp_path).sync
    [meta] = direct.list()
    said = [message_of(entry) for entry in turn()]
    old = direct.load(meta.session_id).evolve(
        session_id=f"{meta.session_id}+subgraphs",
        messages=[each.evolve(metadata={**each.metadata, "subpath": "subagents/a"}) for each in said],
    )
    direct.save(old)

    store = SnapshotSessionStore(tmp_path)
    assert anyio.run(store.list_subkeys, KEY) == ["subagents/a"]
    assert anyio.run(store.load, sub) == turn()
    anyio.run(store.append, sub, [*turn(), ODD[0]])
    assert anyio.run(SnapshotSessionStore(tmp_path).load, sub) == [*turn(), ODD[0]]
    assert anyio.run(SnapshotSessionStore(tmp_path).load, KEY) == turn()
    assert [each.session_id for each in direct.list()] == [meta.session_id]


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    anyio.run(run_page("claude-agent-sdk")["main"])


class TestFaults(AdapterFaults):
    writer = "claude_agent_sdk"
