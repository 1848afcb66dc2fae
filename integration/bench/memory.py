"""What the project memory costs at full limits (10 MB stored), against the budgets of its specification.

``python -m integration.bench.memory [--rounds N] [--place DIR]`` prints one Markdown table; each value is the
slowest of all rounds, and in bold where it misses its budget.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from snapshot_plugin.memory import ProjectMemory

_REPOSITORY = Path(__file__).resolve().parents[2]
_BUDGETS = {
    "open": 100.0,
    "context": 200.0,
    "save, 100 KB": 50.0,
    "save, 1 MB": 50.0,
    "load, 1 MB": 20.0,
    "flush, 300 things seen": 100.0,
    "shutdown, 300 things seen": 500.0,
    "process start to first answer": 1500.0,
}
_OVERHEAD = 1024.0


@dataclass
class Times:
    """Milliseconds by question: on the clock, and of processor time."""

    taken: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    worked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def of(self, question: str, work: Awaitable[Any]) -> Any:
        """Do *work* and note how long it took."""
        started, worked = time.perf_counter(), time.process_time()
        result = await work
        self.taken[question].append((time.perf_counter() - started) * 1000)
        self.worked[question].append((time.process_time() - worked) * 1000)
        return result


def _text(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("abcdefghij klmnop,.", k=size))


async def _fill(place: Path, rng: random.Random) -> None:
    async with ProjectMemory(place, state=place.parent / "state") as memory:
        for number in range(48):
            shape = {"rows": [_text(rng, 150) for _ in range(1050)]}
            await memory.save("baselines", f"page-{number}", shape)
        errors = [
            {"fingerprint": f"E{n}", "message": _text(rng, 300), "occurrences": n, "first_session": 1}
            for n in range(500)
        ]
        await memory.save("errors", "history", {"entries": errors})
        endpoints = [{"endpoint": f"GET /{n}", "seen": n + 1, "shape": {"v": _text(rng, 2000)}} for n in range(200)]
        await memory.save("api_schema", "schema", {"endpoints": endpoints})
        await memory.save("noise", "config", {"rules": [f"noise-{n}-*" for n in range(200)]})
        await memory.save("large", "one", _text(rng, 1024 * 1024 - 100))
        for number in range(300):
            await memory.save("notes", f"note-{number}", _text(rng, 3000))
        for number in range(200):
            await memory.record_timing(f"GET /{number}", number)


async def _see(memory: ProjectMemory) -> None:
    for number in range(100):
        await memory.record_error(f"seen-{number}", message="x is undefined")
        await memory.observe_endpoint(f"GET /seen/{number}")
        await memory.record_timing(f"GET /{number}", 42)


async def _round(place: Path, times: Times, rng: random.Random) -> None:
    memory = ProjectMemory(place, state=place.parent / "state")
    await times.of("open", memory.__aenter__())
    try:
        await times.of("context", memory.load_context())
        await times.of("save, 100 KB", memory.save("baselines", "page-0", _text(rng, 100_000)))
        await times.of("save, 1 MB", memory.save("large", "one", _text(rng, 1024 * 1024 - 100)))
        await times.of("load, 1 MB", memory.load("large", "one"))
        await _see(memory)
        await times.of("flush, 300 things seen", memory.flush())
        await _see(memory)
    finally:
        await times.of("shutdown, 300 things seen", memory.__aexit__(None, None, None))


async def _first_answer(place: Path) -> None:
    environment = {"PYTHONPATH": str(_REPOSITORY), "XDG_STATE_HOME": str(place.parent)}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "snapshot_plugin", "mcp"], cwd=place, env=environment
    )
    client = Client(command)
    await client.__aenter__()
    try:
        assert not (await client.call_tool("load_session_context", {})).is_error
    finally:
        place.parent.joinpath("answered").write_text(str(time.perf_counter()))
        await client.__aexit__(None, None, None)


async def _overhead(place: Path) -> float:
    """Kilobytes an open memory holds, after it was used. What the process keeps for all of them is not counted."""
    async with ProjectMemory(place, state=place.parent / "state") as memory:
        await memory.load_context()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with ProjectMemory(place, state=place.parent / "state") as memory:
        await memory.load_context()
        await memory.load("large", "one")
        await memory.stats()  # a worker thread keeps the last result it had
        held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (held - before) / 1024


async def _measure(place: Path, rounds: int) -> tuple[Times, float, int]:
    rng, times = random.Random(7), Times()
    await _fill(place, rng)
    for _ in range(rounds):
        await _round(place, times, rng)
    for _ in range(min(rounds, 5)):
        started = time.perf_counter()
        await _first_answer(place)
        answered = float(place.parent.joinpath("answered").read_text())
        times.taken["process start to first answer"].append((answered - started) * 1000)
    async with ProjectMemory(place, state=place.parent / "state") as memory:
        stored = (await memory.stats()).total_bytes
    return times, await _overhead(place), stored


def _row(question: str, value: float, unit: str, budget: float, *rest: str) -> str:
    shown = f"{value:.1f} {unit}"
    cells = (question, f"< {budget:g} {unit}", f"**{shown}**" if value > budget else shown, *rest)
    return f"| {' | '.join(cells)} |"


def _middle(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ms" if values else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--place", type=Path, help="a directory on the disk to measure")
    options = parser.parse_args()
    gc.freeze()  # as asnap mcp does
    with tempfile.TemporaryDirectory(dir=options.place) as folder:
        place = Path(folder).resolve() / "project"
        place.mkdir()
        times, overhead, stored = anyio.run(_measure, place, options.rounds)
    print(f"With {stored / 1024 / 1024:.1f} MB stored, {options.rounds} rounds.\n")
    print("| question | budget | slowest | median | processor |\n|---|---|---|---|---|")
    for question, budget in _BUDGETS.items():
        taken = times.taken[question]
        print(_row(question, max(taken), "ms", budget, _middle(taken), _middle(times.worked[question])))
    print(_row("memory held while open", overhead, "KB", _OVERHEAD, "", ""))


if __name__ == "__main__":
    main()
