"""A user who talks to the scripted agent through ``asnap run``, and remembers every word that was shown."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from integration.agents.client import Client, Gone, children, kill_agent_of, shown_in
from integration.soak.mutations import Mutation, nothing
from integration.soak.processes import PATIENCE
from integration.soak.program import Tally

__all__ = ["Conversation", "Gone", "Turn", "asnap"]

_REPOSITORY = Path(__file__).resolve().parents[2]
_HELLO = {"protocolVersion": 1, "clientCapabilities": {}}
_PYTHON = (sys.executable, "-m")


def asnap(mutate: Mutation) -> list[str]:
    """The command, as it is or with a protection taken out."""
    return [
        *_PYTHON,
        *(("snapshot_plugin",) if mutate is nothing else ("integration.soak.hooked", mutate.__name__)),
    ]


@dataclass
class Turn:
    """One prompt, and what was seen of its answer."""

    prompt: str
    chunks: list[tuple[float, str]] = field(default_factory=list)
    """What came, with the time when it came."""
    finished: bool = False

    def seen(self, until: float = float("inf")) -> str:
        """The words that were there before a moment."""
        return "".join(text for when, text in self.chunks if when <= until)


class _Timed(Client):
    """A client that knows when each message came."""

    def __init__(self, *args: Any) -> None:
        self.times: list[float] = []
        super().__init__(*args)

    def _take(self, message: dict[str, Any]) -> None:
        self.times.append(time.monotonic())
        super()._take(message)


class Conversation:
    """One session, through any number of proxies and agents, one after the other. *home* holds all their files."""

    def __init__(self, home: Path, *, store: Path | None = None, mutate: Mutation = nothing, key: str = "") -> None:
        self.home, self.turns, self.session_id = home, list[Turn](), ""
        self.store = store or home / "store"
        self._mutate, self._key = mutate, key
        self._client: _Timed | None = None
        self._taken = self._counted = self._prompts = 0

    # Processes ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new proxy with a new agent."""
        agent = [*_PYTHON, "tests.acp_agent", "--state", str(self.home / "agent.json")]
        command = [*asnap(self._mutate), "run", "--store", str(self.store), "--", *agent]
        environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY), "HOME": str(self.home)}
        if self._key:
            environment["ASNAP_KEY"] = self._key
        self._client, self._taken = _Timed(command, environment, self.home, self.home / "stderr.log"), 0
        with self._explained():
            self._client.call("initialize", _HELLO, PATIENCE)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """If the connection ends, the proxy's last words say why."""
        try:
            yield
        except Gone as gone:
            raise Gone(f"{gone}; the proxy said: {(self.home / 'stderr.log').read_text()[-1000:]}") from gone

    def begin(self) -> None:
        """A new session."""
        answer = self.client.call("session/new", {"cwd": str(self.home), "mcpServers": []}, PATIENCE)
        self.session_id = answer["result"]["sessionId"]
        self._taken = len(self.client.seen)

    def load(self) -> list[Turn]:
        """The session again, as the client is shown it."""
        params = {"sessionId": self.session_id, "cwd": str(self.home), "mcpServers": []}
        first = len(self.client.seen)
        answer = self.client.call("session/load", params, PATIENCE)
        if "error" in answer:
            raise Gone(f"the session was not loaded: {answer['error']}")
        shown = shown_in(self.client.seen[first : self.client.seen.index(answer)])
        self._taken = len(self.client.seen)
        return _turns(shown)

    @property
    def client(self) -> _Timed:
        """The present connection."""
        assert self._client is not None
        return self._client

    @property
    def gave_up(self) -> bool:
        """Whether the proxy ended because the agent died too often."""
        last = (self.home / "stderr.log").read_text().strip().rpartition("\n")[2]
        return "The sessions are safe" in last

    def kill(self, who: str) -> None:
        """SIGKILL to the ``proxy``, the ``agent`` or ``both``."""
        if who != "proxy":
            kill_agent_of(self.client.pid)
        if who != "agent":
            self.end()

    def end(self) -> None:
        """SIGKILL to the proxy, and to the agent, which has nobody left to talk to."""
        if self._client is None:
            return
        orphans = children(self._client.pid)
        self._client.kill()
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self._client.drained(PATIENCE)
        self.take_in()

    # Talking --------------------------------------------------------------------------------------------------

    def say(self, script: str) -> int:
        """Send a prompt and return the number of the request."""
        self._prompts += 1
        turn = Turn(f"say turn {self._prompts}\n{script}")
        self.turns.append(turn)
        self._taken = len(self.client.seen)
        prompt = [{"type": "text", "text": turn.prompt}]
        return self.client.send("session/prompt", {"sessionId": self.session_id, "prompt": prompt})

    def hear(self, number: int) -> bool:
        """Wait for the answer; whether it is that of a finished turn."""
        with self._explained():
            answer = self.client.answer(number, PATIENCE)
        self.take_in()
        self.turns[-1].finished = "result" in answer
        return self.turns[-1].finished

    def hear_some(self, chunks: int) -> None:
        """Wait until so many messages came since the prompt, or the connection ended."""
        enough = self._taken + chunks
        with contextlib.suppress(Gone):
            self.client.wait(lambda seen: len(seen) >= enough or _answered(seen[self._taken :]), PATIENCE)

    def take_in(self) -> None:
        """Remember what was shown since the last time."""
        seen = self.client.seen
        for at in range(self._taken, len(seen)):
            for update in shown_in(seen[at : at + 1]):
                if self.turns and update.get("sessionUpdate") == "agent_message_chunk":
                    self.turns[-1].chunks.append((self.client.times[at], update["content"]["text"]))
            if "stopReason" in (seen[at].get("result") or {}):
                self.turns[-1].finished = True
        self._taken = len(seen)

    # Coming back --------------------------------------------------------------------------------------------------

    def come_back(self, tally: Tally, *, until: float = float("inf")) -> bool:
        """Start again, load the session, and hold what is shown against what was seen: all there, once, in order.

        Of an unfinished turn only what came before *until* counts; a prompt nobody has answered need not be there.
        False: the session cannot be loaded.
        """
        self.start()
        try:
            shown = self.load()
        except Gone as gone:
            tally.lose(len(self.turns), str(gone))
            return False
        self._compare(shown, tally, until)
        # From now on this is what was seen.
        finished = {turn.prompt for turn in self.turns if turn.finished}
        self.turns = [Turn(turn.prompt, turn.chunks, turn.prompt in finished) for turn in shown]
        self._counted = sum(len(turn.chunks) for turn in self.turns)
        return True

    def _compare(self, shown: list[Turn], tally: Tally, until: float) -> None:
        there = {turn.prompt: turn.seen() for turn in shown}
        if len(there) != len(shown):
            tally.fault(f"of {len(shown)} prompts that are shown, only {len(there)} differ")
        if [turn.prompt for turn in shown] != [turn.prompt for turn in self.turns if turn.prompt in there]:
            tally.fault("prompts are shown that were never sent, or in another order")
        tally.acknowledged += sum(len(turn.chunks) for turn in self.turns) - self._counted
        for turn in self.turns:
            seen = turn.seen(float("inf") if turn.finished else until)
            if (seen or turn.finished) and not there.get(turn.prompt, "\0").startswith(seen):
                got = there.get(turn.prompt)
                tally.lose(1, f"seen {seen[-60:]!r}, shown {got[-60:] if got is not None else None!r}")


def _answered(messages: list[dict[str, Any]]) -> bool:
    return any("method" not in message for message in messages)


def _turns(updates: list[dict[str, Any]]) -> list[Turn]:
    turns: list[Turn] = []
    for update in updates:
        if update["sessionUpdate"] == "user_message_chunk":
            turns.append(Turn(update["content"]["text"]))
        elif update["sessionUpdate"] == "agent_message_chunk" and turns:
            turns[-1].chunks.append((0.0, update["content"]["text"]))
    return turns
