"""`SnapshotSessionService` beside ADK's own `InMemorySessionService`, shared by threads, and killed."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from integration.frameworks.faults import AdapterFaults
from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidInput, InvalidSnapshotVersion
from snapshot_plugin.frameworks.google_adk import SnapshotSessionService
from snapshot_plugin.manager.labels import label

PARTS = [
    types.Part(text="hello"),
    types.Part(text="hm", thought=True),
    types.Part(function_call=types.FunctionCall(id="c", name="f", args={"a": [1, None]})),
    types.Part(function_response=types.FunctionResponse(id="c", name="f", response={"r": 1.5})),
    types.Part(inline_data=types.Blob(data=b"\0\1", mime_type="image/png")),
    types.Part(function_call=types.FunctionCall(name="no_id", args={})),
]


def event(number: int, parts: list[types.Part], **state: Any) -> Event:
    content = types.Content(role="user", parts=parts) if parts else None
    delta = {name.replace("_", ":", 1): value for name, value in state.items()}
    actions = EventActions(state_delta=delta)
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=3, candidates_token_count=2)
    return Event(
        author="user" if number % 2 else "desk", id=f"e{number}", timestamp=1e9 + number, content=content,
        actions=actions, usage_metadata=usage if number % 3 == 0 else None,
    )  # fmt: skip


async def outcome(service: Any, step: tuple[Any, ...]) -> Any:
    what, user, name, number = step
    who = {"app_name": "shop", "user_id": user}
    try:
        if what == "create":
            made = await service.create_session(**who, session_id=name, state={"k": number, "user:u": number})
            return made.model_dump(exclude={"last_update_time"})
        if what == "append":
            session = await service.get_session(**who, session_id=name)
            if session is None:
                return None
            parts = [PARTS[number % len(PARTS)]][: number % 5]
            new = event(number, parts, k=number, app_a=number, temp_t=1)
            await service.append_event(session, new)
            return session.model_dump(exclude={"last_update_time"})
        if what == "delete":
            return await service.delete_session(**who, session_id=name)
        config = GetSessionConfig(
            num_recent_events=number % 4, after_timestamp=1e9 + number if number % 2 else None
        )
        found = await service.get_session(**who, session_id=name, config=config)
        return found and found.model_dump(exclude={"last_update_time"})
    except (AlreadyExistsError, SessionNotFoundError) as error:
        return type(error).__name__


async def contents(service: Any) -> Any:
    listed = [await service.list_sessions(app_name="shop", user_id=user) for user in ("ada", "bob", None)]
    kept = [
        (await service.get_session(app_name="shop", user_id=each.user_id, session_id=each.id)).events
        for each in listed[2].sessions
    ]
    dumps = [
        sorted(each.model_dump_json(exclude={"last_update_time"}) for each in found.sessions) for found in listed
    ]
    users = [await service.get_user_state(app_name="shop", user_id=user) for user in ("ada", "bob")]
    return dumps, sorted(repr(each) for each in kept), users


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_any_sequence_of_calls_behaves_as_in_memory(tmp_path: Path, seed: int, key: str | None) -> None:
    chance = random.Random(seed)
    kinds = ["create", "create", *["append"] * 6, "get", "get", "delete"]

    async def main() -> None:
        ours, theirs = SnapshotSessionService(tmp_path, key), InMemorySessionService()
        for number in chance.sample(range(60), 25):
            step = (chance.choice(kinds), chance.choice(["ada", "bob"]), chance.choice("xy"), number)
            assert await outcome(ours, step) == await outcome(theirs, step), step
        reopened = SnapshotSessionService(FilesystemStore(tmp_path, key=key))
        assert await contents(reopened) == await contents(theirs)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [SnapshotSessionService, SqliteSessionService])
def test_a_stale_writer_is_refused_as_by_adk_and_changes_nothing(tmp_path: Path, kind: Any) -> None:
    async def main() -> None:
        service, other = kind(str(tmp_path / "store")), kind(str(tmp_path / "store"))
        who = {"app_name": "shop", "user_id": "ada", "session_id": "s"}
        first = await service.create_session(**who)
        await service.append_event(first, event(1, [], k=1))
        second, listed = await other.get_session(**who), (await other.list_sessions(app_name="shop")).sessions[0]
        await service.append_event(first, event(2, [], k=2))
        for stale in (second, listed):
            with pytest.raises(StaleSessionError):
                await other.append_event(stale, event(3, [], k=3, user_u=3, app_a=3))
        kept = await service.get_session(**who)
        assert [each.id for each in kept.events] == ["e1", "e2"]
        assert kept.state == {"k": 2}
        await service.append_event(first, event(4, []))
        fresh = await other.get_session(**who, config=GetSessionConfig(num_recent_events=1))
        await other.append_event(fresh, event(5, []))
        assert [each.id for each in (await service.get_session(**who)).events] == ["e1", "e2", "e4", "e5"]

    asyncio.run(main())


def test_appends_at_once_through_one_session_object_and_renames_are_not_stale(tmp_path: Path) -> None:
    async def main() -> None:
        service = SnapshotSessionService(tmp_path)
        session = await service.create_session(app_name="shop", user_id="ada", session_id="s")
        await asyncio.gather(*(service.append_event(session, event(number, [])) for number in range(1, 20)))
        store = FilesystemStore(tmp_path)
        [meta] = [each for each in await store.list() if each.messages]
        await label(store, meta.session_id, lambda _: {"title": "Renamed"})
        await service.append_event(session, event(20, []))
        copied = type(session).model_validate_json(session.model_dump_json())  # as a runner elsewhere gets it
        await service.append_event(copied, event(21, []))
        found = await service.get_session(app_name="shop", user_id="ada", session_id="s")
        assert found
        assert {each.id for each in found.events} == {f"e{number}" for number in range(1, 22)}

    asyncio.run(main())


def test_an_event_is_durable_and_kept_once(tmp_path: Path) -> None:
    async def main() -> None:
        service = SnapshotSessionService(tmp_path)
        session = await service.create_session(app_name="shop", user_id="ada", session_id="s")
        new = event(3, PARTS[:4], app_count=1).model_copy(update={"model_version": "tiny-1"})
        for _ in range(2):
            await service.append_event(session, new)
        again = SnapshotSessionService(FilesystemStore(tmp_path))
        found = await again.get_session(app_name="shop", user_id="ada", session_id="s")
        assert found
        assert found.events == session.events == [new]
        with pytest.raises(AlreadyExistsError):
            await again.create_session(app_name="shop", user_id="ada", session_id="s")
        [listed] = [meta for meta in FilesystemStore(tmp_path).sync.list() if meta.messages]
        assert FilesystemStore(tmp_path).sync.load(listed.session_id).config.model == "tiny-1"

    asyncio.run(main())


def test_threads_with_loops_of_their_own_lose_no_event(tmp_path: Path) -> None:
    who: dict[str, Any] = {"app_name": "shop", "user_id": "ada", "session_id": "s"}
    asyncio.run(SnapshotSessionService(tmp_path).create_session(**who))

    def work(name: int) -> None:
        async def main() -> None:
            service = SnapshotSessionService(tmp_path if name % 2 else FilesystemStore(tmp_path))
            session, waiting = await service.get_session(**who), list(range(5))
            while waiting:
                new = event(10 * name + waiting[0], PARTS[:1], user_last=waiting[0])
                try:
                    await service.append_event(session, new)
                except StaleSessionError:
                    session = await service.get_session(**who)
                else:
                    del waiting[0]

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = asyncio.run(SnapshotSessionService(tmp_path).get_session(**who))
    assert found
    assert sorted(each.id for each in found.events) == sorted(
        f"e{10 * name + number}" for name in range(4) for number in range(5)
    )


def test_an_object_in_the_state_is_kept_as_text_as_by_sqlite(tmp_path: Path) -> None:
    async def states(service: Any) -> list[dict[str, Any]]:
        odd = Path.cwd  # a bound method, as tools are
        who = {"app_name": "shop", "user_id": "ada"}
        session = await service.create_session(**who, session_id="s", state={"tool": odd, "user:n": 2})
        delta = EventActions(state_delta={"app:tool": odd, "n": 1})
        await service.append_event(session, Event(author="user", actions=delta))
        found = await service.get_session(**who, session_id="s")
        return [found.state, *(event.actions.state_delta for event in found.events)]

    async def main() -> None:
        ours = await states(SnapshotSessionService(tmp_path / "ours"))
        assert ours == await states(SqliteSessionService(str(tmp_path / "theirs.db")))
        assert "method" in ours[0]["tool"]

    asyncio.run(main())


def test_bytes_in_the_state_come_back_as_bytes(tmp_path: Path) -> None:
    async def run() -> None:
        state = {"own": b"\xff\0", "app:shared": {"list": [b"abc", (b"x", 1)], "text": "abc"}, "keys": {1: b"y"}}
        session = await SnapshotSessionService(tmp_path).create_session(app_name="a", user_id="u", state=state)
        await SnapshotSessionService(tmp_path).append_event(session, event(1, PARTS[:1], user_later=b"\xfe"))
        found = await SnapshotSessionService(FilesystemStore(tmp_path)).get_session(
            app_name="a", user_id="u", session_id=session.id
        )
        assert found is not None
        assert found.state == {
            "own": b"\xff\0",
            "app:shared": {"list": [b"abc", ["x", 1]], "text": "abc"},  # as SQLite's service: what JSON makes of it
            "keys": {"1": "y"},
            "user:later": b"\xfe",
        }

    asyncio.run(run())


def test_a_name_in_the_state_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        service = SnapshotSessionService(tmp_path)
        for state in ({"\ud800": 1}, {"user:\ud800": 1}, {"a": {"\ud800": (1,)}}, {"a": {1: b"\xff"}}):
            with pytest.raises(InvalidInput, match="state"):
                await service.create_session(app_name="a", user_id="u", state=state)
        session = await service.create_session(app_name="a", user_id="u")
        broken = event(1, PARTS[:1], **{"\ud800": 1, "user_x": 1})
        with pytest.raises(InvalidInput, match="state"):
            await service.append_event(session, broken)
        found = await service.get_session(app_name="a", user_id="u", session_id=session.id)
        assert found is not None
        assert (found.events, found.state) == ([], {})
        assert len((await service.list_sessions(app_name="a")).sessions) == 1

    asyncio.run(run())


def test_nan_in_the_state_comes_back_until_it_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        service, who = SnapshotSessionService(tmp_path), {"app_name": "shop", "user_id": "ada"}
        state = {"v": float("nan"), "": 1, "user:w": [float("inf")]}
        session = await service.create_session(**who, session_id="s", state=state)
        assert repr(session.state) == "{'v': nan, '': 1, 'user:w': [inf]}"
        [listed] = (await SnapshotSessionService(FilesystemStore(tmp_path)).list_sessions(**who)).sessions
        assert repr(listed.state) == repr(session.state)
        await service.append_event(session, Event(author="user", actions=EventActions(state_delta={"v": "NaN"})))
        found = await service.get_session(**who, session_id="s")
        assert found
        assert found.state == {"v": "NaN", "": 1, "user:w": [float("inf")]}

    asyncio.run(main())


def test_a_session_of_a_newer_adapter_is_refused_and_people_see_others(tmp_path: Path) -> None:
    async def main() -> None:
        service = SnapshotSessionService(tmp_path)
        session = await service.create_session(app_name="shop", user_id="ada", session_id="s", state={"app:x": 1})
        await service.append_event(session, event(3, PARTS[:1]))
        store = FilesystemStore(tmp_path).sync
        [meta] = [each for each in store.list() if not each.session_id.endswith("+subgraphs")]
        assert (meta.title, meta.turns, meta.tokens) == ("hello", 1, 5)
        found = store.load(meta.session_id)
        store.save(found.evolve(plugins={**found.plugins, "google-adk": {"format": 2}}))
        with pytest.raises(InvalidSnapshotVersion, match="newer google-adk adapter"):
            await service.get_session(app_name="shop", user_id="ada", session_id="s")

    asyncio.run(main())


def test_a_killed_agent_is_sent_the_earlier_conversation(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.google_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    first = agent("first")
    assert first.returncode == -9, first.stderr
    second = agent("second")
    assert second.stdout.strip() == "told: Plan Oslo | told: Plan Oslo | die | And Bergen", second.stderr


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(run_page("google-adk")["main"]())


class TestFaults(AdapterFaults):
    writer = "google_adk"
