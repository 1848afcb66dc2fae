"""Sessions to carry around: histories with gaps, tags and a memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from snapshot_plugin import MemoryStore, SessionSnapshot
from snapshot_plugin.model import SessionConfig
from snapshot_plugin.store.engine import LogStore
from snapshot_plugin.testing import make_message, make_snapshot
from tests.unknown_fields import with_unknown

NOW = datetime(2026, 11, 16, 4, 0, tzinfo=UTC)


class Ticking:
    """A clock that goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self._now = NOW

    def __call__(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now


async def fill(
    store: LogStore, session_id: str = "Fix/auth", *, memory: bool = True, rounds: int = 3
) -> SessionSnapshot:
    """A session with a history, and the memory that belongs to it."""
    if memory:
        await store.save(make_snapshot(session_id=f"{session_id}+memory", memory={"k": "v"}))
    made = make_snapshot(
        "hello 👋",
        "\ud83d half a smile",
        session_id=session_id,
        title="Fix auth",
        tags=("auth",),
        config=SessionConfig(cwd="/home/ann/shop", additional_directories=("/home/ann", "/srv")),
        metadata={"working_memory": {"session_id": f"{session_id}+memory", "seq": 1}} if memory else {},
    )
    snapshot = with_unknown(made, unknown_field={"kept": [1, 2.5, None]})
    await store.save(snapshot, tags=["start"])
    for number in range(rounds):
        snapshot = snapshot.append(make_message(f"round {number}"))
        await store.save(snapshot, trigger="event", tags=[f"r{number}"] if number % 2 else [])
    return snapshot


def memory_store() -> MemoryStore:
    """A store whose clock does not stand still."""
    return MemoryStore(clock=Ticking())
