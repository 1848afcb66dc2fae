"""`SnapshotSaver` under LangGraph's own conformance suite, beside `InMemorySaver`, and killed."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from integration.frameworks.faults import AdapterFaults
from integration.frameworks.pages import ROOT, run_page
from snapshot_plugin import FilesystemStore
from snapshot_plugin.errors import InvalidInput, InvalidSnapshotVersion
from snapshot_plugin.frameworks.langgraph import SnapshotSaver

CONFIG: Any = {"configurable": {"thread_id": "t"}}
CASES = 81


class ThroughSync(SnapshotSaver):
    """The asynchronous methods call the synchronous ones, so that the suite tests those."""

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[Any]:
        for each in self.list(config, **options):
            yield each

    async def aput(self, *args: Any) -> Any:
        return self.put(*args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        self.put_writes(*args, **options)

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], **options: Any) -> None:
        self.prune(thread_ids, **options)


@pytest.mark.parametrize("kind", [SnapshotSaver, ThroughSync])
@pytest.mark.parametrize("key", [None, "correct horse"])
def test_all_cases_of_the_conformance_suite_pass(
    tmp_path: Path, kind: type[SnapshotSaver], key: str | None
) -> None:
    @checkpointer_test(name=f"{kind.__name__}-{key}")
    async def saver() -> AsyncIterator[SnapshotSaver]:
        yield kind(tmp_path, key)

    report = asyncio.run(validate(saver))
    failures = [failure for each in report.results.values() for failure in each.failures or ()]
    assert failures == []
    assert sum(each.tests_passed for each in report.results.values()) == CASES


@pytest.mark.parametrize("key", [None, "correct horse"])
def test_all_cases_of_the_conformance_suite_pass_on_postgresql(key: str | None) -> None:
    postgres = pytest.importorskip("tests.postgres_server", reason="needs psycopg and a server")

    with postgres.server_url() as url:
        schema = f"conformance_{'sealed' if key else 'plain'}"

        @checkpointer_test(name=schema)
        async def saver() -> AsyncIterator[SnapshotSaver]:
            yield SnapshotSaver(f"{url}&schema={schema}", key)

        report = asyncio.run(validate(saver))
        assert [failure for each in report.results.values() for failure in each.failures or ()] == []
        assert sum(each.tests_passed for each in report.results.values()) == CASES
        postgres.drop_schema(url, schema)


# Beside InMemorySaver -------------------------------------------------------------------------------------


class State(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]
    total: Annotated[int, operator.add]
    approved: str


def interrupts(saver: BaseCheckpointSaver[Any]) -> Any:
    def ask(_: State) -> dict[str, Any]:
        return {"approved": interrupt({"question": "go on?"}), "total": 1}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", END)
    graph = builder.compile(checkpointer=saver)
    first = graph.invoke({"messages": [HumanMessage("hi", id="1")], "total": 0, "approved": ""}, CONFIG)
    asked = [each.value for each in first["__interrupt__"]]
    return asked, graph.invoke(Command(resume="yes"), CONFIG), states(graph)


def time_travel(saver: BaseCheckpointSaver[Any]) -> Any:
    graph = counting(saver)
    for number in range(4):
        graph.invoke({"messages": [HumanMessage(f"q{number}", id=f"q{number}")], "total": 1}, CONFIG)
    old = next(each for each in graph.get_state_history(CONFIG) if len(each.values["messages"]) == 4)
    fork = graph.update_state(old.config, {"messages": [HumanMessage("changed", id="c")]}, as_node="answer")
    graph.invoke({"messages": [HumanMessage("on the fork", id="f")], "total": 5}, fork)
    again = graph.get_state(old.config)
    return again.values, again.next, states(graph)


def subgraphs(saver: BaseCheckpointSaver[Any]) -> Any:
    inner = StateGraph(State)
    inner.add_node("work", lambda _: {"messages": [AIMessage("inner", id="i")], "total": interrupt("inside")})
    inner.add_edge(START, "work")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("hi", id="1")], "total": 1, "approved": ""}, CONFIG)
    nested = graph.get_state(CONFIG, subgraphs=True).tasks[0].state.values
    return nested, graph.invoke(Command(resume=3), CONFIG), states(graph)


def every_kind_of_message(saver: BaseCheckpointSaver[Any]) -> Any:
    graph = counting(saver)
    call = {"name": "f", "args": {"x": [1, 2.5, None]}, "id": "c1", "type": "tool_call"}
    said = [
        SystemMessage("be kind", id="s"),
        HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}], id="h"),
        HumanMessage(["plain", "strings"], id="h2", name="ada"),
        AIMessage(
            "", id="a", tool_calls=[call], usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
        ),
        ToolMessage("out", id="t", tool_call_id="c1", artifact={"rows": [1]}, status="error"),
        AIMessage("odd", id="o", additional_kwargs={"when": ("a", "tuple")}),
    ]
    graph.invoke({"messages": said, "total": 1}, CONFIG)
    return states(graph)


def counting(saver: BaseCheckpointSaver[Any]) -> Any:
    def answer(state: State) -> dict[str, Any]:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"answer {count}", id=f"a{count}-{state['total']}")], "total": 10}

    builder = StateGraph(State)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def states(graph: Any) -> list[Any]:
    return [(each.values, each.next, each.metadata["step"]) for each in graph.get_state_history(CONFIG)]


@pytest.mark.parametrize("scenario", [interrupts, time_travel, subgraphs, every_kind_of_message])
def test_a_graph_behaves_as_with_the_in_memory_saver(tmp_path: Path, scenario: Callable[[Any], Any]) -> None:
    assert scenario(SnapshotSaver(tmp_path)) == scenario(InMemorySaver())


@pytest.mark.parametrize("scenario", [interrupts, time_travel, subgraphs])
def test_a_reopened_store_has_the_same_checkpoints(tmp_path: Path, scenario: Callable[[Any], Any]) -> None:
    saver = SnapshotSaver(FilesystemStore(tmp_path))
    scenario(saver)
    assert list(SnapshotSaver(FilesystemStore(tmp_path)).list(None)) == list(saver.list(None)) != []


# Deltas, pruning, early writes ----------------------------------------------------------------------------


def joined(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(each for write in writes for each in write)]


class Deltas(TypedDict):
    log: Annotated[list[str], DeltaChannel(joined, list, snapshot_frequency=5)]


def delta_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    builder = StateGraph(Deltas)
    builder.add_node("work", lambda state: {"log": [f"done {len(state['log'])}"]})
    builder.add_edge(START, "work")
    return builder.compile(checkpointer=saver)


def test_delta_channels_survive_prune_and_a_new_process(tmp_path: Path) -> None:
    graph = delta_graph(SnapshotSaver(tmp_path))
    for number in range(9):
        graph.invoke({"log": [f"in {number}"]}, CONFIG)
    log = graph.get_state(CONFIG).values["log"]
    assert len(log) == 18
    saver = SnapshotSaver(FilesystemStore(tmp_path))
    before = len(list(saver.list(CONFIG)))
    saver.prune(["t"])
    assert 1 <= len(list(saver.list(CONFIG))) < before
    assert delta_graph(SnapshotSaver(FilesystemStore(tmp_path))).get_state(CONFIG).values["log"] == log


def checkpoint(**values: Any) -> Any:
    made = empty_checkpoint()
    made["channel_values"], made["channel_versions"] = values, dict.fromkeys(values, "1")
    return made


def config(checkpoint_id: str | None = None, thread: str = "t") -> Any:
    named = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": {**named, "checkpoint_id": checkpoint_id} if checkpoint_id else named}


def test_writes_may_come_before_their_checkpoint_and_after_the_next(tmp_path: Path) -> None:
    saver = SnapshotSaver(tmp_path)
    one, two = checkpoint(a=1), checkpoint(a=2)
    saver.put_writes(config(one["id"]), [("a", "early")], "task-1")
    saver.put(config(), one, {"source": "input", "step": 0}, {"a": "1"})
    saver.put(config(one["id"]), two, {"source": "loop", "step": 1}, {"a": "1"})
    saver.put_writes(config(one["id"]), [("a", "late")], "task-2")
    reopened = SnapshotSaver(FilesystemStore(tmp_path))
    first, second = reopened.get_tuple(config(one["id"])), reopened.get_tuple(config())
    assert first
    assert second
    assert first.pending_writes == [("task-1", "a", "early"), ("task-2", "a", "late")]
    assert second.pending_writes == []
    assert second.checkpoint["channel_values"] == {"a": 2}


@pytest.mark.parametrize("channel", ["messages", "other"])
def test_a_value_that_its_parent_did_not_hold_is_stored_under_the_same_version(
    tmp_path: Path, channel: str
) -> None:
    """A delta channel has a version in every checkpoint, and a value in some."""
    saver, said = SnapshotSaver(tmp_path), [HumanMessage(text, id=text) for text in "ab"]
    one, two, three = (
        checkpoint(**{channel: said[:1]}),
        checkpoint(**{channel: None}),
        checkpoint(**{channel: said}),
    )
    del two["channel_values"][channel]
    for parent, each in ((None, one), (one["id"], two), (two["id"], three)):
        saver.put(config(parent), each, {"source": "loop"}, {channel: "1"} if each is one else {})
    found = SnapshotSaver(FilesystemStore(tmp_path)).get_tuple(config())
    assert found
    assert found.checkpoint["channel_values"] == {channel: said}


# Faults ---------------------------------------------------------------------------------------------------


def agent(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "integration.frameworks.langgraph_agent", str(place), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_a_killed_step_resumes_without_repeating_the_tool_that_returned(tmp_path: Path) -> None:
    place = tmp_path / "store"
    killed = agent(place, "--kill")
    assert killed.returncode == -9, killed.stderr
    resumed = agent(place)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[-1] == "ai: Both are booked."
    assert sorted((tmp_path / "store.log").read_text().split()) == ["answer", "flight", "flight", "hotel", "plan"]


def test_threads_and_stores_that_write_to_one_thread_lose_no_checkpoint(tmp_path: Path) -> None:
    made: list[str] = []

    def write() -> None:
        saver = SnapshotSaver(FilesystemStore(tmp_path))
        for number in range(5):
            each = checkpoint(a=number)
            saver.put(config(), each, {"source": "loop", "step": number}, {"a": "1"})
            made.append(each["id"])

    threads = [threading.Thread(target=write) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    found = [each.checkpoint["id"] for each in SnapshotSaver(tmp_path).list(CONFIG)]
    assert found == sorted(made, reverse=True)
    assert len(found) == 20


def test_a_value_that_cannot_be_serialised_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    saver = SnapshotSaver(tmp_path)
    good = checkpoint(a=1)
    saver.put(config(), good, {"source": "input", "step": 0}, {"a": "1"})
    with pytest.raises(TypeError):
        saver.put(config(good["id"]), checkpoint(a=threading.Lock()), {"source": "loop", "step": 1}, {"a": "2"})
    found = saver.get_tuple(CONFIG)
    assert found
    assert found.checkpoint["id"] == good["id"]


def test_nan_in_values_writes_and_metadata_comes_back(tmp_path: Path) -> None:
    saver, odd = SnapshotSaver(tmp_path), float("nan")
    put = saver.put(config(), checkpoint(a=odd), {"source": "loop", "step": 0, "loss": odd}, {"a": "1"})  # type: ignore[typeddict-unknown-key]  # a user's own
    saver.put_writes(put, [("a", odd)], "task")
    [found] = SnapshotSaver(FilesystemStore(tmp_path)).list(CONFIG, filter={"step": 0})
    assert found.pending_writes
    values = (found.checkpoint["channel_values"]["a"], found.metadata.get("loss"), found.pending_writes[0][2])
    assert [repr(each) for each in values] == ["nan"] * 3


def test_nothing_is_pickled(tmp_path: Path) -> None:
    saver = SnapshotSaver(tmp_path, serde=JsonPlusSerializer(pickle_fallback=True))
    with pytest.raises(InvalidInput, match="pickle"):
        saver.put(config(), checkpoint(a=type("Own", (), {"__reduce__": lambda _: (int, ())})()), {}, {"a": "1"})


def test_a_thread_of_a_newer_adapter_is_refused(tmp_path: Path) -> None:
    saver = SnapshotSaver(tmp_path)
    saver.put(config(), checkpoint(a=1), {"source": "input", "step": 0}, {"a": "1"})
    store = FilesystemStore(tmp_path).sync
    found = store.load("t")
    store.save(found.evolve(plugins={**found.plugins, "langgraph": {**found.plugins["langgraph"], "format": 3}}))
    with pytest.raises(InvalidSnapshotVersion, match="newer langgraph adapter"):
        SnapshotSaver(tmp_path).get_tuple(CONFIG)


def test_a_list_of_all_threads_leaves_one_of_a_newer_adapter_out_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = SnapshotSaver(tmp_path)
    for thread in "tu":
        saver.put(config(thread=thread), checkpoint(a=1), {"source": "input", "run_id": "r"}, {"a": "1"})
    store = FilesystemStore(tmp_path).sync
    found = store.load("t")
    store.save(found.evolve(plugins={**found.plugins, "langgraph": {**found.plugins["langgraph"], "format": 3}}))

    saver = SnapshotSaver(FilesystemStore(tmp_path))
    assert [each.config["configurable"]["thread_id"] for each in saver.list(None)] == ["u"]
    assert "newer langgraph adapter wrote session t" in caplog.text
    with pytest.raises(InvalidSnapshotVersion):
        list(saver.list(config(thread="t")))
    with pytest.raises(InvalidSnapshotVersion):
        saver.delete_for_runs(["r"])
    assert list(saver.list(None)) == []


@pytest.mark.parametrize("thread_id", ["x" * 500, "t+subgraphs", "a/../b\n", "Ünï~" + "0" * 24])
def test_any_thread_id_is_kept_apart(tmp_path: Path, thread_id: str) -> None:
    saver = SnapshotSaver(tmp_path)
    named: Any = {"configurable": {"thread_id": thread_id}}
    graph = counting(saver)
    counting(saver).invoke({"messages": [HumanMessage("other", id="1")], "total": 1}, CONFIG)
    graph.invoke({"messages": [HumanMessage("mine", id="1")], "total": 1}, named)
    assert graph.get_state(named).values["messages"][0].content == "mine"
    assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == {"t", thread_id}
    saver.delete_thread(thread_id)
    assert graph.get_state(named).values == {}
    assert graph.get_state(CONFIG).values["messages"][0].content == "other"


# What people see ------------------------------------------------------------------------------------------


def asnap(place: Path, *words: str) -> Any:
    command = [sys.executable, "-m", "snapshot_plugin", *words, "--json"]
    env = {**os.environ, "ASNAP_STORE": str(place), "HOME": str(place.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_people_see_title_turns_tokens_and_no_companion(tmp_path: Path) -> None:
    builder = StateGraph(MessagesState)
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    said = AIMessage("hello", usage_metadata=usage, response_metadata={"model_name": "tiny-1"})
    inner = StateGraph(MessagesState)
    inner.add_node("say", lambda _: {"messages": [said]})
    inner.add_edge(START, "say")
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_edge(START, "inner")
    builder.compile(checkpointer=SnapshotSaver(tmp_path)).invoke(
        {"messages": [HumanMessage("plan a trip")]}, CONFIG
    )
    rows = asnap(tmp_path, "list", "--all")["sessions"]
    assert [(row["session_id"], row["title"], row["turns"], row["tokens"], row["agent"]) for row in rows] == [
        ("t", "plan a trip", 1, 18, "langgraph")
    ]
    assert rows[0]["tags"] == []
    assert FilesystemStore(tmp_path).sync.load("t").config.model == "tiny-1"


@pytest.mark.parametrize("remembers", [True, None])
def test_a_fork_by_people_resumes_inside_the_subgraph_that_waits(tmp_path: Path, remembers: bool | None) -> None:
    ran = []

    def before(_: State) -> dict[str, Any]:
        ran.append("before")
        return {"messages": [AIMessage("inner", id="i")]}

    inner = StateGraph(State)
    inner.add_node("before", before)
    inner.add_node("ask", lambda _: {"total": interrupt("inside")})
    inner.add_edge(START, "before")
    inner.add_edge("before", "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile(checkpointer=remembers))
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=SnapshotSaver(tmp_path))
    graph.invoke({"messages": [HumanMessage("hi", id="1")], "total": 1, "approved": ""}, CONFIG)
    seen = [message.text for message in FilesystemStore(tmp_path).sync.load("t").messages]
    assert seen == ["hi"], "people do not see what the subgraph says to itself"

    fork = asnap(tmp_path, "fork", "t")["session_id"]
    graph.checkpointer.delete_thread("t")
    named: Any = {"configurable": {"thread_id": fork}}
    assert [each.content for each in graph.get_state(named, subgraphs=True).tasks[0].state.values["messages"]] == [
        "hi", "inner",
    ]  # fmt: skip
    assert graph.invoke(Command(resume=3), named)["total"] > 1
    assert ran == ["before"], "the subgraph went on where it waited"
    assert [meta.session_id for meta in FilesystemStore(tmp_path).sync.list()] == [fork]


def test_checkpoints_of_subgraphs_that_release_0_2_stored_move_into_their_thread(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/golden/releases/0.2.0/plain/store", tmp_path / "store")
    store = FilesystemStore(tmp_path / "store").sync
    old = [meta.labels["checkpoint"] for meta in store.history("langgraph+subgraphs")]
    root = [meta.labels["checkpoint"] for meta in store.history("langgraph")]
    named: Any = {"configurable": {"thread_id": "langgraph"}}

    found = list(SnapshotSaver(tmp_path / "store").list(named))
    of_inner = [each for each in found if each.config["configurable"]["checkpoint_ns"]]
    assert {each.checkpoint["id"] for each in of_inner} == set(old)
    assert {each.checkpoint["id"] for each in found} == {*old, *root}
    newest = max(of_inner, key=lambda each: each.checkpoint["id"]).checkpoint["channel_values"]["messages"]
    said = ["said in the subgraph"]
    assert [each.content for each in newest] == ["one", *said, "two", *said]
    assert "langgraph+subgraphs" not in {meta.session_id for meta in store.list()}
    assert list(SnapshotSaver(tmp_path / "store").list(named)) == found


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page("langgraph")


class TestFaults(AdapterFaults):
    writer = "langgraph"
