"""What the proxy costs: a client and a scripted agent, direct and through ``asnap run``, in one run.

``python -m integration.bench.relay [--quick]`` prints one Markdown table. A value in bold misses its goal. The
agent is this file (``--agent``): it answers immediately, so only the cost of the connection is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

_STILL = 20
_CHUNK = "eight words that a model might well say "


class Goal(NamedTuple):
    """A line of the table: what was measured on both roads, and how large the difference (or value) may be."""

    name: str
    direct: float
    proxied: float
    value: float
    limit: float
    unit: str
    at_least: bool = False

    def row(self) -> str:
        """The line, with a missed goal in bold."""
        missed = self.value < self.limit if self.at_least else self.value > self.limit
        shown = f"**{self.value:,.2f}**" if missed else f"{self.value:,.2f}"
        goal = f"{'≥' if self.at_least else '≤'} {self.limit:,g} {self.unit}"
        return f"| {self.name} | {self.direct:,.2f} | {self.proxied:,.2f} | {shown} | {goal} |"


class Road:
    """A client's end of a connection to the agent, direct or through the proxy."""

    def __init__(self, command: list[str]) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number = 0
        self._answer = b"{}"
        self.session = ""

    def ask(self, method: str, params: dict[str, Any]) -> tuple[float, int]:
        """Seconds until the answer, and how many notifications came before it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._number += 1
        line = (
            json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}).encode() + b"\n"
        )
        began = time.perf_counter()
        self.process.stdin.write(line)
        self.process.stdin.flush()
        count = 0
        while b'"method"' in (line := self.process.stdout.readline()):
            count += 1
        self._answer = line
        return time.perf_counter() - began, count

    def prompt(self, chunks: int) -> tuple[float, int]:
        """A turn with that many chunks."""
        prompt = [{"type": "text", "text": str(chunks)}]
        return self.ask("session/prompt", {"sessionId": self.session, "prompt": prompt})

    def resident(self, field: str = "VmRSS") -> float:
        """Megabytes the first process of the road holds (``VmHWM``: held at most); 0 where the system is silent."""
        status = Path(f"/proc/{self.process.pid}/status")
        return int(status.read_text().split(f"{field}:")[1].split()[0]) / 1024 if status.exists() else 0.0

    def settled(self) -> float:
        """`resident` once it has not changed for two seconds: the snapshot of the turn is stored."""
        seen = [self.resident()]
        while len(seen) < _STILL or len(set(seen[-_STILL:])) > 1:
            time.sleep(0.1)
            seen.append(self.resident())
        return seen[-1]

    def processor_time(self) -> float:
        """Seconds the first process of the road has computed; 0 where the system does not say."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def open(self) -> float:
        """Shake hands and begin a session; seconds from the start of the process to the first answer."""
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        first = time.perf_counter() - self.started
        self.ask("session/new", {"cwd": "/", "mcpServers": []})
        self.session = json.loads(self._answer)["result"]["sessionId"]
        return first

    def close(self) -> None:
        """Hang up."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)


def agent() -> None:
    """The scripted agent: a prompt is the number of chunks to send."""
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": _CHUNK}}
    note = {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": update}}
    line = json.dumps(note) + "\n"
    for raw in sys.stdin:
        message = json.loads(raw)
        method, result = message.get("method"), {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {}}
        elif method == "session/new":
            result = {"sessionId": "s1"}
        elif method == "session/prompt":
            left = int(message["params"]["prompt"][-1]["text"])
            while left > 0:
                sys.stdout.write(line * min(left, 100))
                left -= 100
            result = {"stopReason": "end_turn"}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}) + "\n")
        sys.stdout.flush()


def measure(*, rounds: int, flood: int, huge: int, turns: int) -> list[Goal]:
    """Both roads side by side, round after round, so that a slow moment hits both."""
    place = Path(tempfile.mkdtemp(prefix="asnap-bench-relay-"))
    bare = [sys.executable, str(Path(__file__).resolve()), "--agent"]
    proxy = [sys.executable, "-m", "snapshot_plugin", "run", "--store", str(place), "--", *bare]
    try:
        starts = [(_first(bare), _first(proxy)) for _ in range(5)]
        roads = Road(bare), Road(proxy)
        for road in roads:
            road.open()
        trips = [tuple(road.ask("_bench/ping", {})[0] * 1e3 for road in roads) for _ in range(rounds)]
        short = [tuple(road.prompt(1)[0] * 1e3 for road in roads) for _ in range(rounds)]
        began = [road.processor_time() for road in roads]
        floods = [road.prompt(flood) for road in roads]
        worked = [(road.processor_time() - since) / flood * 1e6 for road, since in zip(roads, began, strict=True)]
        resident = roads[1].settled()
        roads[1].prompt(huge)
        beyond = resident + huge * len(_CHUNK) / 1e6
        grown, peak = roads[1].settled() - beyond, roads[1].resident("VmHWM") - beyond
        for _ in range(turns):
            roads[1].prompt(1)
        for road in roads:
            road.close()
        load = _load(proxy, roads[1].session)
        return [
            _pair("round trip, ms", trips, 0.2, "ms more"),
            _pair("one-chunk turn, durable, ms", short, 1.0, "ms more"),
            _rate("notifications a second", floods),
            Goal("processor time of a notification, µs", worked[0], worked[1], worked[1], 12.5, "µs"),
            _pair("start to first answer, s", starts, 0.3, "s more"),
            Goal("resident memory, MB", 0.0, resident, resident, 80, "MB"),
            Goal(f"memory over {huge:,} chunks, beyond their text, MB", 0.0, grown, grown, 20, "MB"),
            Goal("the same at its peak, while the snapshot is encoded, MB", 0.0, peak, peak, 20, "MB"),
            Goal(f"load of {turns + rounds + 2:,} turns, s", 0.0, load, load, 2.0, "s"),
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _first(command: list[str]) -> float:
    road = Road(command)
    seconds = road.open()
    road.close()
    return seconds


def _load(command: list[str], session_id: str) -> float:
    road = Road(command)
    road.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    seconds, updates = road.ask("session/load", {"sessionId": session_id, "cwd": "/", "mcpServers": []})
    road.close()
    assert updates, "nothing was recorded, so nothing was measured"
    return seconds


def _pair(name: str, pairs: list[Any], limit: float, unit: str) -> Goal:
    direct, proxied = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Goal(name, direct, proxied, proxied - direct, limit, unit)


def _rate(name: str, floods: list[tuple[float, int]]) -> Goal:
    direct, proxied = (count / seconds for seconds, count in floods)
    return Goal(name, direct, proxied, proxied, 80_000, "a second", at_least=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers: under half a minute")
    parser.add_argument("--agent", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.agent:
        agent()
        return
    sizes = (50, 20_000, 50_000, 100) if options.quick else (500, 200_000, 1_000_000, 4_500)
    rounds, flood, huge, turns = sizes
    print("| what | direct | asnap run | difference or value | goal |\n|---|---|---|---|---|")
    for goal in measure(rounds=rounds, flood=flood, huge=huge, turns=turns):
        print(goal.row())


if __name__ == "__main__":
    main()
