"""Who takes part: our store in four forms, openai-agents' `SQLiteSession`, SQLite by hand, and a bare file.

Every contender saves the same turns durably, one by one. What a caller has in hand before it saves (message
objects for us, dicts for the others) is made outside the measured time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import anyio.to_thread

from integration.bench.sessions import Turn
from snapshot_plugin.codec import compress
from snapshot_plugin.model import Message, Metrics, SessionSnapshot, TextBlock, ToolCallBlock
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["KINDS", "Contender", "Ours", "State", "compressor", "contender", "ours", "states"]

_START = datetime(2026, 3, 14, 9, 0, tzinfo=UTC)
_SESSION = "bench"
_KEY = "asnap-key-" + 43 * "A"
"""A generated key: no stretching, so that what is measured is the store and not scrypt."""


class State:
    """The session so far, in the form each contender wants it."""

    def __init__(self, turn: Turn, snapshot: SessionSnapshot) -> None:
        self.turn = turn
        self.snapshot = snapshot
        self.items = _items(turn)

    def of(self, session_id: str) -> State:
        """The same, of another session."""
        return State(self.turn, self.snapshot.evolve(session_id=session_id))


class Contender(Protocol):
    """Someone who keeps a session on disk."""

    async def save(self, state: State) -> None:
        """Make the newest turn durable."""

    async def load(self) -> int:
        """Read the whole session back; the number of messages or items."""

    async def close(self) -> None:
        """Finish everything."""


class Ours:
    """Our store: plain or encrypted; `compressor` says with which library."""

    def __init__(self, path: Path, *, encrypted: bool) -> None:
        self._store = FilesystemStore(path, key=_KEY if encrypted else None)

    async def save(self, state: State) -> None:
        """See `Contender`."""
        await self._store.save(state.snapshot, trigger="turn")

    async def load(self, at: int | None = None) -> int:
        """See `Contender`; *at* names an older snapshot."""
        return len((await self._store.load(_SESSION, at=at)).messages)

    async def list(self) -> int:
        """List every session; how many there are."""
        return len(await self._store.list())

    async def close(self) -> None:
        """See `Contender`."""
        await self._store.aclose()


class AgentsSession:
    """openai-agents: WAL, SQLite's own synchronous=FULL, one row an item, no compression, no history."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._session = import_module("agents").SQLiteSession(_SESSION, path / "sessions.db")

    async def save(self, state: State) -> None:
        """See `Contender`."""
        await self._session.add_items(state.items)

    async def load(self) -> int:
        """See `Contender`."""
        return len(await self._session.get_items())

    async def close(self) -> None:
        """See `Contender`."""
        self._session.close()


class PlainSqlite:
    """SQLite by hand: WAL, synchronous=FULL, one zlib blob a turn."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path / "turns.db", check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS turns (id INTEGER PRIMARY KEY, body BLOB NOT NULL)")

    async def save(self, state: State) -> None:
        """See `Contender`."""
        await anyio.to_thread.run_sync(self._save, state.items)

    def _save(self, items: list[Any]) -> None:
        body = zlib.compress(json.dumps(items).encode())
        with self._db:
            self._db.execute("INSERT INTO turns (body) VALUES (?)", (body,))

    async def load(self) -> int:
        """See `Contender`."""
        return await anyio.to_thread.run_sync(self._load)

    def _load(self) -> int:
        rows = self._db.execute("SELECT body FROM turns ORDER BY id").fetchall()
        return sum(len(json.loads(zlib.decompress(body))) for (body,) in rows)

    async def close(self) -> None:
        """See `Contender`."""
        self._db.close()


class BareAppend:
    """The floor: lines of JSON behind one another in a file, one sync each. No promise beyond that."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._file = (path / "turns.jsonl").open("ab+", buffering=0)

    async def save(self, state: State) -> None:
        """See `Contender`."""
        await anyio.to_thread.run_sync(self._save, state.items)

    def _save(self, items: list[Any]) -> None:
        self._file.write(json.dumps(items).encode() + b"\n")
        os.fdatasync(self._file.fileno())

    async def load(self) -> int:
        """See `Contender`."""
        return await anyio.to_thread.run_sync(self._load)

    def _load(self) -> int:
        self._file.seek(0)
        return sum(len(json.loads(line)) for line in self._file)

    async def close(self) -> None:
        """See `Contender`."""
        self._file.close()


KINDS = ("plain", "plain [fast]", "encrypted", "encrypted [fast]", "SQLiteSession", "plain SQLite", "bare append")
"""Every contender by name; the first four are ours, the last is the floor."""


def contender(kind: str, path: Path) -> Contender:
    """The contender of that name, with its files at *path*."""
    others: dict[str, Callable[[Path], Contender]]
    others = {"SQLiteSession": AgentsSession, "plain SQLite": PlainSqlite, "bare append": BareAppend}
    return others[kind](path) if kind in others else ours(kind, path)


def ours(kind: str, path: Path) -> Ours:
    """One of our four forms."""
    return Ours(path, encrypted=kind.startswith("encrypted"))


@contextlib.contextmanager
def compressor(kind: str) -> Iterator[None]:
    """Compress the way *kind* does: isal is installed here, and only the ``[fast]`` forms may use it."""
    if kind.endswith("[fast]"):
        yield
    else:
        with patch.object(compress, "_library", lambda: zlib):
            yield


def states(turns: Iterable[Turn], *, session_id: str = _SESSION) -> Iterator[State]:
    """The session after each turn."""
    snapshot = SessionSnapshot(session_id=session_id, created_at=_START, updated_at=_START, title="A long session")
    for turn in turns:
        snapshot = snapshot.append(
            *_messages(turn),
            updated_at=_START + timedelta(minutes=turn.number),
            metrics=Metrics(turns=turn.number, total_tokens=4200 * turn.number),
        )
        yield State(turn, snapshot)


def _messages(turn: Turn) -> tuple[Message, Message]:
    call = ToolCallBlock(
        tool_call_id=f"call_{turn.number}", title=turn.tool, kind="execute", status="completed",
        raw_input=turn.arguments, content=[{"type": "content", "content": {"type": "text", "text": turn.output}}],
    )  # fmt: skip
    return (
        Message(role="user", content=turn.question),
        Message(role="assistant", content=(TextBlock(text=turn.plan), call, TextBlock(text=turn.answer))),
    )


def _items(turn: Turn) -> list[Any]:
    """The same turn as the items that openai-agents keeps."""
    call = f"call_{turn.number}"
    return [
        {"role": "user", "content": turn.question},
        {"role": "assistant", "content": turn.plan},
        {"type": "function_call", "call_id": call, "name": turn.tool, "arguments": json.dumps(turn.arguments)},
        {"type": "function_call_output", "call_id": call, "output": turn.output},
        {"role": "assistant", "content": turn.answer},
    ]
