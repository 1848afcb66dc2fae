"""The sessions of the scripted agent, in memory and in its state file."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from tests.acp_agent.options import exists

__all__ = ["ScriptedTurn", "Session", "Sessions", "read"]

_TEXT_OF_A_TURN = ("agent_message_chunk", "agent_thought_chunk")


def read(path: str) -> str:
    """The text of a file."""
    with open(path) as file:  # noqa: PTH123 — `pathlib` would take a tenth of the agent's start
        return file.read()


class ScriptedTurn:
    """One prompt and its answer; `updates` are in the form a replay sends."""

    def __init__(
        self, prompt: list[Any], updates: list[dict[str, Any]] | None = None, stop: str | None = None
    ) -> None:
        self.prompt, self.updates, self.stop = prompt, updates if updates is not None else [], stop

    def on_disk(self, *, keep_words: bool = False) -> ScriptedTurn:
        """The part of the turn that survives a kill at this moment."""
        if self.stop is not None or keep_words:
            return self
        kept = [update for update in self.updates if update["sessionUpdate"] not in _TEXT_OF_A_TURN]
        return ScriptedTurn(self.prompt, kept)


class Session:
    """One conversation."""

    def __init__(self, session_id: str, cwd: str, turns: list[ScriptedTurn]) -> None:
        self.id, self.cwd, self.turns = session_id, cwd, turns

    def copied_turns(self) -> list[ScriptedTurn]:
        """The turns for another session, which may change them."""
        return [ScriptedTurn(**turn) for turn in json.loads(json.dumps([vars(turn) for turn in self.turns]))]

    def replay(self) -> list[dict[str, Any]]:
        """The updates that replay the conversation."""
        out: list[dict[str, Any]] = []
        for turn in self.turns:
            out += [{"sessionUpdate": "user_message_chunk", "content": block} for block in turn.prompt]
            out += turn.updates
        return out


class Sessions:
    """Every session of the agent. With a state file, saved turns survive ``kill -9``."""

    def __init__(self, path: str | None, misbehaves: frozenset[str] = frozenset()) -> None:
        self._path, self._misbehaves = path, misbehaves
        forget_last_answer = "acknowledged-loss" in misbehaves
        self._lock = threading.Lock()
        self.known: dict[str, Session] = {}
        if path is not None and exists(path):
            for raw in json.loads(read(path)):
                turns = [ScriptedTurn(**turn) for turn in raw["turns"]]
                if forget_last_answer and turns:
                    turns[-1].updates = []
                self.known[raw["id"]] = Session(raw["id"], raw["cwd"], turns)

    def new(self, cwd: str, turns: list[ScriptedTurn] | None = None) -> Session:
        """Begin a session, optionally with the turns of another."""
        name = f"s-{len(self.known) + 1}" if "counts-sessions" in self._misbehaves else os.urandom(16).hex()
        if "repeats-ids" in self._misbehaves and self.known:
            return next(iter(self.known.values()))
        name = f"{name}+memory" if "hidden-names" in self._misbehaves else name
        name = "名前" * 200 + name if "long-names" in self._misbehaves else name
        name = f"\x1b[31m{name}\r\n\tasnap: all is saved" if "control-names" in self._misbehaves else name
        session = Session(name, cwd, turns or [])
        self.known[session.id] = session
        self.save()
        return session

    def save(self) -> None:
        """Write all sessions to the state file, atomically."""
        if self._path is None:
            return
        with self._lock:
            keep = "shows-cut-off" in self._misbehaves
            sessions = [
                {"id": s.id, "cwd": s.cwd, "turns": [vars(turn.on_disk(keep_words=keep)) for turn in s.turns]}
                for s in list(self.known.values())
            ]
            draft = f"{self._path}.new"
            with open(draft, "w") as file:  # noqa: PTH123 — as above
                file.write(json.dumps(sessions))
            os.replace(draft, self._path)  # noqa: PTH105 — as above
