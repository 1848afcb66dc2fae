"""A bare ACP client: raw newline-delimited JSON-RPC over stdio. It keeps all it was shown, as a user sees it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "MARK",
    "Client",
    "Gone",
    "children",
    "descendants",
    "end_all",
    "is_running",
    "kill_agent_of",
    "shown_in",
]

Json = dict[str, Any]
MARK = "ASNAP_FIDELITY_RUN"


class Gone(Exception):
    """The other side ended, or did not do in time what was waited for."""


class Client:
    """One connection. Updates, answers and permission requests are kept in the order they came."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env=dict(environment), cwd=cwd, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.pid = self._process.pid
        self.seen: list[Json] = []
        self.allow = True
        """Whether permission is given; otherwise the question stays open."""
        self._answers: dict[Any, Json] = {}
        self._numbers = itertools.count(1)
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, daemon=True, name="client").start()

    # Talking ----------------------------------------------------------------------------------------------

    def send(self, method: str, params: Json) -> int:
        """Send a request; its answer can be waited for by number."""
        number = next(self._numbers)
        self.send_as(number, method, params)
        return number

    def send_as(self, request_id: int | str, method: str, params: Json) -> None:
        """Send a request under an id of one's own."""
        self._write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})

    def notify(self, method: str, params: Json) -> None:
        """Send a notification."""
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    def call(self, method: str, params: Json, patience: float = 60.0) -> Json:
        """Send a request and return the whole answer, result or error."""
        return self.answer(self.send(method, params), patience)

    def answer(self, number: int | str, patience: float = 60.0) -> Json:
        """The answer to a request that was sent."""
        self.wait(lambda _seen: number in self._answers, patience)
        return self._answers[number]

    def wait(self, done: Callable[[list[Json]], bool], patience: float = 60.0) -> None:
        """Wait until what was seen satisfies *done*."""
        deadline = time.monotonic() + patience
        with self._changed:
            while not done(self.seen):
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise Gone("the connection ended" if self._ended else f"nothing for {patience:g} s")
                self._changed.wait(min(left, 1.0))

    def drained(self, patience: float = 5.0) -> bool:
        """Wait for the end of what the other side says; False if it goes on talking."""
        with contextlib.suppress(Gone):
            self.wait(lambda _seen: False, patience)
        return self._ended

    def fall_silent(self, pause: float, patience: float) -> None:
        """Wait until nothing has come for *pause* seconds: some agents replay after they answered."""
        deadline, seen = time.monotonic() + patience, -1
        while seen != len(self.seen) and time.monotonic() < deadline:
            seen = len(self.seen)
            time.sleep(pause)

    def updates(self) -> list[Json]:
        """The session updates that were seen; what a permission request says of a tool call is one, too."""
        with self._changed:
            return shown_in(self.seen)

    # Ending -----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL to the whole process group."""
        _kill_group(self.pid)
        self.close()

    def kill_alone(self) -> None:
        """SIGKILL to the process we started, and to no other."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Let go of a process that was ended."""
        assert self._process.stdin is not None
        self._process.wait(30)
        self._process.stdin.close()

    def leave(self) -> bool:
        """Close the connection and let the other side end by itself, for a while; whether it did."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    @property
    def alive(self) -> bool:
        """Whether the process we started runs."""
        return self._process.poll() is None

    # ------------------------------------------------------------------------------------------------------

    def _write(self, message: Json) -> None:
        assert self._process.stdin is not None
        view = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while view:
                view = view[os.write(self._process.stdin.fileno(), view) :]
        except OSError as error:
            raise Gone("the connection ended") from error

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))
        self._process.stdout.close()
        self._log.close()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _take(self, message: Json) -> None:
        with self._changed:
            self.seen.append(message)
            if "method" not in message:
                self._answers.setdefault(message.get("id"), message)
            self._changed.notify_all()
        if "method" in message and "id" in message:
            with contextlib.suppress(Gone):
                self._respond(message)

    def _respond(self, message: Json) -> None:
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] != "session/request_permission":
            self._write({**answer, "error": {"code": -32601, "message": "not offered"}})
        elif self.allow:
            options = message["params"]["options"]
            allowed = [o["optionId"] for o in options if str(o.get("kind", "")).startswith("allow")]
            once = [o["optionId"] for o in options if o.get("kind") == "allow_once"]
            outcome = {"outcome": "selected", "optionId": (once or allowed)[0]}
            self._write({**answer, "result": {"outcome": outcome}})


def shown_in(messages: list[Json]) -> list[Json]:
    """The updates among *messages*."""
    updates = []
    for message in messages:
        if message.get("method") == "session/update":
            updates.append(message["params"]["update"])
        elif message.get("method") == "session/request_permission":
            updates.append({**message["params"]["toolCall"], "sessionUpdate": "tool_call_update"})
    return updates


def children(pid: int) -> list[int]:
    """The processes that *pid* started and that still run."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found


def descendants(pid: int) -> list[int]:
    """The processes that *pid* started, those that they started, and so on."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def kill_agent_of(proxy: int) -> None:
    """SIGKILL to the agent behind a proxy, with its process group or, if it shares the proxy's, its descendants."""
    for child in children(proxy):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(child) == child:
                _kill_group(child)
            else:
                _kill_tree(child)


def is_running(pid: int) -> bool:
    """Whether *pid* is a process that has not ended; one that ended and was not waited for has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def end_all(mark: str) -> None:
    """End what a run left behind: processes that carry its mark, wherever they went."""
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}\0".encode() in (place / "environ").read_bytes():
                os.kill(int(place.name), signal.SIGKILL)


def _kill_tree(pid: int) -> None:
    below = children(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    for child in below:
        _kill_tree(child)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
