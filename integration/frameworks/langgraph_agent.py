"""An agent on LangGraph with a scripted model. It is killed in the middle of a step, and goes on when run again.

``python -m integration.frameworks.langgraph_agent STORE`` runs one turn: two tools in parallel, then the answer.
With ``--kill`` the process kills itself while the second tool works, after the first one has returned. The next run
of the thread does not call the first tool again.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from snapshot_plugin.frameworks.langgraph import SnapshotSaver

THREAD: dict[str, Any] = {"configurable": {"thread_id": "trip"}}
CALLS = [
    {"name": "book_hotel", "args": {"city": "Oslo"}, "id": "call-1", "type": "tool_call"},
    {"name": "book_flight", "args": {"to": "OSL"}, "id": "call-2", "type": "tool_call"},
]


def build(place: Path, log: Path, *, kill: bool, key: str | None = None) -> Any:
    saver = SnapshotSaver(place, key)

    def note(line: str) -> None:
        with log.open("a") as out:
            out.write(line + "\n")

    def plan(_: MessagesState) -> dict[str, Any]:
        note("plan")
        return {"messages": [AIMessage("I book both.", id="plan", tool_calls=CALLS)]}

    def hotel(_: MessagesState) -> dict[str, Any]:
        note("hotel")
        return {"messages": [ToolMessage("hotel booked", tool_call_id="call-1", id="hotel")]}

    def flight(_: MessagesState) -> dict[str, Any]:
        note("flight")
        if kill:
            wait_for_the_other_tool(saver)
            os.kill(os.getpid(), signal.SIGKILL)
        return {"messages": [ToolMessage("flight booked", tool_call_id="call-2", id="flight")]}

    def answer(_: MessagesState) -> dict[str, Any]:
        note("answer")
        return {"messages": [AIMessage("Both are booked.", id="answer")]}

    builder = StateGraph(MessagesState)
    for node in (plan, hotel, flight, answer):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "hotel")
    builder.add_edge("plan", "flight")
    builder.add_edge(["hotel", "flight"], "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def wait_for_the_other_tool(saver: SnapshotSaver, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = saver.get_tuple(THREAD)
        if found and any("hotel booked" in str(value) for _, _, value in found.pending_writes or ()):
            return
        time.sleep(0.02)
    raise SystemExit("the other tool did not return in time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", type=Path)
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    log = given.place.with_suffix(".log")
    graph = build(given.place, log, kill=given.kill)
    begun = graph.get_state(THREAD).values.get("messages")
    state = graph.invoke(None if begun else {"messages": [HumanMessage("Book Oslo", id="ask")]}, THREAD)
    for message in state["messages"]:
        print(f"{message.type}: {message.content}")


if __name__ == "__main__":
    main()
