"""How the golden directories of releases were written: by the commands and the API of that release itself::

    cd "$(mktemp -d)" && PYTHONPATH=<its source> python <here>/write_release.py <here>/releases/<version>

Run it for a new release, never again for an old one. 0.1.0 is commit bf32745b, 0.2.0 is commit db633bca. It uses
nothing that one of them lacks; the sessions of frameworks are added where the frameworks and their adapters are
installed (0.2.0: openai-agents, langgraph).

A directory has, for a plain and an encrypted store: the store as killed processes left it, the operation log of its
user, and ``expected.json``: what the release itself read in it, and what it had acknowledged.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from snapshot_plugin import FilesystemStore, persistent_session
from snapshot_plugin.codec.sources import KeyFile
from snapshot_plugin.testing import FixedClock, make_message, make_snapshot

KEY = "asnap-key-" + base64.urlsafe_b64encode(b"golden store; this is no secret!").decode().rstrip("=")
_WORDS = ("reads", "the", "file", "and", "says", "what", "is", "in", "it", "then", "changes", "one", "line")
_AGENT = """
import json, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def say(session, text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    send(method="session/update", params={"sessionId": session, "update": update})

for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    if method == "initialize":
        send(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=asked["id"], result={"sessionId": sys.argv[1]})
    elif method == "session/prompt":
        session, text = params["sessionId"], params["prompt"][0]["text"]
        call = {"sessionUpdate": "tool_call", "toolCallId": "call " + text, "title": "read", "kind": "read",
                "status": "pending", "rawInput": {"path": "notes.txt"}}
        send(method="session/update", params={"sessionId": session, "update": call})
        say(session, "half of the answer to " + text)
        if text == "hang":
            sys.exit(sys.stdin.read())  # once the proxy is dead
        done = {"sessionUpdate": "tool_call_update", "toolCallId": "call " + text, "status": "completed",
                "content": [{"type": "content", "content": {"type": "text", "text": "what the file says"}}]}
        send(method="session/update", params={"sessionId": session, "update": done})
        say(session, ", and the other half")
        send(id=asked["id"], result={"stopReason": "end_turn"})
"""


class Release:
    """One store that is being written, and its user's directory."""

    def __init__(self, place: Path, *, encrypted: bool) -> None:
        self.place, self.home = place / "store", place / "home"
        self.key = place.parent / "key.txt" if encrypted else None
        self.acknowledged: dict[str, list[str]] = {}

    def store(self, **options: Any) -> FilesystemStore:
        return FilesystemStore(self.place, key=KeyFile(self.key) if self.key else None, background=False, **options)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        home = {f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("STATE", "CACHE", "CONFIG", "DATA")}
        key = {"ASNAP_KEY_FILE": str(self.key)} if self.key else {}
        return {**kept, **home, **key, "HOME": str(self.home), "ASNAP_STORE": str(self.place)}

    def asnap(self, *words: str) -> Any:
        command = [sys.executable, "-m", "snapshot_plugin", *words]
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=60)
        if ran.returncode:
            raise SystemExit(f"{words}: {ran.stderr}")
        return json.loads(ran.stdout) if "--json" in words else ran.stdout

    @contextlib.contextmanager
    def client(self, session_id: str) -> Iterator[Client]:
        """A client of ``asnap run`` with an agent that calls its session *session_id*."""
        Path("agent.py").write_text(_AGENT, "utf-8")
        command = [sys.executable, "-m", "snapshot_plugin", "run", "--", "python3", "agent.py", session_id]
        process = subprocess.Popen(
            command, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        client = Client(process)
        client.ask("initialize", protocolVersion=1, clientCapabilities={})
        client.session_id = client.ask("session/new", cwd="/project", mcpServers=[])["sessionId"]
        yield client
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)


class Client:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.session_id, self._count = process, "", 0

    def send(self, method: str, **params: Any) -> int:
        self._count += 1
        message = {"jsonrpc": "2.0", "id": self._count, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        return self._count

    def ask(self, method: str, **params: Any) -> Any:
        number = self.send(method, **params)
        while True:
            message = self.read()
            if message.get("id") == number and "method" not in message:
                return message["result"]

    def read(self) -> dict[str, Any]:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise SystemExit("asnap run has ended")
        message: dict[str, Any] = json.loads(line)
        return message

    def prompt(self, text: str) -> None:
        self.ask("session/prompt", sessionId=self.session_id, prompt=[{"type": "text", "text": text}])

    def hang_and_kill(self) -> None:
        """A turn in the middle of which the proxy and its agent are killed."""
        self.send("session/prompt", sessionId=self.session_id, prompt=[{"type": "text", "text": "hang"}])
        while "half of the answer to hang" not in json.dumps(self.read()):
            pass
        self.process.send_signal(signal.SIGKILL)


def record(release: Release) -> None:
    with release.client("recorded") as client:
        client.prompt("one")
        client.prompt("two")


def kill(release: Release) -> None:
    """Sessions whose owners were killed. Each is hidden from the commands that follow, which would recover it."""
    sessions, hidden = release.place / "sessions", release.place / "hidden"
    hidden.mkdir()
    for session_id, before in (("killed", ["one"]), ("killed-at-first", []), ("torn", [])):
        with release.client(session_id) as client:
            for text in before:
                client.prompt(text)
            client.hang_and_kill()
        words = [word for text in before for word in (text, f"half of the answer to {text}, and the other half")]
        release.acknowledged[session_id] = [*words, "hang", "half of the answer to hang"]
        (sessions / session_id).rename(hidden / session_id)
    for path in hidden.iterdir():
        path.rename(sessions / path.name)
    hidden.rmdir()
    with (sessions / "torn" / "live").open("ab") as spool:
        spool.write(b"\x09\0\0\0\0\0\0\0\x10")  # an append that was cut off


def text(number: int, length: int = 30) -> str:
    return f"{number} " + " ".join(_WORDS[(number * 7 + at * 3) % len(_WORDS)] for at in range(length))


async def save(release: Release) -> None:
    clock = FixedClock(datetime(2023, 3, 1, 12, tzinfo=UTC))
    async with release.store(clock=clock) as store:
        for name, count in (("hot", 5), ("packed", 40), ("labelled", 2), ("parent", 4), ("dropped", 4)):
            snapshot = make_snapshot(text(0), session_id=name, title=f"the session {name}")
            for number in range(1, count):
                await store.save(snapshot, tags=["milestone"] if number == 3 else ())
                snapshot = snapshot.append(make_message(text(number, 30 if name != "packed" else 200)))
            await store.save(snapshot)
        await store.compact("packed")
        await store.save((await store.load("packed")).append(make_message("after the packs")))
        for name in ("damaged", "repaired"):
            snapshot = make_snapshot("first", session_id=name)
            for word in ("second", "third", "fourth"):
                await store.save(snapshot)
                snapshot = snapshot.append(make_message(word))
            await store.save(snapshot)
        for number in range(3):
            clock.advance(timedelta(days=300))
            await store.save(make_snapshot(f"deleted as number {number}", session_id="deleted"))
            await store.delete("deleted")
        if release.key:
            await store.save(make_snapshot("before the rotation", session_id="rotated"))
            await store.rotate_key()
            rotated = (await store.load("rotated")).append(make_message("after the rotation"))
            await store.save(rotated)


class _Agent:
    """What `persistent_session` keeps the messages of."""

    def __init__(self) -> None:
        self.history: list[dict[str, str]] = []


async def remember(release: Release) -> None:
    agent = _Agent()
    async with release.store() as store, persistent_session(agent, agent_id="with-memory", store=store) as session:
        await session.memory.set("preference", {"theme": "dark"})
        agent.history += [{"role": "user", "content": "remember that"}]
    async with release.store() as store:
        assert {"with-memory", "with-memory+memory"} <= {meta.session_id for meta in await store.list()}


def change(release: Release) -> None:
    """What a person does with commands; each is in the operation log."""
    for words in (
        ("rename", "labelled", "a new name"),
        ("tag", "labelled", "x", "y"),
        ("pin", "labelled"),
        ("note", "labelled", "look here"),
        ("fork", "parent"),
        ("forget", "dropped@2", "--yes"),
    ):
        release.asnap(*words)
    damage(release.place / "sessions" / "damaged")
    damage(release.place / "sessions" / "repaired")
    subprocess.run(
        [sys.executable, "-m", "snapshot_plugin", "check", "repaired", "--repair", "--yes"],
        env=release.environment, check=False, capture_output=True, timeout=60,
    )  # fmt: skip
    assert list((release.place / "sessions" / "repaired" / "quarantine").iterdir())
    release.asnap("forget", "recorded", "--yes")


def damage(directory: Path) -> None:
    """Flip a bit in the middle of the only segment."""
    (path,) = directory.glob("*.snap.gz")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def frameworks(release: Release) -> None:
    """Sessions of frameworks, where they are installed."""
    try:
        from langgraph.graph import END, START, MessagesState, StateGraph  # noqa: PLC0415

        from snapshot_plugin.frameworks.langgraph import SnapshotSaver  # noqa: PLC0415
        from snapshot_plugin.frameworks.openai_agents import SnapshotSession  # noqa: PLC0415
    except ImportError:
        return
    store = release.store()
    session = SnapshotSession("openai", store)
    await session.add_items(
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good morning"}]
    )
    inner = StateGraph(MessagesState)
    inner.add_node("inside", lambda _: {"messages": [("ai", "said in the subgraph")]})
    inner.add_edge(START, "inside")
    inner.add_edge("inside", END)
    outer = StateGraph(MessagesState)
    outer.add_node("inner", inner.compile(checkpointer=True))
    outer.add_edge(START, "inner")
    outer.add_edge("inner", END)
    graph = outer.compile(checkpointer=SnapshotSaver(store))
    for word in ("one", "two"):
        graph.invoke({"messages": [("user", word)]}, {"configurable": {"thread_id": "langgraph"}})
    store.close()


def told(snapshot: Any) -> str:
    """How many messages a snapshot has, and a digest of their texts."""
    texts = [message.text for message in snapshot.messages]
    return f"{len(texts)} {hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]}"


async def read(release: Release) -> dict[str, Any]:
    """What the release itself reads."""
    sessions: dict[str, Any] = {}
    async with release.store() as store:
        for meta in await store.list():
            if meta.session_id in ("damaged", *release.acknowledged):
                continue
            newest = await store.load(meta.session_id)
            sessions[meta.session_id] = {
                "title": newest.title, "tags": list(newest.tags), "pinned": newest.pinned,
                "snapshots": {
                    str(each.seq): told(await store.load(meta.session_id, at=each.seq))
                    for each in await store.history(meta.session_id)
                },
            }  # fmt: skip
        trash = [[each.session_id, each.token] for each in await store.trash()]
    return {"sessions": sessions, "trash": trash, "acknowledged": release.acknowledged}


def write(place: Path, *, encrypted: bool) -> None:
    release = Release(place, encrypted=encrypted)
    release.home.mkdir(parents=True)
    asyncio.run(save(release))
    asyncio.run(remember(release))
    asyncio.run(frameworks(release))
    record(release)
    change(release)
    kill(release)
    (log,) = (release.home / "state").rglob("*.jsonl")
    shutil.copy(log, place / "operations.jsonl")
    shutil.rmtree(release.home)
    shutil.rmtree(release.place / "index", ignore_errors=True)
    expected = json.dumps(asyncio.run(read(release)), sort_keys=True, separators=(",", ":"))
    (place / "expected.json").write_text(expected + "\n", "utf-8")


def main(target: Path) -> None:
    target.mkdir(parents=True)
    key = target / "key.txt"
    key.write_text(KEY + "\n", "utf-8")
    key.chmod(0o600)
    for kind in ("plain", "encrypted"):
        write(target / kind, encrypted=kind == "encrypted")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
