"""The interfaces a user has: the command line, the JSON-lines bridge and the ACP proxy, each as a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests import forkserver
from tests.acp_client import AGENT, Client

__all__ = ["PATIENCE", "Bridge", "Ran", "User", "eventually"]

PATIENCE = 60.0
_SETTINGS = ("ASNAP_", "XDG_", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class User:
    """A user with an empty home directory and no settings."""

    def __init__(self, home: Path, **variables: str) -> None:
        self.home = home
        self.work = home / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
        root = str(Path(__file__).parents[2])
        self.environment = {**kept, "HOME": str(home), "PYTHONPATH": root, "LC_ALL": "C.UTF-8", **variables}

    @property
    def store(self) -> Path:
        """Where the sessions of a user are who has set nothing."""
        return self.home / ".local" / "share" / "asnap" / "store"

    def asnap(self, *words: object, stdin: str = "", fails: bool = False) -> Ran:
        """Run a command to its end. One that fails raises, unless that is expected."""
        done = self.python("-m", "snapshot_plugin", *map(str, words), stdin=stdin)
        assert fails == bool(done.code), done
        return done

    def python(self, *words: str, stdin: str = "") -> Ran:
        done = forkserver.run(
            [sys.executable, *words],
            cwd=self.work,
            env=self.environment,
            input=stdin.encode("utf-8", "surrogatepass"),
            timeout=PATIENCE,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    @contextmanager
    def bridge(self) -> Iterator[Bridge]:
        """A running ``asnap serve --stdio``, which is killed at the end of the block unless it was closed."""
        with forkserver.Popen(
            [sys.executable, "-m", "snapshot_plugin", "serve", "--stdio"],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield Bridge(process)
            finally:
                process.kill()

    def agent(self, *flags: str, run: tuple[str, ...] = ()) -> Client:
        """A client of ``asnap run`` in front of the scripted agent."""
        asnap = (sys.executable, "-m", "snapshot_plugin", "run", *run, "--")
        return Client((*asnap, *AGENT, *flags), env=self.environment, cwd=self.work)

    def stored(self, session_id: str) -> Json:
        """The newest snapshot of a session, as it is stored."""
        document: Json = self.asnap("show", session_id, "--raw").json
        return document


class Bridge:
    """The front end's side of ``asnap serve --stdio``."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ask(self, type_: str, **fields: Any) -> Json:
        """One request and its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps({"type": type_, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        answer: Json = json.loads(self.process.stdout.readline())
        return answer

    def exchange(self, question: str, answer: str, tokens: tuple[int, int] | None = None) -> Json:
        """What a front end sends after a question was answered; *tokens*: how many each has, if it counts them."""
        said: list[Json] = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        for message, count in zip(said, tokens or (), strict=False):
            message["token_count"] = count
        return self.ask("session_message", messages=said)

    def close(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


def eventually(look: Callable[[], T], wanted: Callable[[T], bool]) -> T:
    """What *look* gives once it is *wanted*; the last it gave when that never happens in bounded time."""
    end = time.monotonic() + PATIENCE
    while not wanted(found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found
