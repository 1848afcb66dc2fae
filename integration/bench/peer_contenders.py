"""The peers, each used as its own documentation does, durable as far as it goes by itself.

Whole-state savers are given the state as their frameworks hold it (a list of messages); the others get each turn's
new events. Nothing is configured beyond a path.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import anyio.to_thread

from integration.bench.contenders import Contender, State, contender

__all__ = ["ALL", "OURS", "Peer", "imports_of", "make"]

OURS = ("ours", "ours [fast]", "ours, encrypted", "ours, encrypted [fast]")
_OWN = dict(zip(OURS, ("plain", "plain [fast]", "encrypted", "encrypted [fast]"), strict=True))


class Peer(Contender, Protocol):
    """A contender that may also be able to load an earlier state."""

    async def load_early(self, turn: int) -> int | None:
        """The session as it was after that turn; None where no history is kept."""


class _Own:
    def __init__(self, kind: str, path: Path) -> None:
        self._inner: Any = contender(kind, path)

    async def save(self, state: State) -> None:
        await self._inner.save(state)

    async def load(self) -> int:
        return int(await self._inner.load())

    async def load_early(self, turn: int) -> int | None:
        return int(await self._inner.load(turn))

    async def close(self) -> None:
        await self._inner.close()


class _OpenAiAgents(_Own):
    async def load_early(self, turn: int) -> int | None:
        _ = turn
        return None


class LangGraph:
    """langgraph-checkpoint-sqlite: a checkpoint of the whole state per turn; WAL, SQLite's own synchronous."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = str(path / "checkpoints.db")
        self._saver: Any = None
        self._manager: Any = None
        self._items: list[Any] = []
        self._config: dict[str, Any] = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}

    async def _open(self) -> Any:
        if self._saver is None:
            saver = import_module("langgraph.checkpoint.sqlite.aio").AsyncSqliteSaver
            self._manager = saver.from_conn_string(self._path)
            self._saver = await self._manager.__aenter__()
        return self._saver

    async def save(self, state: State) -> None:
        """See `Contender`."""
        saver = await self._open()
        self._items = [*self._items, *state.items]
        empty = import_module("langgraph.checkpoint.base").empty_checkpoint()
        checkpoint = {**empty, "channel_values": {"messages": self._items}, "channel_versions": {"messages": 1}}
        metadata = {"source": "loop", "step": state.turn.number, "parents": {}}
        self._config = await saver.aput(self._config, checkpoint, metadata, {"messages": state.turn.number})

    async def load(self) -> int:
        """See `Contender`."""
        saver = await self._open()
        found = await saver.aget_tuple({"configurable": {"thread_id": "bench", "checkpoint_ns": ""}})
        return len(found.checkpoint["channel_values"]["messages"])

    async def load_early(self, turn: int) -> int | None:
        """See `Peer`."""
        saver = await self._open()
        everything = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        async with saver.conn.execute(
            "SELECT checkpoint_id FROM checkpoints ORDER BY checkpoint_id LIMIT 1 OFFSET ?", (turn - 1,)
        ) as cursor:
            row = await cursor.fetchone()
        everything["configurable"]["checkpoint_id"] = row[0]
        found = await saver.aget_tuple(everything)
        return len(found.checkpoint["channel_values"]["messages"])

    async def close(self) -> None:
        """See `Contender`."""
        if self._manager is not None:
            await self._manager.__aexit__(None, None, None)


class GoogleAdk:
    """google-adk's SqliteSessionService: five events a turn, one transaction and one connection each."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        service = import_module("google.adk.sessions.sqlite_session_service").SqliteSessionService
        self._service: Any = service(str(path / "sessions.db"))
        self._session: Any = None
        self._who = {"app_name": "bench", "user_id": "bench"}

    async def save(self, state: State) -> None:
        """See `Contender`."""
        if self._session is None:
            self._session = await self._service.create_session(**self._who, session_id="bench")
        for event in self._events(state):
            await self._service.append_event(self._session, event)

    @staticmethod
    def _events(state: State) -> list[Any]:
        event = import_module("google.adk.events.event").Event
        content = import_module("google.genai.types").Content
        part = import_module("google.genai.types").Part
        made = []
        for item in state.items:
            text = item.get("content") or item.get("output") or item.get("arguments")
            author = "user" if item.get("role") == "user" else "model"
            made.append(event(author=author, content=content(role=author, parts=[part(text=text)])))
        return made

    async def load(self) -> int:
        """See `Contender`."""
        session = await self._service.get_session(**self._who, session_id="bench")
        return len(session.events)

    async def load_early(self, turn: int) -> int | None:
        """See `Peer`: it keeps events, not states."""
        _ = turn
        return None

    async def close(self) -> None:
        """See `Contender`."""


class AgentFramework:
    """agent-framework's FileCheckpointStorage: one file with the whole state per turn, renamed into place."""

    def __init__(self, path: Path) -> None:
        framework = import_module("agent_framework")
        self._storage: Any = framework.FileCheckpointStorage(path)
        self._checkpoint: Any = framework.WorkflowCheckpoint
        self._path = path
        self._items: list[Any] = []

    async def save(self, state: State) -> None:
        """See `Contender`."""
        self._items = [*self._items, *state.items]
        checkpoint = self._checkpoint(
            workflow_name="bench",
            graph_signature_hash="bench",
            state={"messages": self._items},
            iteration_count=state.turn.number,
        )
        await self._storage.save(checkpoint)

    async def load(self) -> int:
        """See `Contender`."""
        latest = await self._storage.get_latest(workflow_name="bench")
        return len(latest.state["messages"])

    async def load_early(self, turn: int) -> int | None:
        """See `Peer`: by the file's number, which a program would have noted."""
        files = sorted(self._path.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
        found = await self._storage.load(files[turn - 1].stem)
        return len(found.state["messages"])

    async def close(self) -> None:
        """See `Contender`."""


class WholeFile:
    """The whole conversation as one gzipped JSON file, replaced durably: fsync, rename, fsync the directory."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._items: list[Any] = []

    async def save(self, state: State) -> None:
        """See `Contender`."""
        self._items = [*self._items, *state.items]
        await anyio.to_thread.run_sync(self._write, self._items)

    def _write(self, items: list[Any]) -> None:
        draft = self._path / "session.json.gz.tmp"
        with draft.open("wb") as file:
            file.write(gzip.compress(json.dumps(items).encode(), 6))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path / "session.json.gz")
        directory = os.open(self._path, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)

    async def load(self) -> int:
        """See `Contender`."""
        data = await anyio.to_thread.run_sync((self._path / "session.json.gz").read_bytes)
        return len(json.loads(gzip.decompress(data)))

    async def load_early(self, turn: int) -> int | None:
        """See `Peer`: there is only the newest."""
        _ = turn
        return None

    async def close(self) -> None:
        """See `Contender`."""


_PEERS: dict[str, tuple[Callable[[Path], Peer], str]] = {
    "openai-agents SQLiteSession": (lambda path: _OpenAiAgents("SQLiteSession", path), "agents"),
    "langgraph-checkpoint-sqlite": (LangGraph, "langgraph.checkpoint.sqlite.aio"),
    "google-adk SqliteSessionService": (GoogleAdk, "google.adk.sessions.sqlite_session_service"),
    "agent-framework FileCheckpointStorage": (AgentFramework, "agent_framework"),
    "whole-file gzip JSON": (WholeFile, "gzip"),
}
ALL = (*OURS, *_PEERS)
"""Everyone, ours first."""


def make(name: str, path: Path) -> Peer:
    """The contender of that name, with its files at *path*."""
    return _Own(_OWN[name], path) if name in _OWN else _PEERS[name][0](path)


def imports_of(name: str) -> str:
    """The module to import before the clock starts."""
    return "snapshot_plugin.store.filesystem" if name in _OWN else _PEERS[name][1]
