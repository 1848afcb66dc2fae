"""Our adapters beside agent-framework's own file stores, shared by threads, and killed."""

from __future__ import annotations

import asyncio
import pickle
import random
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from agent_framework import (
    AgentExecutorRequest,
    AgentExecutorResponse,
    AgentResponse,
    Content,
    FileHistoryProvider,
    InMemoryCheckpointStorage,
    Message,
    WorkflowCheckpoint,
    WorkflowEvent,
)
from agent_framework._workflows._runner_context import MessageType, WorkflowMessage
from agent_framework.exceptions import WorkflowCheckpointException
from pydantic import BaseModel

from integration.frameworks.faults import AdapterFaults
from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidSnapshotVersion
from snapshot_plugin.frameworks.agent_framework import SnapshotCheckpointStorage, SnapshotHistoryProvider

MESSAGES = [
    Message("user", ["hi"], message_id="m1"),
    Message("user", ["again, without an id"]),
    Message(
        "assistant", [Content.from_text("x"), Content.from_function_call("c1", "f", arguments={"a": [1, None]})]
    ),
    Message("tool", [Content.from_function_result("c1", result="42")]),
    Message("assistant", [Content.from_text_reasoning(text="hm")], author_name="bot"),
    Message("user", [Content.from_uri("http://x/y.png", media_type="image/png")]),
    Message("assistant", []),
]


def raw(messages: list[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


@pytest.mark.parametrize("number", range(len(MESSAGES)))
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_a_message_round_trips_as_through_a_file(tmp_path: Path, number: int, key: str | None) -> None:
    async def main() -> None:
        theirs = FileHistoryProvider(tmp_path / "theirs")
        for provider in (SnapshotHistoryProvider(tmp_path / "ours", key), theirs):
            await provider.save_messages("s", [MESSAGES[number]])
        again = SnapshotHistoryProvider(FilesystemStore(tmp_path / "ours", key=key))
        assert raw(await again.get_messages("s")) == raw(await theirs.get_messages("s"))

    asyncio.run(main())


@pytest.mark.parametrize("skip", [True, False])
def test_messages_that_compaction_excludes_are_skipped_as_with_files(tmp_path: Path, skip: bool) -> None:
    async def main() -> None:
        own = SnapshotHistoryProvider(tmp_path / "ours", skip_excluded=skip)
        providers = (own, FileHistoryProvider(tmp_path / "theirs", skip_excluded=skip))
        old = Message("user", ["old"], additional_properties={"_excluded": True})
        for provider in providers:
            await provider.save_messages("s", [old, MESSAGES[0]])
        ours, theirs = [raw(await provider.get_messages("s")) for provider in providers]
        assert ours == theirs
        assert len(ours) == (1 if skip else 2)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_saves_behaves_as_with_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)

    async def main() -> None:
        providers = [SnapshotHistoryProvider(tmp_path / "ours"), FileHistoryProvider(tmp_path / "theirs")]
        for _ in range(15):
            name = chance.choice(["a", "b", None])
            given = chance.choices(MESSAGES, k=chance.randrange(4))
            if chance.random() < 0.3:  # the whole transcript again, as some agents do
                given = [*await providers[1].get_messages(name), *given]
            for provider in providers:
                await provider.save_messages(name, given)
            ours, theirs = [raw(await provider.get_messages(name)) for provider in providers]
            assert ours == theirs

    asyncio.run(main())


def test_threads_with_loops_of_their_own_lose_nothing(tmp_path: Path) -> None:
    def work(name: int) -> None:
        async def main() -> None:
            provider = SnapshotHistoryProvider(tmp_path if name % 2 else FilesystemStore(tmp_path))
            for number in range(5):
                await provider.save_messages("s", [Message("user", ["x"], message_id=f"{name}-{number}")])

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = asyncio.run(SnapshotHistoryProvider(tmp_path).get_messages("s"))
    assert {each.message_id for each in found} == {f"{name}-{number}" for name in range(4) for number in range(5)}


def test_a_history_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    provider = SnapshotHistoryProvider(tmp_path)
    asyncio.run(provider.save_messages("s", MESSAGES))
    store = FilesystemStore(tmp_path).sync
    found = store.load("s")
    assert (found.title, found.metrics.turns) == ("hi", 3)
    store.save(found.evolve(plugins={"agent-framework": 2}))
    with pytest.raises(InvalidSnapshotVersion, match="newer agent-framework adapter"):
        asyncio.run(provider.get_messages("s"))


# Checkpoints of workflows ---------------------------------------------------------------------------------


class Colour(Enum):
    RED = 1


@dataclass
class Order:
    number: int
    colour: Colour = Colour.RED
    lines: list[tuple[str, int]] = field(default_factory=list)
    total: int = field(init=False, default=0)


class Invoice(BaseModel):
    due: date
    orders: list[int] = []


class Plain:
    """Has no form but a pickle."""


OWN = [Colour, Order, Invoice]
VALUES: list[Any] = [
    {"text": "x", "list": [1, 2.5, None, True, 1 << 80, float("inf")]},
    {1: "a", "1": "b", ("t", 1): {"$": "not ours"}},
    {"$": "type", "name": "int"},
    (1, (2, [3])), {1, 2}, frozenset("ab"), deque([1, 2], 3), Counter("aab"), OrderedDict(b=1, a=2),
    defaultdict(list, {"a": [1]}), b"\0\xff", datetime(2026, 11, 16, 12, tzinfo=UTC), date(2026, 1, 2),
    timedelta(days=-1, microseconds=5), UUID(int=7), Decimal("1.10"), int, Order, Colour.RED,
    Order(7, lines=[("pen", 2)]), Invoice(due=date(2026, 1, 2), orders=[7]),
    [AgentExecutorRequest(MESSAGES[:1], should_respond=False)],
    AgentExecutorResponse("x", AgentResponse(messages=MESSAGES[2:4], response_id="r"), MESSAGES[:2]),
    WorkflowMessage({"order": Order(7)}, "a", "b", MessageType.RESPONSE, [{"traceparent": "00"}], ["s"]),
]  # fmt: skip


def comparable(value: Any) -> Any:
    """*value* with objects that have no ``==`` of their own as what they consist of."""
    if isinstance(value, dict):
        return type(value), [(comparable(k), comparable(v)) for k, v in value.items()]
    if isinstance(value, list | tuple | deque):
        return type(value), [comparable(each) for each in value]
    if not isinstance(value, type) and type(value).__module__.startswith("agent_framework"):
        rest = (
            {k: v for k, v in vars(value).items() if v is not None} if hasattr(value, "__dict__") else repr(value)
        )
        return type(value), comparable(rest)
    return type(value), value


def checkpoint(number: int, value: Any = None, workflow: str = "w") -> WorkflowCheckpoint:
    event = WorkflowEvent.request_info(
        request_id="r", source_executor_id="desk", request_data=Order(number), response_type=bool
    )
    return WorkflowCheckpoint(
        workflow_name=workflow, graph_signature_hash="g", checkpoint_id=f"c{number}", state={"value": value},
        previous_checkpoint_id=f"c{number - 1}" if number else None, pending_request_info_events={"r": event},
        timestamp=f"2026-11-16T12:00:{number:02}+00:00", iteration_count=number, metadata={"n": number},
        messages={"desk": [WorkflowMessage(Order(number), "a", original_request_info_event=event)]},
    )  # fmt: skip


def storage(place: Any, key: str | None = None) -> SnapshotCheckpointStorage:
    return SnapshotCheckpointStorage(place, key, allowed_checkpoint_types=OWN)


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_a_value_in_a_checkpoint_round_trips(tmp_path: Path, number: int) -> None:
    async def main() -> None:
        given = checkpoint(1, VALUES[number])
        assert await storage(tmp_path).save(given) == "c1"
        found = await storage(FilesystemStore(tmp_path)).load("c1")
        assert comparable(found.to_dict()) == comparable(given.to_dict())

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_any_sequence_of_calls_behaves_as_in_memory(tmp_path: Path, seed: int, key: str | None) -> None:
    chance = random.Random(seed)

    async def outcome(place: Any, what: str, number: int, workflow: str) -> Any:
        try:
            if what == "save":
                return await place.save(checkpoint(number, [number], workflow))
            found = await getattr(place, what)(f"c{number}")
        except WorkflowCheckpointException:
            return "refused"
        return comparable(found.to_dict()) if what == "load" else found

    async def contents(place: Any) -> Any:
        out = []
        for name in ("w", "x y/é", "never"):
            latest = await place.get_latest(workflow_name=name)
            every = await place.list_checkpoints(workflow_name=name)
            assert [each.checkpoint_id for each in every] == await place.list_checkpoint_ids(workflow_name=name)
            dicts = {each.checkpoint_id: comparable(each.to_dict()) for each in every}
            out.append((latest and latest.checkpoint_id, dicts))
        return out

    async def main() -> None:
        ours, theirs = storage(tmp_path, key), InMemoryCheckpointStorage()
        for _ in range(25):
            number = chance.randrange(12)
            call = (chance.choice(["save", "save", "load", "delete"]), number, "w" if number % 2 else "x y/é")
            assert await outcome(ours, *call) == await outcome(theirs, *call), call
        assert await contents(storage(FilesystemStore(tmp_path, key=key))) == await contents(theirs)

    asyncio.run(main())


@pytest.mark.parametrize(
    "value", [Plain(), Plain, lambda: 1, OSError("x"), iter([])], ids=lambda each: str(type(each))
)
def test_what_cannot_be_stored_is_refused_and_nothing_is_lost(tmp_path: Path, value: Any) -> None:
    async def main() -> None:
        place = SnapshotCheckpointStorage(tmp_path, allowed_checkpoint_types=[*OWN, Plain])
        await place.save(checkpoint(1, "before"))
        changed = Order(1)
        changed.total = 7  # its constructor would not give that back
        for given in (value, changed) if not isinstance(value, type) else (changed,):
            with pytest.raises(WorkflowCheckpointException):
                await place.save(checkpoint(2, given))
        with pytest.raises(WorkflowCheckpointException, match="not allowed"):
            await SnapshotCheckpointStorage(tmp_path).save(checkpoint(2, Order(1)))
        assert [each.state for each in await place.list_checkpoints(workflow_name="w")] == [{"value": "before"}]

    asyncio.run(main())


def test_nothing_is_unpickled_and_what_is_stored_chooses_no_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a pickle")

    async def main() -> None:
        await storage(tmp_path).save(checkpoint(1, VALUES))
        for name in ("dumps", "loads", "Pickler", "Unpickler"):
            monkeypatch.setattr(pickle, name, refuse)
        assert (await storage(FilesystemStore(tmp_path)).load("c1")).checkpoint_id == "c1"
        store = FilesystemStore(tmp_path).sync
        found = store.load("w+workflow")
        for name in ("os:system", "subprocess:Popen", "agent_framework:Agent"):
            evil = {"$": "made", "class": name, "with": {"args": "true"}}
            store.save(found.evolve(plugins={**found.plugins, "agent-framework-workflow:state": evil}))
            with pytest.raises(WorkflowCheckpointException):
                await storage(FilesystemStore(tmp_path)).load("c1")
        store.save(found.evolve(plugins={**found.plugins, "agent-framework-workflow": {"format": 2}}))
        with pytest.raises(InvalidSnapshotVersion, match="newer agent-framework-workflow adapter"):
            await storage(FilesystemStore(tmp_path)).load("c1")
        await storage(tmp_path).save(checkpoint(2, workflow="x"))
        assert (await storage(FilesystemStore(tmp_path)).load("c2")).workflow_name == "x"

    asyncio.run(main())


def test_threads_with_loops_of_their_own_lose_no_checkpoint(tmp_path: Path) -> None:
    def work(name: int) -> None:
        async def main() -> None:
            place = storage(tmp_path if name % 2 else FilesystemStore(tmp_path))
            for number in range(10 * name, 10 * name + 5):
                await place.save(checkpoint(number))
                assert (await place.load(f"c{number}")).iteration_count == number

        asyncio.run(main())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    found = asyncio.run(storage(tmp_path).list_checkpoint_ids(workflow_name="w"))
    assert set(found) == {f"c{10 * name + number}" for name in range(4) for number in range(5)}


def test_a_killed_workflow_is_answered_in_another_process(tmp_path: Path) -> None:
    def run(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.microsoft_workflow", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    asked = run("ask")
    assert asked.returncode == -9, asked.stderr
    answered = run("approve")
    assert answered.stdout.strip() == "paid 40.0 for 7; seen [7]", answered.stderr


def test_a_killed_agent_is_sent_its_first_turn_again(tmp_path: Path) -> None:
    def agent(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "integration.frameworks.microsoft_agent", str(tmp_path / "store"), what]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)

    first = agent("first")
    assert first.returncode == -9, first.stderr
    second = agent("second")
    assert second.stdout.strip() == "told: Plan Oslo | told: Plan Oslo | And Bergen", second.stderr


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ModuleType("agent-framework")  # types of the page are looked up in its module
    monkeypatch.setitem(sys.modules, page.__name__, page)
    vars(page).update(run_page("agent-framework", vars(page)))
    asyncio.run(page.main())
    asyncio.run(page.refund())


class TestHistoryFaults(AdapterFaults):
    writer = "agent_framework"


class TestCheckpointFaults(AdapterFaults):
    writer = "agent_framework_workflows"
    test_entries_that_another_program_wrote_are_damage_of_the_session = None  # type: ignore[assignment]  # it lists labels
