"""The race: every contender saves each turn, in a new order each time; then loads, in processes of their own."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import anyio.to_thread

from integration.bench.contenders import State, compressor, states
from integration.bench.measure import quantile
from integration.bench.once import warm_up
from integration.bench.peer_contenders import ALL, imports_of, make
from integration.bench.sessions import Turn, turns

__all__ = ["EARLY", "Result", "race", "syncs_per_save"]

EARLY = 10
"""The early snapshot that is loaded: the one after this turn."""
_COUNTED = (5, 15)


@dataclass
class Result:
    """What one contender did with one session."""

    name: str
    path: Path
    seconds: list[float] = field(default_factory=list)
    bytes_on_disk: int = 0
    gave_up: bool = False
    load: float | None = None
    load_early: float | None = None

    @property
    def total(self) -> float:
        """All saves together."""
        return sum(self.seconds)

    def tenth(self, share: float, *, last: bool = True) -> float:
        """A quantile of the last (or first) tenth of the saves."""
        some = max(1, len(self.seconds) // 10)
        return quantile(self.seconds[-some:] if last else self.seconds[:some], share)

    @property
    def growth(self) -> float:
        """The median of the last tenth against that of the first."""
        return self.tenth(0.5) / self.tenth(0.5, last=False)

    def measure_loads(self, *, repeat: int) -> None:
        """Load the newest and an early state in fresh processes."""
        newest = [_in_a_process(self.name, self.path, "load") for _ in range(repeat)]
        self.load = statistics.median(seconds for seconds in newest if seconds is not None)
        early = [_in_a_process(self.name, self.path, "early") for _ in range(repeat)]
        known = [seconds for seconds in early if seconds is not None]
        self.load_early = statistics.median(known) if known else None


async def race(material: Sequence[Turn], place: Path, *, budget: float, seed: int) -> list[Result]:
    """Save *material* turn by turn with everyone."""
    home = place / str(len(material))
    results = {name: Result(name, home / str(number)) for number, name in enumerate(ALL)}
    racers = {name: make(name, result.path) for name, result in results.items()}
    order, rng = list(ALL), random.Random(seed)
    for state in states(material):
        rng.shuffle(order)
        for name in order:
            await _one_save(racers[name], results[name], state, budget)
    for name, racer in racers.items():
        await racer.close()
        results[name].bytes_on_disk = sum(f.stat().st_size for f in results[name].path.rglob("*") if f.is_file())
    return list(results.values())


async def _one_save(racer: object, result: Result, state: State, budget: float) -> None:
    if result.total > budget:
        result.gave_up = True
        return
    with compressor(result.name):
        start = time.perf_counter()
        await racer.save(state)  # type: ignore[attr-defined]
        result.seconds.append(time.perf_counter() - start)


def _in_a_process(name: str, path: Path, action: str) -> float | None:
    command = [sys.executable, "-m", "integration.bench.peer_runs", action, name, str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds: float | None = json.loads(out.stdout)
    return seconds


def syncs_per_save(place: Path) -> dict[str, float | None]:
    """How often each contender forces its data to disk in a save, counted by strace; None without strace."""
    if not shutil.which("strace"):
        return dict.fromkeys(ALL)
    few, many = _COUNTED
    return {
        name: (_syncs(name, place / "many", many) - _syncs(name, place / "few", few)) / (many - few) for name in ALL
    }


def _syncs(name: str, path: Path, saves: int) -> int:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    log = path / "strace.txt"
    trace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(log)]
    command = [sys.executable, "-m", "integration.bench.peer_runs", f"save{saves}", name, str(path / "store")]
    subprocess.run([*trace, *command], check=True, capture_output=True)
    return sum("sync(" in line for line in log.read_text().splitlines())


async def _timed(action: str, name: str, path: Path) -> float | None:
    racer = make(name, path)
    await anyio.to_thread.run_sync(int)  # a program that gets here has its event loop and a thread running
    if action.startswith("save"):
        for state in states(turns(int(action.removeprefix("save")), seed=1)):
            await racer.save(state)
        await racer.close()
        return None
    warm_up()
    gc.collect()
    gc.freeze()  # what was imported is not the store's to walk
    start = time.perf_counter()
    found = await (racer.load() if action == "load" else racer.load_early(EARLY))
    seconds = time.perf_counter() - start
    await racer.close()
    return seconds if found is not None else None


def main(action: str, name: str, path: str) -> None:
    import_module(imports_of(name))
    with compressor(name):
        print(json.dumps(asyncio.run(_timed(action, name, Path(path)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
