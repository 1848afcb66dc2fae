"""The measurements themselves, and what is made of the numbers."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.bench.contenders import KINDS, State, compressor, contender, ours, states
from integration.bench.sessions import Turn, turns
from snapshot_plugin.codec.document import message_line

__all__ = [
    "Run",
    "all_saves",
    "fresh_process",
    "make_listed",
    "paired",
    "quantile",
    "run_saves",
    "steady_ratio",
    "tenth_ratio",
]


@dataclass
class Run:
    """One or more sessions of the same length, saved by every contender side by side."""

    length: int
    seconds: dict[str, list[list[float]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """For each contender and each session: the time of every save, in order."""
    bytes_on_disk: dict[str, int] = field(default_factory=dict)
    gzipped: int = 0
    stores: dict[str, Path] = field(default_factory=dict)


async def run_saves(material: Sequence[Turn], place: Path, *, sessions: int, seed: int) -> Run:
    """Save *material* turn by turn with every contender, who go in a new order each turn."""
    run = Run(len(material))
    for number in range(sessions):
        run.stores = {kind: place / f"{len(material)}-{number}-{index}" for index, kind in enumerate(KINDS)}
        await _one_session(run, material, random.Random(seed + number))
    run.bytes_on_disk = {kind: _size(path) for kind, path in run.stores.items()}
    return run


async def _one_session(run: Run, material: Sequence[Turn], rng: random.Random) -> None:
    contenders = {kind: contender(kind, path) for kind, path in run.stores.items()}
    for kind in KINDS:
        run.seconds[kind].append([])
    order = list(KINDS)
    state: State | None = None
    for state in states(material):
        rng.shuffle(order)
        for kind in order:
            with compressor(kind):
                start = time.perf_counter()
                await contenders[kind].save(state)
                run.seconds[kind][-1].append(time.perf_counter() - start)
    for each in contenders.values():
        await each.close()
    if state:
        run.gzipped = len(gzip.compress(_transcript(state), 6))


def _transcript(state: State) -> bytes:
    """The final conversation as lines of JSON, as one would export it."""
    return b"\n".join(message_line(message) for message in state.snapshot.messages)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def paired(run: Run, kind: str, other: str) -> list[float]:
    """How long *kind* took for each turn, in terms of what *other* took for the same turn."""
    return [a / b for a, b in zip(all_saves(run, kind), all_saves(run, other), strict=True)]


def all_saves(run: Run, kind: str) -> list[float]:
    """The time of every save, session after session."""
    return list(itertools.chain.from_iterable(run.seconds[kind]))


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which the share *q* of all values lies."""
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def tenth_ratio(run: Run, kind: str, q: float) -> float:
    """The last tenth of the saves against the first, by the quantile *q*."""
    first, last = _tenths(run, run.seconds[kind])
    return quantile(last, q) / quantile(first, q)


def steady_ratio(run: Run, kind: str, other: str) -> float:
    """As `tenth_ratio` of the median, in terms of what *other* took for the same turns, which takes drift out."""
    pairs = zip(run.seconds[kind], run.seconds[other], strict=True)
    first, last = _tenths(run, [[a / b for a, b in zip(*pair, strict=True)] for pair in pairs])
    return quantile(last, 0.5) / quantile(first, 0.5)


def _tenths(run: Run, sessions: Sequence[list[float]]) -> tuple[list[float], list[float]]:
    tenth = max(1, run.length // 10)
    first = [value for session in sessions for value in session[:tenth]]
    return first, [value for session in sessions for value in session[-tenth:]]


async def make_listed(place: Path, *, sessions: int, length: int) -> dict[str, Path]:
    """A plain and an encrypted store with many sessions. They are short: a list reads the newest frame only."""
    material = turns(length, seed=11)
    paths = {kind: place / f"list-{kind}" for kind in ("plain", "encrypted")}
    for kind, path in paths.items():
        store = ours(kind, path)
        for number in range(sessions):
            for state in states(material, session_id=f"session-{number:05d}"):
                await store.save(state)
        await store.close()
    return paths


def fresh_process(kind: str, path: Path, action: str, *, at: int | None = None) -> float:
    """Seconds of one action in a new process, from opening the files on; imports are not counted."""
    command = [sys.executable, "-m", "integration.bench.once", kind, str(path), action, str(at or "")]
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    return float(json.loads(out.stdout)["seconds"])
