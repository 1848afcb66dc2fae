"""`SnapshotSession` beside the SDK's own `SQLiteSession`, shared by threads, and killed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import Runner
from agents.extensions.memory.encrypt_session import EncryptedSession
from agents.memory import Session, SessionSettings, SQLiteSession
from agents.memory import session as sdk_session

from integration.frameworks.faults import AdapterFaults
from integration.frameworks.openai_agent import agent_with
from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore, persistent_session
from snapshot_plugin.errors import InvalidInput, InvalidSnapshotVersion, SessionLocked
from snapshot_plugin.frameworks.openai_agents import SnapshotSession
from snapshot_plugin.frameworks.sessions import new_session

ITEMS: list[Any] = [
    {"role": "user", "content": "hello"},
    {"role": "developer", "content": "be brief", "type": "message"},
    {"role": "user", "content": [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "x"}]},
    {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}', "id": "fc1"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "A"},
    {"type": "reasoning", "id": "r2", "summary": []},
    {"type": "web_search_call", "id": "w1", "status": "completed", "action": {"type": "search", "query": "q"}},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "t"}]},
    {"role": "user", "content": []},
    {"role": "user", "content": "", "tuple": (1, 2), "nested": {"type": "raw", "raw": {"rest": None}}},
    {"role": "user", "content": "odd", "infinite": float("inf"), "tuple": (float("-inf"),)},
]  # fmt: skip


def pair(tmp_path: Path, **settings: Any) -> tuple[SnapshotSession, SQLiteSession]:
    return SnapshotSession("s", tmp_path / "ours", **settings), SQLiteSession(
        "s", tmp_path / "theirs.db", **settings
    )


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: str(item.get("type", item.get("role"))))
def test_an_item_round_trips_as_through_sqlite(tmp_path: Path, item: Any) -> None:
    async def main() -> None:
        ours, theirs = pair(tmp_path)
        for session in (ours, theirs):
            await session.add_items([item])
        reopened = SnapshotSession("s", FilesystemStore(tmp_path / "ours"))
        assert await reopened.get_items() == await ours.get_items() == await theirs.get_items()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(8))
def test_any_sequence_of_calls_behaves_as_sqlite(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def step(session: Any, what: int, items: list[Any], limit: int) -> Any:
        if what < 5:
            return await session.add_items(items)
        if what == 5:
            return await session.pop_item()
        if what == 6:
            return await session.get_items(limit)
        return await session.clear_session() if limit == 0 else await session.get_items()

    async def main() -> None:
        ours, theirs = pair(tmp_path, session_settings=SessionSettings(limit=chance.choice([None, 3])))
        for _ in range(40):
            what, limit = chance.randrange(8), chance.randrange(-1, 6)
            items = chance.choices(ITEMS, k=chance.randrange(3))
            assert await step(ours, what, items, limit) == await step(theirs, what, items, limit)
        assert await ours.get_items(1000) == await theirs.get_items(1000)

    asyncio.run(main())


@pytest.mark.parametrize("key", ["right", "wrong"])
def test_items_of_an_encrypted_session_cannot_be_popped(tmp_path: Path, key: str) -> None:
    """The SDK pops until an item opens: with a wrong key, it would empty any session but a `SQLiteSession`."""

    async def main() -> None:
        inner, said = SnapshotSession("s", tmp_path), {"role": "user", "content": "hello"}
        await EncryptedSession("s", inner, "right").add_items([said, said])
        with pytest.raises(InvalidInput, match="EncryptedSession"):
            await EncryptedSession("s", inner, key).pop_item()
        assert await EncryptedSession("s", inner, "right").get_items() == [said, said]
        await inner.add_items([said])
        assert await inner.pop_item() == said

    asyncio.run(main())


def test_it_is_a_session_of_the_sdk(tmp_path: Path) -> None:
    session = SnapshotSession("s", tmp_path, session_settings={"limit": 2})
    assert isinstance(session, Session)
    assert session.session_settings == SessionSettings(limit=2)


def test_five_threads_with_loops_of_their_own_lose_nothing(tmp_path: Path) -> None:
    shared, failures = SnapshotSession("s", tmp_path), []

    def work(name: int) -> None:
        async def main() -> None:
            session = shared if name % 2 else SnapshotSession("s", FilesystemStore(tmp_path))
            for number in range(10):
                await session.add_items([{"role": "user", "content": f"{name}-{number}"}])

        try:
            asyncio.run(main())
        except Exception as error:  # noqa: BLE001 — shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = [item["content"] for item in asyncio.run(shared.get_items())]
    assert failures == []
    assert sorted(found) == sorted(f"{name}-{number}" for name in range(5) for number in range(10))
    for name in range(5):
        assert [each for each in found if each.startswith(f"{name}-")] == [
            f"{name}-{number}" for number in range(10)
        ]


@pytest.mark.skipif(not hasattr(sdk_session, "_CompactionSnapshot"), reason="this release does not ask for it")
def test_compaction_replaces_the_end_at_once_or_not_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        session = SnapshotSession("s", tmp_path)
        await session.add_items([{"role": "user", "content": str(number)} for number in range(6)])
        read_snapshot: Any = getattr(session, "_get_compaction_snapshot")  # noqa: B009 — as the SDK does
        snapshot = await read_snapshot(3)
        assert [item["content"] for item in snapshot.items] == ["3", "4", "5"]
        assert not snapshot.complete
        await session.add_items([{"role": "user", "content": "late"}])
        assert not await snapshot.replace_suffix(1, [{"role": "user", "content": "summary"}])
        snapshot = await read_snapshot(3)
        assert await snapshot.replace_suffix(1, [{"role": "user", "content": "summary"}])
        assert [item["content"] for item in await session.get_items()] == ["0", "1", "2", "3", "4", "summary"]

    asyncio.run(main())


@pytest.mark.skipif(not hasattr(sdk_session, "_CompactionSnapshot"), reason="this release does not ask for it")
def test_compaction_goes_through_the_methods_of_a_subclass(tmp_path: Path) -> None:
    class Own(SnapshotSession):
        """May change items on their way in and out."""

    for session in (Own("s", tmp_path), type("Theirs", (SQLiteSession,), {})("s", tmp_path / "theirs.db")):
        asyncio.run(session.add_items(ITEMS[:1]))
        assert asyncio.run(getattr(session, "_get_compaction_snapshot")(3)) is None  # noqa: B009 — as the SDK does


def test_an_item_that_is_not_json_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        for session in pair(tmp_path):
            await session.add_items(ITEMS[:1])
            with pytest.raises(TypeError):
                await session.add_items([{"role": "user", "content": "ok"}, {"role": "user", "content": object()}])
            assert await session.get_items() == ITEMS[:1]

    asyncio.run(main())


def test_nan_is_stored_as_by_sqlite_and_people_see_the_words(tmp_path: Path) -> None:
    async def main() -> None:
        for session in pair(tmp_path):
            await session.add_items([{"role": "user", "content": "hi", "score": float("nan")}])
            [found] = await session.get_items()
            assert (found.pop("content"), repr(found.pop("score")), found) == ("hi", "nan", {"role": "user"})

    asyncio.run(main())
    store = FilesystemStore(tmp_path / "ours").sync
    assert store.list()[0].title == store.load("s").messages[0].text == "hi"


def test_a_closed_session_refuses_calls(tmp_path: Path) -> None:
    session = SnapshotSession("s", tmp_path)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        asyncio.run(session.add_items([]))


def test_a_session_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    session = SnapshotSession("s", tmp_path)
    asyncio.run(session.add_items(ITEMS[:1]))
    store = FilesystemStore(tmp_path).sync
    found = store.load("s")
    store.save(found.evolve(plugins={**found.plugins, "openai-agents": 2}))
    for call in (session.get_items(), session.add_items(ITEMS[:1])):
        with pytest.raises(InvalidSnapshotVersion, match="newer openai-agents adapter"):
            asyncio.run(call)


def test_an_approval_asked_before_a_kill_is_answered_after_it(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.openai_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    asked = agent("ask")
    assert asked.returncode == -9, asked.stderr
    approved = agent("approve")
    assert approved.stdout.strip() == "Refunded 40.", approved.stderr
    assert (tmp_path / "store.log").read_text() == "refund\n"
    items = asyncio.run(SnapshotSession("desk-7", tmp_path / "store").get_items())
    assert [item.get("type", "message") for item in items] == [
        "message", "function_call", "function_call_output", "message",
    ]  # fmt: skip


def test_a_run_that_waits_keeps_the_context_of_its_caller(tmp_path: Path) -> None:
    @dataclass
    class Context:
        user: str

    async def main() -> None:
        agent, session = agent_with(tmp_path / "log"), SnapshotSession("s", tmp_path / "store")
        asked = await Runner.run(agent, "Refund order 7", session=session, context=Context("ada"))
        await session.save_run_state(asked.to_state(), context_serializer=asdict, strict_context=True)
        state = await session.load_run_state(agent, context_deserializer=lambda found: Context(**found))
        assert state
        for item in state.get_interruptions():
            state.approve(item)
        done = await Runner.run(agent, state, session=session)
        assert (done.final_output, done.context_wrapper.context) == ("Refunded 40.", Context("ada"))

    asyncio.run(main())


def test_tokens_of_a_run_are_counted_once(tmp_path: Path) -> None:
    def tokens() -> tuple[int, int, int]:
        used = FilesystemStore(tmp_path / "store").sync.load("s").metrics
        return used.input_tokens, used.output_tokens, used.total_tokens

    async def main() -> None:
        agent, session = agent_with(tmp_path / "log"), SnapshotSession("s", tmp_path / "store")
        state = (await Runner.run(agent, "Refund order 7", session=session)).to_state()
        assert tokens() == (10, 2, 12)
        await session.save_run_state(state)
        again = SnapshotSession("s", tmp_path / "store")
        resumed = await again.load_run_state(agent)
        assert resumed is not None
        for item in resumed.get_interruptions():
            resumed.approve(item)
        await Runner.run(agent, resumed, session=again)
        assert tokens() == (20, 4, 24)
        await Runner.run(agent, "And order 8", session=again)
        assert tokens() == (30, 6, 36)
        assert await session.get_items() == await SnapshotSession("s", tmp_path / "store").get_items()

    asyncio.run(main())


def test_an_agent_is_persistent_in_one_line(tmp_path: Path) -> None:
    async def main() -> None:
        log, bookmarks = tmp_path / "log", {"page": 7}
        async with persistent_session(agent_with(log), agent_id="desk", store=tmp_path / "store") as session:
            assert (session.report.found, session.problems) == (False, ())
            session.register_plugin("bookmarks", lambda: bookmarks, bookmarks.update)
            result = await session.run("Refund order 7")
            assert result.interruptions
            await session.memory.set("theme", "dark")
        again, found = agent_with(log), dict[str, int]()
        async with persistent_session(again, agent_id="desk", store=FilesystemStore(tmp_path / "store")) as session:
            session.register_plugin("bookmarks", lambda: found, found.update)
            assert (session.report.found, session.report.messages, found) == (True, 2, bookmarks)
            assert await session.memory.get("theme") == "dark"
            state = await session.conversation.load_run_state(again)
            for item in state.get_interruptions():
                state.approve(item)
            assert (await session.run(state)).final_output == "Refunded 40."
            assert await session.conversation.load_run_state(again) is None
            assert session.problems == session.report.problems == ()
        assert log.read_text() == "refund\n"
        [listed] = [m for m in FilesystemStore(tmp_path / "store").sync.list() if "+" not in m.session_id]
        assert (listed.session_id, listed.title, listed.messages) == ("desk", "Refund order 7", 4)

    asyncio.run(main())


def test_a_persistent_agent_is_durable_while_it_runs_and_kept_apart(tmp_path: Path) -> None:
    async def main() -> None:
        agent = agent_with(tmp_path / "log")
        async with persistent_session(agent, agent_id="desk", store=tmp_path / "store") as session:
            await session.run("Refund order 7")
            other = await SnapshotSession("desk", FilesystemStore(tmp_path / "store")).get_items()
            assert len(other) == 2
            with pytest.raises(SessionLocked):
                async with persistent_session(agent, agent_id="desk", store=tmp_path / "store"):
                    """Not reached."""
            assert await session.delete()
            assert not await session.exists()
        store = FilesystemStore(tmp_path / "store")
        store.sync.save(new_session("desk", "pydantic-ai"))
        with pytest.raises(InvalidInput, match="belongs to a pydantic-ai"):
            async with persistent_session(agent, agent_id="desk", store=store):
                """Not reached."""
        with pytest.raises(InvalidInput, match="belongs to pydantic-ai"):
            await SnapshotSession("desk", store).get_items()

    asyncio.run(main())


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page, agent = run_page("openai-agents"), agent_with(tmp_path / "log")
    asyncio.run(page["main"]())
    asyncio.run(page["ask"](agent, SnapshotSession("desk-7", "sessions")))
    assert asyncio.run(page["approve"](agent, SnapshotSession("desk-7", "sessions"))) == "Refunded 40."
    assert asyncio.run(page["persistent"](agent)).interruptions


class TestFaults(AdapterFaults):
    writer = "openai_agents"
