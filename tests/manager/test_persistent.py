"""The one line that makes an agent remember."""

from __future__ import annotations

import json
import logging
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapshot_plugin import (
    FilesystemStore,
    InvalidInput,
    InvalidSessionId,
    InvalidSnapshot,
    KeyMissing,
    MemoryStore,
    SessionLocked,
    SnapshotConfig,
    StoreUnavailable,
)
from snapshot_plugin.manager.context import AgentContext, AgentReader
from snapshot_plugin.manager.events import SnapshotCreated, SnapshotFailed, SnapshotSkipped
from snapshot_plugin.manager.opening import open_configured_store, open_place
from snapshot_plugin.manager.persistent import PersistentSession, persistent_session
from snapshot_plugin.model import Message
from snapshot_plugin.testing import Fault, FaultyStore, FixedClock, every, make_snapshot
from tests.manager.sessions import PATIENCE, Diary
from tests.tries import tries

anyio_both = pytest.mark.anyio
_MANUAL: dict[str, Any] = {"auto_save_interval": None, "save_on_exit": False, "load_on_enter": False}


class Permissions:
    """An owner of state: asked, and told, through its own methods."""

    def __init__(self) -> None:
        self.approved: set[str] = set()

    def get_state(self) -> dict[str, Any]:
        return {"approvals": sorted(self.approved), "allowlist": ["read"], "blocklist": ["rm"]}

    def set_state(self, state: dict[str, Any]) -> None:
        self.approved = set(state["approvals"])


class Agent:
    """An agent as people write them, that knows nothing of us."""

    def __init__(self) -> None:
        self.history: list[dict[str, Any]] = []
        self.system_prompt = "You help."
        self.instructions: str | None = None
        self.tools: dict[str, Any] = {"enabled": {"search": True}}
        self.permissions = Permissions()
        self.model = "small"
        self.client = object()

    def chat(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})
        self.history.append({"role": "assistant", "content": text.upper()})


def _session(agent: object, store: Any, **options: Any) -> PersistentSession:
    return persistent_session(agent, agent_id="my-assistant", store=store, **options)


@pytest.mark.requirement(
    "ONERING-GOAL-FULL",
    "ONERING-GOAL-RECOVERY",
    "ONERING-USAGE-FIRST",
    "ONERING-USAGE-SECOND",
    "ONERING-OPTION-SHORT",
    "ONERING-OPTION-ENTER",
    "ONERING-OPTION-EXIT",
    "ONERING-PLACE-SESSION",
    "ONERING-STORAGE-LOAD",
)
@anyio_both
async def test_the_second_run_has_the_full_context_of_the_first(tmp_path: Path) -> None:
    first = Agent()
    async with _session(first, tmp_path) as session:
        assert not session.report.found
        first.chat("hello")
        first.instructions = "Be brief."
        first.tools["enabled"]["shell"] = False
        first.permissions.approved.add("shell")
        first.model = "large"
        session.register_plugin("notes", lambda: {"open": [1]}, print)
        await session.memory.set("theme", "dark")
    notes: list[Any] = []
    second = Agent()
    history, tools = second.history, second.tools
    async with _session(second, tmp_path) as session:
        assert session.report.found
        assert session.report.messages == 2
        assert session.report.problems == ()
        session.register_plugin("notes", lambda: notes[0], notes.append)
        assert await session.memory.get("theme") == "dark"
    assert notes == [{"open": [1]}]
    assert second.history == first.history
    assert second.history is history
    assert second.tools is tools
    assert second.tools == {"enabled": {"search": True, "shell": False}}
    assert (second.instructions, second.model) == ("Be brief.", "large")
    assert second.permissions.approved == {"shell"}


@pytest.mark.requirement("ONERING-USAGE-ADVANCED", "ONERING-OPTION-LONG", "ONERING-OPTION-INTERVAL")
@anyio_both
async def test_changed_session_is_saved_automatically_and_an_unchanged_one_is_not() -> None:
    store, agent, diary = MemoryStore(), Agent(), Diary()
    session = _session(agent, store, auto_save_interval=0.01)
    session.manager.events.subscribe(diary)
    async with session:
        agent.chat("one")
        await diary.wait_for(SnapshotSkipped, 2)
        agent.chat("two")
        await diary.wait_for(SnapshotCreated, 2)
    assert [event.seq for event in diary.of(SnapshotCreated)] == [1, 2]
    assert len(await store.history("my-assistant")) == 2
    async with _session(Agent(), store):
        pass
    assert len(await store.history("my-assistant")) == 2


@pytest.mark.requirement("ONERING-OPTION-EXIT")
@anyio_both
@pytest.mark.parametrize("interval", [None, 0, 30])
async def test_leaving_by_an_error_saves(interval: float | None) -> None:
    store, agent = MemoryStore(), Agent()

    async def crash() -> None:
        async with _session(agent, store, auto_save_interval=interval):
            agent.chat("last words")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await crash()
    assert len((await store.load("my-assistant")).messages) == 2


@anyio_both
async def test_leaving_by_cancellation_saves() -> None:
    store, agent = MemoryStore(), Agent()
    with anyio.move_on_after(PATIENCE) as scope:
        async with _session(agent, store, auto_save_interval=None):
            agent.chat("last words")
            scope.cancel()
            await anyio.sleep_forever()
    assert len((await store.load("my-assistant")).messages) == 2


@pytest.mark.requirement("ONERING-OPTION-INTERVAL-OFF")
@anyio_both
@pytest.mark.parametrize("interval", [None, 0])
async def test_without_an_interval_nothing_is_saved_automatically(interval: float | None) -> None:
    """While a session beside it, which has one, is saved and then found unchanged several times."""
    store, agent, diary = MemoryStore(), Agent(), Diary()
    beside = persistent_session(Agent(), agent_id="beside", store=store, auto_save_interval=0.01)
    beside.manager.events.subscribe(diary)
    async with _session(agent, store, auto_save_interval=interval, save_on_exit=False) as session, beside:
        agent.chat("unsaved")
        await diary.wait_for(SnapshotSkipped, 5)
        assert not await session.exists()
        assert (session.manager.live, beside.manager.live) == ((), ("beside",))
    assert [meta.session_id for meta in await store.list()] == ["beside"]


@pytest.mark.requirement("ONERING-USAGE-MANUAL", "ONERING-OPTION-ENTER", "ONERING-OPTION-EXIT")
@anyio_both
async def test_with_every_option_off_only_explicit_calls_act(tmp_path: Path) -> None:
    clock = FixedClock()
    store, agent = FilesystemStore(tmp_path, clock=clock), Agent()
    async with store:
        async with _session(agent, store, **_MANUAL) as session:
            agent.chat("unsaved")
            assert not await session.exists()
            assert await session.last_modified() is None
            assert not (await session.load()).found
            assert len(agent.history) == 2
        assert await store.list() == []
        async with _session(agent, store, **_MANUAL) as session:
            await session.save()
        late = Agent()
        async with _session(late, store, **_MANUAL) as session:
            assert (session.report.found, late.history) == (False, [])
            assert (await session.load()).found
        assert late.history == agent.history


@pytest.mark.requirement(
    "ONERING-USAGE-MANUAL",
    "ONERING-STORAGE-EXISTS",
    "ONERING-STORAGE-DELETE",
    "ONERING-STORAGE-PATH",
    "ONERING-STORAGE-MODIFIED",
    "ONERING-STORAGE-LOAD",
    "ONERING-GOAL-PLACE",
)
@anyio_both
async def test_load_save_and_delete_work_without_entering_the_block(tmp_path: Path) -> None:
    clock = FixedClock()
    agent = Agent()
    async with FilesystemStore(tmp_path, clock=clock) as store:
        session = _session(agent, store, clock=clock, **_MANUAL)
        agent.chat("one")
        assert (await session.save()).seq == 1
        assert not (await session.save()).written
        assert await session.exists()
        assert await session.last_modified() == clock()
        assert session.path == str(tmp_path / "sessions" / "my-assistant")
        clock.advance(timedelta(minutes=1))
        agent.chat("forgotten")
        report = await session.load()
        assert (report.found, report.seq, report.messages, report.age) == (True, 1, 2, 60.0)
        assert len(agent.history) == 2
        await session.memory.set("note", 1)
        await session.save()
        assert await session.delete()
        assert not await session.delete()
        assert not await session.exists()
        assert await store.list() == []
        assert (await session.save()).seq >= 1
        await session.aclose()


@anyio_both
async def test_session_deleted_inside_the_block_stays_deleted(tmp_path: Path) -> None:
    agent = Agent()
    async with FilesystemStore(tmp_path) as store:
        async with _session(agent, store) as session:
            agent.chat("one")
            await session.save()
            assert await session.delete()
            agent.chat("two")
        assert await store.list() == []
        assert len(await store.trash()) == 1


@pytest.mark.requirement("MANAGER-PERSIST-PLUGIN", "ONERING-PLACE-PLUGINS")
@anyio_both
async def test_plugins_get_their_state_back_and_a_failing_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    notes: dict[str, Any] = {"open": [1, 2]}
    async with _session(Agent(), store) as session:
        session.register_plugin("notes", lambda: notes, notes.update)
        session.register_plugin("clumsy", lambda: "fragile", print)
        session.register_plugin("gone", lambda: "kept", print)

    def drop(_state: Any) -> None:
        raise ZeroDivisionError

    restored: dict[str, Any] = {}
    late: list[Any] = []
    session = _session(Agent(), store)
    session.register_plugin("notes", lambda: restored, restored.update)
    session.register_plugin("clumsy", lambda: 1 / 0, drop)
    with caplog.at_level(logging.WARNING):
        async with session:
            assert [problem.part for problem in session.report.problems] == ["plugin clumsy"]
            session.register_plugin("late", lambda: None, late.append)
            session.register_plugin("second", lambda: None, drop)
            assert restored == notes
            assert restored["open"] is not notes["open"]
            await session.save()
            assert [problem.part for problem in session.problems] == ["plugin clumsy"]
    assert late == []
    kept = (await store.load("my-assistant")).plugins
    assert (kept["gone"], kept["clumsy"], kept["notes"]) == ("kept", "fragile", {"open": [1, 2]})
    assert "clumsy" in caplog.text


@anyio_both
async def test_plugin_registered_after_the_load_gets_its_state_immediately() -> None:
    store, state = MemoryStore(), {"page": 7}
    seen: list[Any] = []
    async with _session(Agent(), store) as session:
        session.register_plugin("reader", lambda: state, print)
    async with _session(Agent(), store) as session:
        session.register_plugin("reader", lambda: state, seen.append)
        session.register_plugin("broken", lambda: 0, print)
    assert seen == [{"page": 7}]


def test_a_plugin_is_registered_once_with_two_plain_functions() -> None:
    session = _session(Agent(), MemoryStore())

    async def later() -> None:
        """Not now."""

    session.register_plugin("one", dict, print)
    for name, get_state in (("one", dict), ("", dict), ("two", later)):
        with pytest.raises(InvalidInput):
            session.register_plugin(name, get_state, print)


@pytest.mark.requirement(
    "MANAGER-PERSIST-LAZY",
    "ONERING-LAYER-LAZY",
    "ONERING-PLACE-MEMORY",
    "ONERING-STATE-MEMORY-STATS",
    "ONERING-STORAGE-EXISTS",
)
@anyio_both
async def test_memory_entries_are_a_section_of_the_session_and_each_can_be_read_alone() -> None:
    store = FaultyStore(MemoryStore())
    async with _session(Agent(), store) as session:
        await session.memory.set("prefs", {"theme": "dark"})
        await session.memory.set("big", "x" * 1000)
        prefs = await session.memory.get("prefs")
        prefs["theme"] = "light"
        assert await session.memory.get("prefs") == {"theme": "dark"}
    store.calls.clear()
    assert await _session(Agent(), store).exists()
    assert {call.method for call in store.calls} == {"history"}, "nothing was loaded"
    assert [meta.session_id for meta in await store.list()] == ["my-assistant"]
    assert await store.section("my-assistant", "memory", "prefs") == {"theme": "dark"}
    async with _session(Agent(), store) as session:
        assert (session.memory.entries, session.memory.size_bytes) == (2, 1002 + 17)
        assert await session.memory.get("nothing", "default") == "default"
        assert await session.memory.keys() == ("big", "prefs")
        assert not (await session.save()).written


@pytest.mark.requirement("MANAGER-PERSIST-ENTRY")
@anyio_both
async def test_an_unchanged_entry_is_never_written_again() -> None:
    store = MemoryStore()
    async with _session(Agent(), store, **_MANUAL) as session:
        await session.memory.set("big", "x" * 1_000_000)
        await session.memory.set("small", 0)
        await session.save()
        for number in range(1, 6):
            await session.memory.set("small", number)
            await session.save()
        await session.memory.set("small", 5)
        last = await session.save()
    metas = await store.history("my-assistant")
    assert len(metas) == 6
    assert all(meta.size_bytes < 2000 for meta in metas[:-1])
    assert last.size_bytes < 10_000


@pytest.mark.requirement("ONERING-LAYER-FLUSH")
@anyio_both
async def test_changed_entries_are_written_each_time() -> None:
    store, diary = FaultyStore(MemoryStore()), Diary()
    session = _session(Agent(), store, auto_save_interval=0.01, save_on_exit=False)
    session.manager.events.subscribe(diary)
    async with session:
        for round_ in (1, 2, 3):
            await session.memory.set("step", round_)
            await diary.wait_for(SnapshotSkipped, len(diary.of(SnapshotSkipped)) + 2)  # by now, nothing is left
            assert (await store.load("my-assistant")).memory == {"step": round_}


def _written() -> int:
    """How many bytes this process has written so far, to files and all else."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counts["wchar"])


@pytest.mark.requirement("ONERING-CARE-LAZY")
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the system counts no bytes per process")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@anyio_both
async def test_opening_and_leaving_a_session_with_100_mb_of_entries_writes_none_of_them(
    tmp_path: Path,
) -> None:
    chance = random.Random(7)  # what repeats itself would be small on the disk
    entries = {f"entry {number}": chance.randbytes(1 << 19).hex() for number in range(100)}
    async with FilesystemStore(tmp_path, background=False) as store:
        await store.save(make_snapshot("hello", session_id="my-assistant", memory=entries))
    async with FilesystemStore(tmp_path, background=False) as store:
        before = _written()
        agent = Agent()
        async with _session(agent, store) as session:
            assert session.report.messages == 1
            agent.chat("more")
        assert _written() - before < 1 << 20
        assert (await session.memory.get("entry 7")) == entries["entry 7"]


@anyio_both
async def test_deleted_entry_is_gone_after_the_next_save() -> None:
    store = MemoryStore()
    async with _session(Agent(), store) as session:
        await session.memory.set("note", 1)
    async with _session(Agent(), store) as session:
        assert await session.memory.get("note") == 1
        assert await session.memory.delete("note")
        assert not await session.memory.delete("note")
    async with _session(Agent(), store) as session:
        assert await session.memory.keys() == ()


@anyio_both
async def test_memory_and_session_are_restored_from_the_same_moment() -> None:
    store, agent = MemoryStore(), Agent()
    async with _session(agent, store, **_MANUAL) as session:
        await session.memory.set("step", 1)
        await session.save()
        await session.memory.set("step", 2)  # and then the process died
    async with _session(Agent(), store) as session:
        assert await session.memory.get("step") == 1
        await session.memory.set("step", 3)
    async with _session(Agent(), store) as session:
        assert await session.memory.get("step") == 3


@anyio_both
async def test_fork_copies_the_memory_and_develops_separately() -> None:
    store = MemoryStore()
    async with _session(Agent(), store) as session:
        await session.memory.set("shared", "before")
        await session.save()
        await session.manager.fork("my-assistant", as_id="branch")
        await session.memory.set("shared", "after")
    async with persistent_session(Agent(), agent_id="branch", store=store) as branch:
        assert await branch.memory.get("shared") == "before"
        await branch.memory.set("own", 1)
    async with _session(Agent(), store) as session:
        assert await session.memory.keys() == ("shared",)
    async with persistent_session(Agent(), agent_id="branch", store=store) as branch:
        assert sorted(await branch.memory.keys()) == ["own", "shared"]


async def _left_by_0_2_0(store: MemoryStore, seq: int = 1) -> None:
    """A session whose memory is in a second one, in which a later snapshot was saved before the process died."""
    memory = make_snapshot(
        session_id="my-assistant+memory", provider_type="memory", memory={"fields": {"value": 1}}
    )
    await store.save(memory)
    await store.save(memory.evolve(memory={"fields": {"value": 2}}))
    pin = {"session_id": "my-assistant+memory", "seq": seq, "entries": 1, "size_bytes": 12}
    await store.save(make_snapshot("hello", session_id="my-assistant", metadata={"working_memory": pin}))


@pytest.mark.requirement("MANAGER-PERSIST-OLD-MEMORY")
@anyio_both
async def test_memory_that_release_0_2_stored_beside_the_session_moves_into_it_with_the_next_save() -> None:
    store = MemoryStore()
    await _left_by_0_2_0(store)
    async with _session(Agent(), store) as session:
        assert await session.memory.get("fields") == {"value": 1}
        await session.memory.set("more", 2)
    assert len(await store.history("my-assistant+memory")) == 2, "nothing more is written there"
    await store.delete("my-assistant+memory")
    async with _session(Agent(), store) as session:
        assert await session.memory.get("fields") == {"value": 1}
        assert await session.memory.get("more") == 2
        assert await session.memory.about("fields") == {}
        assert await session.delete()


@anyio_both
async def test_old_memory_whose_snapshot_was_forgotten_falls_back_to_the_newest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryStore()
    await _left_by_0_2_0(store, seq=99)
    async with _session(Agent(), store, save_on_exit=False) as session:
        assert await session.memory.get("fields") == {"value": 2}
    await store.delete("my-assistant+memory")
    async with _session(Agent(), store) as session:
        assert await session.memory.keys() == ()
    assert "forgotten" in caplog.text


@anyio_both
async def test_memory_that_is_not_json_is_refused() -> None:
    async with _session(Agent(), MemoryStore()) as session:
        with pytest.raises(InvalidSnapshot):
            await session.memory.set("client", object())
        assert await session.memory.keys() == ()


@pytest.mark.requirement("ONERING-CARE-ONE-WRITER")
@anyio_both
@pytest.mark.parametrize("options", [{}, _MANUAL], ids=["automatic", "manual"])
async def test_one_process_at_a_time_owns_an_agent_id(tmp_path: Path, options: dict[str, Any]) -> None:
    async with _session(Agent(), tmp_path, **options):
        with pytest.raises(SessionLocked):
            async with _session(Agent(), tmp_path, **options):
                """Not reached."""
    async with _session(Agent(), tmp_path, **options):
        """Free again."""


@anyio_both
async def test_a_part_that_is_not_json_is_named_and_the_rest_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    store, agent = MemoryStore(), Agent()
    agent.tools = [print]  # type: ignore[assignment]
    async with _session(agent, store) as session:
        agent.chat("hello")
        await session.save()
        assert [problem.part for problem in session.problems] == ["tools"]
    fresh = Agent()
    async with _session(fresh, store):
        assert fresh.history == agent.history
        assert fresh.system_prompt == "You help."
    assert caplog.text.count("tools is not kept") == 1


@anyio_both
async def test_a_problem_names_the_type_as_its_author_wrote_it() -> None:
    agent = Agent()
    agent.tools = ["search"]  # type: ignore[assignment]
    async with _session(agent, MemoryStore()) as session:
        await session.save()
        (problem,) = session.problems
        assert problem.reason.endswith("expected a JSON object, got list")


@anyio_both
async def test_part_that_cannot_be_restored_is_named_and_the_rest_is_restored() -> None:
    class Fixed(Agent):
        @property
        def model(self) -> str:
            return "fixed"

        @model.setter
        def model(self, value: str) -> None:
            if value != "small":
                raise ValueError(value)

    store, agent = MemoryStore(), Agent()
    async with _session(agent, store):
        agent.chat("hello")
        agent.model = "large"
    fixed = Fixed()
    async with _session(fixed, store) as session:
        assert [problem.part for problem in session.report.problems] == ["model"]
        assert fixed.history == agent.history


@anyio_both
async def test_agent_can_define_its_own_parts() -> None:
    class Own:
        def __init__(self, *said: str) -> None:
            self.context = AgentContext(
                history=tuple(Message(role="user", content=text) for text in said),
                options={"maxContextTokens": 128000, "strategy": "proactive"},
                title="Mine",
                tags=("personal",),
            )

        def get_context(self) -> AgentContext:
            return self.context

        def set_context(self, context: AgentContext) -> None:
            self.context = context

    store, first, second = MemoryStore(), Own("hello"), Own()
    async with _session(first, store):
        pass
    async with _session(second, store):
        pass
    assert second.context == first.context
    assert (await store.list())[0].title == "Mine"
    first.get_context = lambda: "nonsense"  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(InvalidSnapshot):
        await _session(first, store).save()


@anyio_both
async def test_history_of_messages_is_restored_as_messages() -> None:
    class Typed:
        def __init__(self) -> None:
            self.history: list[Message] = []

    store, first, second = MemoryStore(), Typed(), Typed()
    async with _session(first, store):
        first.history.append(Message(role="user", content="hello"))
    async with _session(second, store):
        pass
    assert second.history == first.history


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = st.sampled_from(["role", "content", "name", "tool_calls", "id", "timestamp", "metadata", "token_count"])
_ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer", "function", "ai"])
_CHAT = st.fixed_dictionaries({"role": _ROLES, "content": st.text(max_size=8)})
_WILD = st.dictionaries(_FIELDS, _JSON, max_size=4)


@given(st.lists(_CHAT | _WILD, max_size=4))
@example([{"role": "user", "content": "x", "token_count": True, "token_count_estimated": 1}])
@tries(80)
def test_any_history_of_dicts_round_trips_exactly(history: list[dict[str, Any]]) -> None:
    agent, other = Agent(), Agent()
    agent.history = history
    snapshot, problems = AgentReader(agent).read(make_snapshot())
    assert problems == []
    stored = type(snapshot).model_validate(snapshot.raw())
    assert AgentReader(other).write(stored) == []
    assert json.dumps(other.history, sort_keys=True) == json.dumps(history, sort_keys=True)  # 1 is not true


def test_unchanged_messages_are_the_same_objects() -> None:
    agent = Agent()
    agent.chat("one")
    reader = AgentReader(agent)
    before, _ = reader.read(make_snapshot())
    agent.chat("two")
    after, _ = reader.read(before)
    assert all(new is old for new, old in zip(after.messages, before.messages, strict=False))
    agent.history[0]["content"] = "edited"
    edited, _ = reader.read(after)
    assert edited.messages[0].text == "edited"
    assert edited.messages[1] is after.messages[1]


def test_readable_parts_of_an_unknown_message_are_shown() -> None:
    agent = Agent()
    agent.history = [
        {"role": "developer", "content": [{"type": "image", "source": 1}, {"type": "text", "text": "hi"}]}
    ]
    snapshot, _ = AgentReader(agent).read(make_snapshot())
    assert (snapshot.messages[0].role, snapshot.messages[0].text) == ("system", "hi")


def test_agent_with_nothing_to_save_is_refused() -> None:
    with pytest.raises(InvalidInput):
        _session(object(), MemoryStore())


@pytest.mark.requirement("ONERING-CARE-AGENT-ID")
@pytest.mark.parametrize("agent_id", ["", "..", "x" * 20_000])
def test_invalid_agent_id_is_refused(agent_id: str) -> None:
    with pytest.raises(InvalidSessionId):
        persistent_session(Agent(), agent_id=agent_id, store=MemoryStore())


@pytest.mark.parametrize("interval", [-1, float("nan")])
def test_invalid_interval_is_refused(interval: float) -> None:
    with pytest.raises(InvalidInput):
        _session(Agent(), MemoryStore(), auto_save_interval=interval)


@pytest.mark.requirement("ONERING-ERROR-CORRUPTED")
@anyio_both
async def test_session_without_an_intact_snapshot_starts_fresh_with_a_warning(tmp_path: Path) -> None:
    agent = Agent()
    async with _session(agent, tmp_path):
        agent.chat("hello")
    segment = next((tmp_path / "sessions" / "my-assistant").glob("*.snap.gz"))
    segment.write_bytes(b"x" * segment.stat().st_size)
    fresh = Agent()
    async with _session(fresh, tmp_path) as session:
        assert not session.report.found
        assert [problem.part for problem in session.report.problems] == ["session"]
        fresh.chat("anew")
    again = Agent()
    async with _session(again, tmp_path):
        assert len(again.history) == 2


@pytest.mark.requirement("ONERING-ERROR-STORAGE")
@anyio_both
async def test_unreadable_store_is_raised_to_the_caller() -> None:
    refused = Fault(error=StoreUnavailable("no"))
    with pytest.raises(StoreUnavailable):
        async with _session(Agent(), FaultyStore(MemoryStore(), every(1, refused, "read"))):
            """Not reached."""


@anyio_both
@pytest.mark.parametrize("interval", [None, 30])
async def test_failed_last_save_is_reported_not_raised(interval: float | None) -> None:
    refused, diary = Fault(error=StoreUnavailable("no")), Diary()
    session = _session(Agent(), FaultyStore(MemoryStore(), every(1, refused, "save")), auto_save_interval=interval)
    session.manager.events.subscribe(diary)
    async with session:
        pass
    assert diary.of(SnapshotFailed)[-1].code == "store_unavailable"


@pytest.mark.requirement("ONERING-OPTION-STORE")
@anyio_both
async def test_the_default_store_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASNAP_STORE", str(tmp_path / "mine"))
    async with persistent_session(Agent(), agent_id="a") as session:
        assert session.path.startswith(str(tmp_path / "mine"))
    assert list((tmp_path / "mine" / "sessions" / "a").glob("*.snap.gz"))
    assert _session(Agent(), MemoryStore()).path == "MemoryStore my-assistant"


def test_a_store_can_be_named_by_path_or_url_and_encryption_needs_a_key(tmp_path: Path) -> None:
    assert open_place(tmp_path)[1]
    assert isinstance(open_place("memory://")[0], MemoryStore)
    kept = MemoryStore()
    assert open_place(kept) == (kept, False)
    config = SnapshotConfig(storage_path=str(tmp_path), encryption=True)
    with pytest.raises(KeyMissing):
        open_configured_store(config, environ={})
    assert isinstance(open_configured_store(config, environ={"ASNAP_KEY": "k"}), FilesystemStore)


@anyio_both
async def test_session_has_its_start_and_last_activity_times() -> None:
    clock, store, agent = FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), MemoryStore(), Agent()
    async with _session(agent, store, clock=clock):
        agent.chat("one")
    clock.advance(timedelta(days=1))
    async with _session(agent, store, clock=clock):
        agent.chat("two")
    kept = await store.load("my-assistant")
    assert (kept.created_at.day, kept.updated_at.day) == (1, 2)
    assert kept.agent is not None
    assert kept.agent.name == "Agent"
