"""`persistent_session` leaves out what it cannot keep, names it, and keeps the rest."""

from __future__ import annotations

import copy
import json
import types
from collections import UserDict, UserList, deque
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    InvalidSnapshot,
    MemoryStore,
    StoreUnavailable,
)
from snapshot_plugin.manager.events import PartNotKept
from snapshot_plugin.manager.persistent import PersistentSession, persistent_session
from snapshot_plugin.testing import make_snapshot
from tests.manager.sessions import Diary

anyio_both = pytest.mark.anyio


class Agent:
    def __init__(self) -> None:
        self.history: list[Any] = []
        self.system_prompt = "You help."
        self.model: Any = "small"
        self.tools: Any = {"search": True}
        self.permissions: Any = {"allow": ["read"]}
        self.options: dict[str, Any] = {}


def kept(agent: object, store: Any, **options: Any) -> PersistentSession:
    return persistent_session(agent, agent_id="bot", store=store, **options)


@anyio_both
@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("tools", ["search"]),
        ("permissions", ["read"]),
        ("model", object()),
        ("system_prompt", 7),
        ("options", {"f": print}),
    ],
)
async def test_one_bad_part_is_left_out_and_named_and_the_rest_is_kept(
    part: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store, agent, diary = MemoryStore(), Agent(), Diary()
    setattr(agent, part, value)
    session = kept(agent, store)
    session.manager.events.subscribe(diary)
    async with session:
        agent.history.append({"role": "user", "content": "hello"})
    assert [problem.part for problem in session.problems] == [part]
    assert [event.part for event in diary.of(PartNotKept)] == [part]
    assert caplog.text.count(f"{part} is not kept") == 1
    fresh = Agent()
    async with kept(fresh, store):
        assert fresh.history == agent.history
        assert getattr(fresh, part) == getattr(Agent(), part)


@anyio_both
async def test_a_part_whose_owner_raises_is_left_out_and_named() -> None:
    class Broken:
        def get_state(self) -> Any:
            raise ZeroDivisionError("no state")

        def set_state(self, state: Any) -> None:
            """Nothing was kept."""

    agent = Agent()
    agent.permissions = Broken()
    async with kept(agent, MemoryStore()) as session:
        await session.save()
        assert [problem.part for problem in session.problems] == ["permissions"]


@anyio_both
@pytest.mark.parametrize("odd", [object(), "plain text", {"role": "user", "content": {1: 2}}, None])
async def test_unusual_message_loses_only_itself(odd: Any) -> None:
    store, agent = MemoryStore(), Agent()
    first, last = {"role": "user", "content": "first"}, {"role": "user", "content": "last"}
    async with kept(agent, store) as session:
        agent.history += [first, odd, last]
        await session.save()
        agent.history.append(first)
        await session.save()
        assert [problem.part for problem in session.problems] == ["history[1]"]
    fresh = Agent()
    async with kept(fresh, store):
        assert fresh.history == [first, last, first]


class ShowsCopy:
    """Its history is a property that returns a copy."""

    def __init__(self) -> None:
        self.own: list[Any] = []

    @property
    def history(self) -> Any:
        return list(self.own)


class TakesCopy(ShowsCopy):
    @property
    def history(self) -> Any:
        return list(self.own)

    @history.setter
    def history(self, given: Any) -> None:
        self.own = list(given)


@anyio_both
async def test_history_that_is_a_copy_is_set_or_named_as_not_restored() -> None:
    store, agent, told = MemoryStore(), TakesCopy(), [{"role": "user", "content": "hello"}]
    async with kept(agent, store):
        agent.own += told
    again = TakesCopy()
    async with kept(again, store) as session:
        assert (again.own, session.report.problems) == (told, ())
    async with kept(ShowsCopy(), store, agent_type="TakesCopy", save_on_exit=False) as session:
        assert [problem.part for problem in session.report.problems] == ["history"]


@anyio_both
@pytest.mark.parametrize(
    ("part", "empty", "full"),
    [
        ("history", deque(maxlen=3), deque([{"role": "user", "content": "hello"}], maxlen=3)),
        ("history", (), ({"role": "user", "content": "hello"},)),
        ("history", UserList(), UserList([{"role": "user", "content": "hello"}])),
        ("tags", set(), {"a", "b"}),
        ("options", UserDict(), UserDict({"a": 1})),
        ("options", None, None),
        ("tags", None, None),
    ],
)
async def test_a_part_comes_back_as_the_type_that_the_agent_uses(part: str, empty: Any, full: Any) -> None:
    store, agent, fresh = MemoryStore(), Agent(), Agent()
    setattr(agent, part, full)
    setattr(fresh, part, copy.copy(empty))
    async with kept(agent, store):
        """It is saved at the end."""
    async with kept(fresh, store) as session:
        assert session.report.problems == ()
    found = getattr(fresh, part)
    assert (type(found), found, getattr(found, "maxlen", None)) == (type(full), full, getattr(full, "maxlen", None))


@anyio_both
@pytest.mark.parametrize("odd", [{"a": {"role": "user", "content": "x"}}, "hello", None])
async def test_a_history_that_is_no_list_is_named_and_left_alone(odd: Any) -> None:
    store, agent, fresh = MemoryStore(), Agent(), Agent()
    agent.history = fresh.history = odd
    async with kept(agent, store) as session:
        await session.save()
        assert [problem.part for problem in session.problems] == ["history"]
    async with kept(fresh, store) as session:
        assert (fresh.history, session.report.problems) == (odd, ())


@anyio_both
async def test_credentials_in_options_and_memory_are_not_stored(tmp_path: Path) -> None:
    agent = Agent()
    agent.options = {"api_key": "sk-secret-1", "temperature": 1}
    async with kept(agent, tmp_path) as session:
        await session.memory.set("db_password", "hunter2-secret")
        await session.memory.set("login", {"user": "ada", "password": "hunter3-secret"})
        await session.memory.set("environment", {"os": "linux"})
        await session.save()
        assert await session.memory.get("db_password") == "hunter2-secret"
        assert {problem.part for problem in session.problems} == {"memory db_password", "memory login.password"}
    store = FilesystemStore(tmp_path)
    assert "secret" not in str((await store.load("bot")).raw())
    async with kept(Agent(), tmp_path) as session:
        assert await session.memory.get("login") == {"user": "ada"}
        assert await session.memory.get("environment") == {"os": "linux"}
        assert await session.memory.get("db_password", "absent") == "absent"


@pytest.mark.requirement("ONERING-STATE-AGENT-TYPE")
@anyio_both
async def test_state_of_another_agent_class_is_refused() -> None:
    class Other(Agent):
        """A kind of Agent: takes what an Agent kept."""

    class Stranger:
        history: list[Any] = []  # noqa: RUF012 — never changed

    store, agent = MemoryStore(), Agent()
    async with kept(agent, store):
        agent.history.append({"role": "user", "content": "hello"})
    with pytest.raises(InvalidInput, match="belongs to a Agent"):
        async with kept(Stranger(), store):
            """Not reached."""
    async with kept(Stranger(), store, agent_type="Agent") as session:
        assert session.report.found
    async with kept(Other(), store) as session:
        assert session.report.messages == 1


@anyio_both
async def test_agent_without_a_readable_history_gets_a_warning_on_entry(caplog: pytest.LogCaptureFixture) -> None:
    async with kept(types.SimpleNamespace(system_prompt="x"), MemoryStore()) as session:
        assert [problem.part for problem in session.problems] == ["history"]
        assert "no history that can be read" in caplog.text
        await session.save()
        assert [problem.part for problem in session.problems] == ["history"]


@anyio_both
@pytest.mark.parametrize("module", ["agents.agent", "pydantic_ai", "langgraph.graph"])
async def test_agent_with_a_missing_adapter_is_pointed_to_adapters(module: str) -> None:
    framework_agent = type("Agent", (), {"instructions": "be kind", "__module__": module})()
    async with kept(framework_agent, MemoryStore()) as session:
        assert "snapshot_plugin.frameworks" in session.problems[0].reason
        with pytest.raises(InvalidInput, match="not run by its session"):
            await session.run("hello")


@pytest.mark.parametrize("agent_id", ["bot+memory", "x+memory+memory", "bot+subgraphs"])
def test_agent_id_cannot_open_another_agents_memory(agent_id: str) -> None:
    with pytest.raises(InvalidSessionId, match="part of another session"):
        persistent_session(Agent(), agent_id=agent_id, store=MemoryStore())


@anyio_both
async def test_imported_memory_is_visible_and_adopted_by_the_agent() -> None:
    store = MemoryStore()
    entry = {"value": {"theme": "dark"}, "description": "likes", "createdAt": "2026-01-01T00:00:00.000000Z"}
    imported = make_snapshot(session_id="bot", provider_type="oneringai", memory={"preferences": entry, "plain": 7})
    await store.save(imported)
    for _ in range(2):
        async with kept(Agent(), store) as session:
            assert await session.memory.get("preferences") == {"theme": "dark"}
            assert await session.memory.get("plain") == 7
            assert (await session.memory.about("preferences"))["description"] == "likes"
            assert (await session.memory.about("preferences"))["created_at"] == entry["createdAt"]
            await session.memory.set("more", 1)


@anyio_both
async def test_entry_keeps_its_metadata() -> None:
    store = MemoryStore()
    async with kept(Agent(), store) as session:
        await session.memory.set("plan", "v1", description="the plan", scope="task", priority="high", pinned=True)
        await session.memory.set("plan", "v2", priority="low")
        await session.memory.set("plain", {"value": 1})
    async with kept(Agent(), store) as session:
        assert await session.memory.get("plan") == "v2"
        about = await session.memory.about("plan")
        assert {name: about[name] for name in ("description", "scope", "priority", "pinned")} == {
            "description": "the plan", "scope": "task", "priority": "low", "pinned": True,
        }  # fmt: skip
        assert about["created_at"] <= about["updated_at"]
        assert await session.memory.get("plain") == {"value": 1}
        assert await session.memory.about("plain") == await session.memory.about("absent") == {}


@anyio_both
async def test_stored_none_is_not_an_absent_entry() -> None:
    store = MemoryStore()
    async with kept(Agent(), store) as session:
        await session.memory.set("none", None)
    async with kept(Agent(), store) as session:
        assert await session.memory.get("none", "no") is None
        assert await session.memory.get("absent", "no") == "no"


@anyio_both
async def test_three_functions_suffice_as_a_store() -> None:
    table: dict[str, dict[str, Any]] = {}

    def functions() -> Any:
        return (lambda name, state: table.update({name: state}), table.get, table.pop)

    agent = Agent()
    async with kept(agent, functions()) as session:
        agent.history.append({"role": "user", "content": "hello"})
        await session.memory.set("k", 1)
    assert set(table) == {"bot"}
    json.dumps(table)
    fresh = Agent()
    async with kept(fresh, functions()) as session:
        assert fresh.history == agent.history
        assert await session.memory.get("k") == 1
        fresh.history.append({"role": "user", "content": "more"})
    assert len(table["bot"]["messages"]) == 2
    async with kept(Agent(), functions()) as session:
        assert await session.delete()
    assert table == {}


@anyio_both
@pytest.mark.parametrize("autosave", [None, 30.0])
async def test_last_save_that_failed_is_among_the_problems(autosave: float | None) -> None:
    refuses = True

    def save(*_: Any) -> None:
        if refuses:
            raise OSError("no space left")

    agent = Agent()
    session = kept(agent, (save, lambda _: None, lambda _: None), auto_save_interval=autosave)

    def named() -> list[str]:
        return [f"{problem.part}: {problem.reason}" for problem in session.problems]

    async with session:
        agent.history.append({"role": "user", "content": "hello"})
        with pytest.raises(StoreUnavailable):
            await session.save()
        refuses = False
        await session.save()
        assert not named()
        refuses = True
        agent.history.append({"role": "user", "content": "more"})
    assert named() == ["session: save failed for session bot: no space left"]


@anyio_both
@pytest.mark.parametrize("found", ["text", 5, [{}]])
async def test_functions_that_load_no_object_are_named(found: Any) -> None:
    with pytest.raises(InvalidSnapshot, match="session bot is a"):
        await kept(Agent(), (lambda *_: None, lambda _: found, lambda _: None)).__aenter__()


@pytest.mark.parametrize("place", range(3))
def test_async_functions_are_refused_as_a_store(place: int) -> None:
    async def later(*_: Any) -> None:
        """Never awaited."""

    functions: list[Any] = [lambda *_: None] * 3
    functions[place] = later
    with pytest.raises(InvalidInput, match="later is an async function"):
        persistent_session(Agent(), agent_id="bot", store=(functions[0], functions[1], functions[2]))


@anyio_both
async def test_save_refused_by_a_function_is_retried_with_the_next_save() -> None:
    table: dict[str, dict[str, Any]] = {}
    broken = True

    def save(name: str, state: dict[str, Any]) -> None:
        if broken:
            raise OSError("no connection")
        table[name] = state

    agent = Agent()
    async with kept(agent, (save, table.get, table.pop), auto_save_interval=None) as session:
        agent.history.append({"role": "user", "content": "hello"})
        with pytest.raises(StoreUnavailable, match="no connection"):
            await session.save()
        broken = False
        await session.save()
        assert len(table["bot"]["messages"]) == 1
