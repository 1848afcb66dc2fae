"""The bridge as a front end starts it: a process at the other end of two pipes, which may die at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from snapshot_plugin import FilesystemStore, SessionSnapshot
from tests import forkserver

pytestmark = pytest.mark.requirement("TERMINAL-TEST-IPC")
PATIENCE = 60


class Server:
    """A running ``asnap serve --stdio``."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def send(self, type_: str, **fields: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"type": type_, **fields}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self, type_: str, **fields: Any) -> Any:
        self.send(type_, **fields)
        return self.receive()

    def say(self, text: str) -> Any:
        return self.ask("session_message", messages=[{"role": "user", "content": text}])

    def close(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


@contextmanager
def serving(tmp_path: Path) -> Iterator[Server]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASNAP_", "XDG_"))}
    places = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("DATA", "CONFIG", "CACHE", "STATE")}
    line = [sys.executable, "-m", "snapshot_plugin", "serve", "--stdio", "--store", str(tmp_path / "store")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forkserver.Popen(line, env={**kept, **places}, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield Server(process)
        finally:
            process.kill()


def stored(tmp_path: Path, session_id: str) -> SessionSnapshot:
    async def load() -> SessionSnapshot:
        async with FilesystemStore(tmp_path / "store", background=False) as store:
            assert (await store.check()).ok
            return await store.load(session_id)

    return anyio.run(load)


def test_end_of_input_saves_everything_and_exits(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session_id = server.say("hello")["session_id"]
        server.send("session_message", messages=[{"role": "assistant", "content": "not waited for"}])

        assert server.close() == 0
    assert [message.text for message in stored(tmp_path, session_id).messages] == ["hello", "not waited for"]
    assert (tmp_path / "store/sessions" / session_id / ".lease").read_bytes() == b""


@pytest.mark.parametrize("acknowledged", [1, 30])
def test_acknowledged_messages_survive_a_kill(tmp_path: Path, acknowledged: int) -> None:
    with serving(tmp_path) as server:
        for number in range(40):
            server.send("session_message", messages=[{"role": "user", "content": f"message {number}"}])
        answers = [server.receive() for _ in range(acknowledged)]
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(PATIENCE)
    session_id = answers[-1]["session_id"]
    found = [message.text for message in stored(tmp_path, session_id).messages]

    assert answers[-1]["message_count"] == acknowledged
    assert len(found) >= acknowledged
    assert found == [f"message {number}" for number in range(len(found))]
    with serving(tmp_path) as again:
        loaded = again.ask("session_load", session_id=session_id)
        assert loaded["message_count"] == len(found)
        assert again.say("on")["message_count"] == len(found) + 1
        assert again.close() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_process_immediately(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path) as server:
        session_id = server.say("hello")["session_id"]
        server.process.send_signal(number)

        assert server.process.wait(PATIENCE) in (-number, 130)
    assert stored(tmp_path, session_id).messages[0].text == "hello"


def test_vanished_front_end_is_not_an_error(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.say("hello")
        assert server.process.stdout
        assert server.process.stderr
        server.process.stdout.close()
        server.send("session_list")

        assert server.process.wait(PATIENCE) == 0
        assert b"Traceback" not in server.process.stderr.read()


def test_deleted_session_can_be_restored_with_undo(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        session_id = server.say("hello")["session_id"]
        assert server.ask("session_delete", session_id=session_id)["success"]
        assert server.close() == 0
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "STATE")}
        line = [sys.executable, "-m", "snapshot_plugin", "undo", "--store", str(tmp_path / "store")]
        forkserver.run(line, env=environment, timeout=PATIENCE, check=True)
    assert stored(tmp_path, session_id).messages[0].text == "hello"
