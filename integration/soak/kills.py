"""``kill -9`` at any instant, again and again: of the store, the manager, proxy and agent, the memory server."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from integration.agents.client import Client
from integration.soak.conversation import Conversation, asnap
from integration.soak.mutations import Mutation, no_spool, nothing, remembered_late, saved_late
from integration.soak.processes import PATIENCE, Child, Say
from integration.soak.program import Case, Program, Tally
from integration.soak.sessions import MODES, SESSION, assess, save_version, store_at
from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.testing import make_message, make_snapshot

__all__ = ["PROGRAM"]

_REPOSITORY = Path(__file__).resolve().parents[2]


def _killed(work: Callable[[Say], None], chance: random.Random) -> list[int]:
    """What a process acknowledged before it was killed, at an instant that differs each time."""
    with Child(work) as child:
        heard = [child.line() for _ in range(chance.randrange(1, 9))]
        until = time.perf_counter() + chance.random() * 0.003
        while time.perf_counter() < until:
            pass
        child.kill()
        heard += child.lines()
    return [int(line) for line in heard if line is not None]


# The store --------------------------------------------------------------------------------------------------------


def _save(path: Path, key: str | None, mutate: Mutation, first: int, say: Say) -> None:
    async def work() -> None:
        async with store_at(path, key, background=True, segment_frames=5) as store:
            for number in range(first, sys.maxsize):
                say((await save_version(store, number)).seq)

    mutate()
    anyio.run(work)


def _store(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(1)
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        newest, acknowledged, life = 0, dict[int, int](), 0
        for _ in range(rounds):
            path = Path(folder) / str(life)
            heard = _killed(partial(_save, path, key, mutate, newest + 1), chance)
            acknowledged |= {seq: seq for seq in heard}
            tally.rounds += 1
            tally.acknowledged += len(heard)
            newest = anyio.run(assess, path, key, acknowledged, tally)
            if tally.rounds % 10 == 0:
                newest, acknowledged, life = 0, {}, life + 1
            if mutate is not nothing and tally.broken:
                break
    return tally


# The manager ------------------------------------------------------------------------------------------------------


class _Chat:
    """A session that somebody talks to."""

    session_id = SESSION

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages

    def snapshot(self) -> SessionSnapshot:
        """The session as it is."""
        return make_snapshot(session_id=SESSION, messages=self.messages, updated_at=datetime.now(UTC))


async def _restored(path: Path, key: str | None) -> tuple[Message, ...]:
    async with store_at(path, key) as store, SnapshotManager(store) as manager:
        try:
            return (await manager.restore(SESSION)).snapshot.messages
        except SnapshotNotFound:
            return ()


def _chat(path: Path, key: str | None, mutate: Mutation, seed: int, say: Say) -> None:
    chance = random.Random(seed)

    async def work() -> None:
        chat = _Chat(await _restored(path, key))
        config = SnapshotConfig(enable_persistence=True, snapshot_interval=600)
        async with store_at(path, key, segment_frames=5) as store, SnapshotManager(store, config) as manager:
            await manager.start_auto_snapshot(chat)
            for number in range(len(chat.messages) + 1, sys.maxsize):
                message = make_message(f"message {number}", id=f"m{number}")
                spooled = manager.record(SESSION, {"message": message.model_dump(mode="json")})
                chat.messages = (*chat.messages, message)
                if chance.random() < 0.2:
                    await manager.snapshot(chat)
                if spooled:
                    say(number)
                await anyio.lowlevel.checkpoint()

    mutate()
    anyio.run(work)


def _manager(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(2)
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        life = 0
        for _ in range(rounds):
            path = Path(folder) / str(life)
            heard = _killed(partial(_chat, path, key, mutate, chance.randrange(1 << 30)), chance)
            texts = [message.text for message in anyio.run(_restored, path, key)]
            tally.rounds += 1
            tally.acknowledged += len(heard)
            newest = max(heard, default=0)
            if len(texts) < newest:
                tally.lose(newest - len(texts), f"{newest} messages were recorded and {len(texts)} are there")
            if texts != [f"message {number}" for number in range(1, len(texts) + 1)]:
                tally.fault(f"the messages are {texts[-5:]}")
            if tally.rounds % 10 == 0 or tally.broken:
                life += 1
            if mutate is not nothing and tally.broken:
                break
    return tally


# The proxy and its agent ------------------------------------------------------------------------------------------


def _proxy(key: str | None, mutate: Mutation, rounds: int) -> Tally:
    tally, chance = Tally(), random.Random(3)
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        talk = Conversation(Path(folder), mutate=mutate, key=key or "")
        try:
            talk.start()
            talk.begin()
            for round_ in range(rounds):
                _talk_and_kill(talk, chance, ("both", "proxy", "agent")[round_ % 3], tally)
                if mutate is not nothing and tally.broken:
                    break
        finally:
            talk.end()
    return tally


def _talk_and_kill(talk: Conversation, chance: random.Random, who: str, tally: Tally) -> None:
    """A finished turn, one that is killed while it streams, and the way back: nothing that was seen is missing."""
    talk.hear(talk.say(chance.choice(("say yes", "tool", "think\\nsay so", "plan\\nstream 20"))))
    number = talk.say(f"stream {chance.randrange(20, 200)} 1")
    talk.hear_some(chance.randrange(60))
    talk.kill(who)
    if who == "agent":
        talk.hear(number)
        talk.end()
    talk.come_back(tally)
    tally.rounds += 1
    tally.other[f"kills of {who}"] += 1


# The memory server ------------------------------------------------------------------------------------------------


class _Server:
    """``asnap mcp`` over stdio."""

    def __init__(self, home: Path, mutate: Mutation) -> None:
        command = [*asnap(mutate), "mcp", "--store", str(home / "store"), "--project", str(home)]
        places = {"HOME": str(home), "XDG_STATE_HOME": str(home)}
        environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY), **places}
        self.client = Client(command, environment, home, home / "stderr.log")
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "soak", "version": "1"},
        }
        self.client.call("initialize", hello, PATIENCE)
        self.client.notify("notifications/initialized", {})

    def ask(self, **arguments: object) -> int:
        """Begin a call of the tool."""
        return self.client.send("tools/call", {"name": "session_store", "arguments": arguments})

    def load(self, key: str) -> int:
        """The number that is stored there; 0 if none is."""
        answer = self.client.answer(self.ask(action="load", namespace="notes", key=key), PATIENCE)
        content = (answer.get("result") or {}).get("structuredContent") or {}
        data = content.get("data")
        return int(data["number"]) if isinstance(data, dict) else 0


def _memory_server(mutate: Mutation, rounds: int) -> Tally:
    tally, chance, number = Tally(), random.Random(4), 0
    kept: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="asnap-soak-") as folder:
        home = Path(folder)
        server = _Server(home, mutate)
        try:
            for _ in range(rounds):
                for _save in range(chance.randrange(1, 12)):
                    number += 1
                    key = f"note-{number % 7}"
                    asked = server.ask(action="save", namespace="notes", key=key, data={"number": number})
                    answer = server.client.answer(asked, PATIENCE)
                    if (answer.get("result") or {"isError": True}).get("isError"):
                        raise RuntimeError(f"the memory server refused {key}: {answer}")
                    kept[key] = number
                    tally.acknowledged += 1
                server.ask(action="save", namespace="notes", key="last", data={"number": number})
                server.client.kill()
                tally.rounds += 1
                server = _Server(home, mutate)
                gone = [key for key, value in kept.items() if server.load(key) < value]
                if gone:
                    tally.lose(len(gone), f"entries {gone} were acknowledged and are gone or old")
                if mutate is not nothing and tally.broken:
                    break
        finally:
            server.client.kill()
    return tally


def _no_proc() -> str | None:
    return None if sys.platform == "linux" else "finds the agent's process through /proc"


def _cases() -> Iterator[Case]:
    for mode, key in MODES.items():
        yield Case(f"store, {mode}", partial(_store, key, nothing), 300, 15)
        yield Case(f"manager, {mode}", partial(_manager, key, nothing), 200, 10)
        yield Case(f"proxy and agent, {mode}", partial(_proxy, key, nothing), 60, 3, needs=_no_proc)
    yield Case("memory server", partial(_memory_server, nothing), 20, 1)
    yield Case("store", partial(_store, None, saved_late), 20, 20, without="writing before acknowledging")
    yield Case("manager", partial(_manager, None, no_spool), 20, 20, without="the spool")
    yield Case("proxy", partial(_proxy, None, no_spool), 3, 3, without="the spool", needs=_no_proc)
    late = partial(_memory_server, remembered_late)
    yield Case("memory server", late, 3, 3, without="writing before acknowledging")


PROGRAM = Program(
    "kill -9",
    "What was acknowledged, or shown to the user, is there after SIGKILL at any instant, exactly once.",
    tuple(_cases()),
)
