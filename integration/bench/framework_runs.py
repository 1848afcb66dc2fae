"""A framework's own durable store and our adapter side by side; runs in its environment and prints JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

ASK, ANSWER = "please look at the tests again " * 8, "the failing case is in the parser, line 42; " * 90
"""A prompt of 250 characters and an answer of 4,000, as coding agents have with their tools' output."""


def text(kind: str, number: int) -> str:
    rng = random.Random(number)
    words = kind.split()
    rng.shuffle(words)
    return f"{number}: {' '.join(words)}"


def paired(turns: int, contenders: dict[str, Callable[[int], None]]) -> dict[str, list[float]]:
    """The seconds of each turn for each contender, who go in a new order each turn."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order, rng = list(contenders), random.Random(7)
    for number in range(turns):
        rng.shuffle(order)
        for name in order:
            start = time.perf_counter()
            contenders[name](number)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def late(seconds: Sequence[float]) -> float:
    """What a turn takes at the end: the median of the last fifth."""
    return statistics.median(seconds[-max(1, len(seconds) // 5) :])


def timed(work: Callable[[], Any], times: int = 3) -> float:
    out = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        out.append(time.perf_counter() - start)
    return min(out)


def size(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def list_20(saver: Any, config: Any) -> list[Any]:
    return list(saver.list(config, limit=20))


def load(runner: asyncio.Runner, session: Any) -> Any:
    return runner.run(session.get_items())


def langgraph(turns: int, place: Path) -> dict[str, float]:
    from langchain_core.messages import AIMessage, HumanMessage  # noqa: PLC0415 — its environment alone has it
    from langgraph.channels.delta import DeltaChannel  # noqa: PLC0415 — as above
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 — as above
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415 — as above

    from snapshot_plugin.frameworks.langgraph import SnapshotSaver  # noqa: PLC0415 — as above

    def joined(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
        return [*(state or []), *(each for write in writes for each in write)]

    # A class's annotations would be text here, which cannot name what this function imports.
    Deltas: Any = TypedDict("Deltas", {"messages": Annotated[list[Any], DeltaChannel(joined, list)]})  # noqa: N806
    config: Any = {"configurable": {"thread_id": "t"}}
    counter = iter(range(1 << 30))

    def graph(saver: Any, state: Any) -> Any:
        def model(_: Any) -> dict[str, Any]:
            number = next(counter)
            return {"messages": [AIMessage(text(ANSWER, number), id=f"a{number}")]}

        builder = StateGraph(state)
        builder.add_node("model", model)
        builder.add_edge(START, "model")
        return builder.compile(checkpointer=saver)

    def sqlite(name: str) -> Any:
        (place / name).mkdir()
        return SqliteSaver(sqlite3.connect(place / name / "db.sqlite", check_same_thread=False))

    savers = {"ours": SnapshotSaver(place / "ours"), "theirs": sqlite("theirs"), "delta": sqlite("delta")}
    graphs = {name: graph(saver, Deltas if name == "delta" else MessagesState) for name, saver in savers.items()}

    def turn(name: str) -> Callable[[int], None]:
        def run(number: int) -> None:
            asked = HumanMessage(text(ASK, number), id=f"q{number}")
            graphs[name].invoke({"messages": [asked]}, config, durability="sync")

        return run

    seconds = paired(turns, {name: turn(name) for name in graphs})
    listed = {name: timed(partial(list_20, saver, config)) for name, saver in savers.items()}
    disk = {name: size(place / name) for name in savers}
    return {
        "turn, against SqliteSaver": late(seconds["ours"]) / late(seconds["theirs"]),
        "turn, against SqliteSaver with DeltaChannel": late(seconds["ours"]) / late(seconds["delta"]),
        "list(limit=20), against SqliteSaver": listed["ours"] / listed["theirs"],
        "disk, against SqliteSaver": disk["ours"] / disk["theirs"],
        "our turn, ms": late(seconds["ours"]) * 1000,
        "our disk, MB": disk["ours"] / 1e6,
    }


def openai_agents(turns: int, place: Path) -> dict[str, float]:
    from agents.memory import SQLiteSession  # noqa: PLC0415 — its environment alone has it

    from snapshot_plugin import FilesystemStore  # noqa: PLC0415 — as above
    from snapshot_plugin.frameworks.openai_agents import SnapshotSession  # noqa: PLC0415 — as above

    (place / "theirs").mkdir()
    sessions: dict[str, Any] = {
        "ours": SnapshotSession("s", place / "ours"),
        "theirs": SQLiteSession("s", place / "theirs" / "db.sqlite"),
    }
    with asyncio.Runner() as runner:

        def turn(name: str) -> Callable[[int], None]:
            def run(number: int) -> None:
                said = [
                    {"role": "user", "content": text(ASK, number)},
                    {"role": "assistant", "content": text(ANSWER, number)},
                ]
                runner.run(sessions[name].add_items(said))

            return run

        seconds = paired(turns, {name: turn(name) for name in sessions})
        cold: dict[str, Callable[[], Any]] = {
            "ours": lambda: runner.run(SnapshotSession("s", FilesystemStore(place / "ours")).get_items()),
            "theirs": lambda: runner.run(SQLiteSession("s", place / "theirs" / "db.sqlite").get_items()),
        }
        loads = {name: timed(work, 5) for name, work in cold.items()}
        warm = {name: timed(partial(load, runner, session), 5) for name, session in sessions.items()}
    disk = {name: size(place / name) for name in sessions}
    return {
        "save, against SQLiteSession": late(seconds["ours"]) / late(seconds["theirs"]),
        "cold load, against SQLiteSession": loads["ours"] / loads["theirs"],
        "load in the same process, against SQLiteSession": warm["ours"] / warm["theirs"],
        "disk, against SQLiteSession": disk["ours"] / disk["theirs"],
        "our save, ms": late(seconds["ours"]) * 1000,
        "our cold load, ms": loads["ours"] * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["langgraph", "openai_agents"])
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--place", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.place) as place:
        run = langgraph if given.framework == "langgraph" else openai_agents
        print(json.dumps(run(given.turns, Path(place))))


if __name__ == "__main__":
    main()
