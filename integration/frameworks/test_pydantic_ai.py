"""`SnapshotConversationStore` beside pydantic-ai's store in memory, shared by writers, and killed."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from integration.frameworks.faults import AdapterFaults
from integration.frameworks.pages import ROOT, run_page
from integration.frameworks.pydantic_agent import agent_with
from snapshot_plugin import FilesystemStore, persistent_session
from snapshot_plugin.errors import InvalidSnapshotVersion
from snapshot_plugin.frameworks.pydantic_ai import SnapshotConversationStore

MESSAGES: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("be kind"), UserPromptPart("hello")], instructions="short"),
    ModelRequest(parts=[
        UserPromptPart(["look", ImageUrl(url="http://x/y.png"), BinaryContent(b"\0\1", media_type="image/png")]),
    ]),
    ModelResponse(
        parts=[ThinkingPart("hm", signature="s"), TextPart("hi"), ToolCallPart("f", {"x": [1, None]}, "c1")],
        usage=RequestUsage(input_tokens=3, output_tokens=4), model_name="tiny-1",
    ),
    ModelRequest(parts=[
        ToolReturnPart("f", {"rows": [1.5]}, "c1"), ToolReturnPart("g", "no", "c2", outcome="failed"),
    ]),
    ModelResponse(parts=[ToolCallPart("f", '{"x": 1}', "c3")]),
    ModelResponse(parts=[]),
]  # fmt: skip

MESSAGES = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))


def conversation(*messages: ModelMessage, name: str = "c") -> Conversation:
    return Conversation(conversation_id=name, messages=list(messages))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.kind)
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_a_message_round_trips(tmp_path: Path, message: ModelMessage, key: str | None) -> None:
    async def main() -> None:
        await SnapshotConversationStore(tmp_path, key).save(conversation(message))
        found = await SnapshotConversationStore(FilesystemStore(tmp_path, key=key)).load("c")
        assert found
        assert found.messages == [message]

    asyncio.run(main())


class Names:
    """Ids differ between two stores; they are compared by their order."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, entry_id: str | None) -> int | None:
        return None if entry_id is None else self._known.setdefault(entry_id, len(self._known))


async def outcome(store: ConversationStore, names: Names, step: tuple[Any, ...]) -> Any:
    what, name, number = step
    try:
        if what == "turn":
            found = await store.load(name) or Conversation(conversation_id=name)
            found.messages.append(MESSAGES[number % len(MESSAGES)])
            entries = await store.save(found, scope=f"s{number % 2}" if found.revision is None else None)
            return [names.of(entry.id) for entry in entries]
        if what == "rewrite":
            found = await store.load(name)
            rewritten = conversation(*MESSAGES[: number % 4], name=name)
            rewritten.revision = found.revision if found else None
            await store.save(rewritten)
        elif what == "stale":
            await store.save(conversation(MESSAGES[0], name=name))
        elif what == "branch":
            entries_ = await store.load_entries(name) or []
            found = await store.load(name)
            await store.branch(
                name, at=number % (len(entries_) + 1), expected_revision=found.revision if found else None
            )
        elif what == "back":
            record = await store.read_record(name)
            if record and record.branches:
                await store.branch(name, from_entry=record.branches[0], expected_revision=record.revision)
        elif what == "fork":
            await store.fork(name, at=number % 3, new_conversation_id=f"fork-{number % 2}")
        elif what == "delete":
            await store.delete(name)
    except (ConversationConflict, UserError) as error:
        return type(error).__name__
    return None


async def contents(store: ConversationStore, names: Names) -> Any:
    out = []
    for record in await store.list_conversations():
        entries = await store.load_entries(record.conversation_id) or []
        left = [[names.of(each.id) for each in await store.read_history(tip)] for tip in record.branches]
        about = dataclasses.replace(
            record, revision="", updated_at=None, head_id=None, branches=[], forked_at=None,
        )  # type: ignore[arg-type]  # fmt: skip
        messages = [(names.of(each.id), names.of(each.parent_id), each.message) for each in entries]
        out.append((about, names.of(record.forked_at), messages, left))
    return out


@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_calls_behaves_as_in_memory(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    kinds = ["turn"] * 5 + ["rewrite", "stale", "branch", "back", "fork", "delete"]

    async def main() -> None:
        stores: list[ConversationStore] = [SnapshotConversationStore(tmp_path), InMemoryConversationStore()]
        names = [Names(), Names()]
        for _ in range(40):
            step = (chance.choice(kinds), chance.choice(["a", "b", "fork-0", "fork-1"]), chance.randrange(100))
            ours, theirs = [await outcome(*each, step) for each in zip(stores, names, strict=True)]
            assert ours == theirs, step
            ours, theirs = [await contents(*each) for each in zip(stores, names, strict=True)]
            assert ours == theirs, step
        reopened = SnapshotConversationStore(FilesystemStore(tmp_path))
        assert await contents(reopened, names[0]) == await contents(stores[1], names[1])

    asyncio.run(main())


def test_forks_share_entries_and_outlive_their_source(tmp_path: Path) -> None:
    async def main() -> None:
        store = SnapshotConversationStore(tmp_path)
        entries = await store.save(conversation(*MESSAGES[:3]))
        await store.fork("c", at=2, new_conversation_id="f")
        await store.delete("c")
        kept = await SnapshotConversationStore(FilesystemStore(tmp_path)).load_entries("f")
        assert kept == entries[:2]

    asyncio.run(main())


def test_a_fork_counts_only_its_own_turns(tmp_path: Path) -> None:
    async def main() -> None:
        store = SnapshotConversationStore(tmp_path)
        await store.save(conversation(*MESSAGES[:3]))
        await store.fork("c", new_conversation_id="f")
        fork = await store.load("f")
        assert fork
        fork.messages.append(MESSAGES[0])
        await store.save(fork)

    asyncio.run(main())
    found = {meta.session_id: meta for meta in FilesystemStore(tmp_path).sync.list()}
    counts = [(found[name].turns, found[name].tokens, found[name].messages) for name in "cf"]
    assert counts == [(2, 7, 3), (1, 0, 4)]


def test_of_two_writers_one_gets_a_conflict(tmp_path: Path) -> None:
    async def main() -> None:
        first, second = (SnapshotConversationStore(FilesystemStore(tmp_path)) for _ in range(2))
        await first.save(conversation(MESSAGES[0]))
        ours, theirs = await first.load("c"), await second.load("c")
        assert ours
        assert theirs
        ours.messages.append(MESSAGES[2])
        theirs.messages.append(MESSAGES[4])
        await first.save(ours)
        with pytest.raises(ConversationConflict):
            await second.save(theirs)
        found = await second.load("c")
        assert found
        assert found.messages == [MESSAGES[0], MESSAGES[2]]

    asyncio.run(main())


def test_an_agent_continues_in_another_process(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Agent(TestModel(custom_output_text="fine"))
        await SnapshotConversationStore(tmp_path).save(await agent.run("first", conversation_id="c"))
        store = SnapshotConversationStore(FilesystemStore(tmp_path))
        found = await store.load("c")
        await store.save(await agent.run("second", conversation=found))
        again = await store.load("c")
        assert again
        assert len(again.messages) == 4
        assert again.usage.requests == 2

    asyncio.run(main())


def test_an_approval_asked_before_a_kill_is_answered_after_it(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.pydantic_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    asked = agent("ask")
    assert asked.returncode == -9, asked.stderr
    approved = agent("approve")
    assert approved.stdout.strip() == "Refunded 40.", approved.stderr
    assert (tmp_path / "store.log").read_text() == "refund\n"


def test_a_conversation_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    store = SnapshotConversationStore(tmp_path)
    asyncio.run(store.save(conversation(MESSAGES[0])))
    direct = FilesystemStore(tmp_path).sync
    found = direct.load("c")
    direct.save(
        found.evolve(plugins={**found.plugins, "pydantic-ai": {**found.plugins["pydantic-ai"], "format": 2}})
    )
    with pytest.raises(InvalidSnapshotVersion, match="newer pydantic-ai adapter"):
        asyncio.run(store.load("c"))

    asyncio.run(store.save(conversation(MESSAGES[0], name="d")))
    fresh = SnapshotConversationStore(FilesystemStore(tmp_path))
    [listed] = asyncio.run(fresh.read_records(limit=1))
    assert listed.conversation_id == "d"


def test_people_see_the_conversation(tmp_path: Path) -> None:
    asyncio.run(SnapshotConversationStore(tmp_path).save(conversation(*MESSAGES[:4])))
    [meta] = FilesystemStore(tmp_path).sync.list()
    assert (meta.title, meta.turns, meta.tokens, meta.tags) == ("hello", 2, 7, ())


def test_a_branch_that_people_made_is_a_conversation_of_its_own(tmp_path: Path) -> None:
    async def main() -> None:
        store, agent = SnapshotConversationStore(tmp_path), Agent(TestModel())
        await store.save(await agent.run("hello", conversation=Conversation(conversation_id="chat")))
        below = FilesystemStore(tmp_path).sync
        below.save(below.load("chat").evolve(session_id="branch"), base=0)
        assert {each.conversation_id for each in await store.read_records()} == {"chat", "branch"}
        branch = await store.load("branch")
        assert branch is not None
        await store.save(await agent.run("again", conversation=branch))
        lengths = [
            len((await SnapshotConversationStore(tmp_path).load(each)).messages) for each in ("chat", "branch")
        ]
        assert lengths == [2, 4]

    asyncio.run(main())


def test_an_agent_is_persistent_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        log = tmp_path / "log"
        async with persistent_session(agent_with(log), agent_id="desk", store=tmp_path / "store") as session:
            assert (session.report.found, session.problems) == (False, ())
            asked = await session.run("Refund order 7")
            await session.memory.set("theme", "dark")
        assert asked.output.approvals
        async with persistent_session(agent_with(log), agent_id="desk", store=tmp_path / "store") as session:
            assert (session.report.found, session.report.messages) == (True, 2)
            assert await session.memory.get("theme") == "dark"
            waiting = await session.conversation.load("desk")
            answers = waiting.deferred_tool_requests.build_results(approve_all=True)
            result = await session.run(None, deferred_tool_results=answers)
            assert result.output == "Refunded 40."
            assert "Refund order 7" in str(result.all_messages()[0])
        assert log.read_text() == "refund\n"
        [listed] = [m for m in FilesystemStore(tmp_path / "store").sync.list() if "+" not in m.session_id]
        assert (listed.session_id, listed.title, listed.messages) == ("desk", "Refund order 7", 4)

    asyncio.run(main())


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = run_page("pydantic-ai")
    asyncio.run(page["main"]())
    assert asyncio.run(page["persistent"]())


class TestFaults(AdapterFaults):
    writer = "pydantic_ai"
