"""Three sessions talk at once, the process is killed with SIGKILL in mid-sentence, and all three go on.

::

    python -m integration.three_sessions              # the whole story, in a few seconds
    python -m integration.three_sessions live DIR     # one life: run it, kill -9 it, run it again

Each session is scripted: it is asked something and answers word by word. A word is recorded before it is shown, so
whatever was seen on the screen is there after the kill.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.recovery import Recovered, reduce_messages
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.resume import ResumeReport, create_or_resume_session
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore

SCRIPTS = {
    "refactor": (
        "How do we split the parser?",
        "First the tokens, then the tree, and last the printer; each in a module of its own, with its own tests.",
    ),
    "release": (
        "What is left before 2.0?",
        "Two migrations, the changelog, a dry run on the copy of the database, and a quiet Tuesday to do it.",
    ),
    "research": (
        "Why is the cache cold every morning?",
        "The nightly job writes every row it reads, so by four o'clock nothing that people ask for is left in it.",
    ),
}


class ScriptedSession:
    """Answers one question, a word at a time. What it is, and what a spool makes of it, comes from one function."""

    def __init__(self, manager: SnapshotManager, state: SessionSnapshot) -> None:
        self.session_id = state.session_id
        self.state = state
        self._manager = manager

    def snapshot(self) -> SessionSnapshot:
        """What it is now."""
        return self.state

    @property
    def answer(self) -> str:
        """What was said so far."""
        return "".join(message.text for message in self.state.messages if message.role == "assistant")

    async def run(self) -> None:
        """Say what has not been said yet."""
        question, answer = SCRIPTS[self.session_id]
        if not self.state.messages:
            self._happen({"message": {"role": "user", "content": question}})
        words = answer.split()
        for word in words[len(self.answer.split()) :]:
            await anyio.sleep(0.02)
            self._happen({"append": {"text": f"{word} "}})
            print(json.dumps({"seen": self.session_id, "word": word}), flush=True)
        self._manager.touch(self.session_id)

    def _happen(self, record: dict[str, Any]) -> None:
        self._manager.record(self.session_id, record)  # safe first, then ours, and then on the screen
        self.state = reduce_messages(self.state, [Record(0, record)])


class ScriptedProvider:
    """Starts scripted sessions, new ones and old ones."""

    def __init__(self, manager: SnapshotManager) -> None:
        self._manager = manager

    async def create_session(self, session_id: str, _config: None) -> ScriptedSession:
        """A new session."""
        now = self._manager.clock()
        new = SessionSnapshot(session_id=session_id, provider_type="messages", created_at=now, updated_at=now)
        return ScriptedSession(self._manager, new)

    async def load_session(self, _id: str, _config: None, snapshot: SessionSnapshot) -> ScriptedSession:
        """A session that goes on."""
        return ScriptedSession(self._manager, snapshot)

    async def stop_session(self, session: ScriptedSession) -> None:
        """Nothing runs by itself here."""


async def live(place: Path) -> None:
    """One life: recover what a former one left, resume all three, and talk to the end."""
    config = SnapshotConfig(enable_persistence=True, snapshot_interval=0.1, event_debounce=0.05)
    async with FilesystemStore(place) as store, SnapshotManager(store, config) as manager:
        recovered = await manager.recover()
        provider = ScriptedProvider(manager)
        started = [await create_or_resume_session(provider, name, None, manager) for name in SCRIPTS]
        print(json.dumps({"resumed": {session.session_id: session.answer for session, _ in started}}), flush=True)
        print(_report([report for _, report in started], recovered), flush=True)
        async with anyio.create_task_group() as talking:
            for session, _ in started:
                talking.start_soon(session.run)
    print("all three have said everything", flush=True)


def _report(reports: Sequence[ResumeReport], recovered: Sequence[Recovered]) -> str:
    """What a person wants to know after a crash."""
    found = {one.session_id: one for one in recovered}
    lines = [f"{'session':<10} {'how':<12} {'messages':>8}  what happened before"]
    for report in reports:
        before = found.get(report.session_id)
        story = "ended properly" if report.resumed else "nothing"
        if before is not None:
            who = f"process {before.previous_owner.pid}" if before.previous_owner else "its process"
            story = before.problem or f"{who} died; {before.records} records recovered"
        lines.append(f"{report.session_id:<10} {report.grade:<12} {report.messages:>8}  {story}")
    return "\n".join(lines)


def show(place: Path) -> bool:
    """Tell the whole story, and whether every session said every word of its script exactly once."""
    print("— first life: three sessions begin to talk —")
    first = _life(place, kill_after=42)
    for name, words in first.seen.items():
        print(f"{name:<10} {' '.join(words)} …")
    print(f"— killed with SIGKILL; {sum(map(len, first.seen.values()))} words had been seen —\n— second life —")
    second = _life(place)
    print("\n".join(second.told))
    lost = [name for name, words in first.seen.items() if second.resumed[name][: len(words)] != words]
    odd = [name for name, (_, said) in SCRIPTS.items() if second.resumed[name] + second.seen[name] != said.split()]
    print(
        f"not as it should be: {lost + odd}"
        if lost or odd
        else "no word that was seen is lost, none was said twice"
    )
    return not lost and not odd


class Life(NamedTuple):
    """What could be seen of one life of the process."""

    resumed: dict[str, list[str]]
    seen: dict[str, list[str]]
    told: list[str]


def _life(place: Path, *, kill_after: int | None = None) -> Life:
    life = Life({}, {name: [] for name in SCRIPTS}, [])
    with _command(place) as process:
        assert process.stdout is not None
        for line in process.stdout:
            _note(line, life)
            if sum(map(len, life.seen.values())) == kill_after:
                process.send_signal(signal.SIGKILL)
    return life


def _note(line: str, life: Life) -> None:
    if not line.startswith("{"):
        life.told.append(line.rstrip())
        return
    told = json.loads(line)
    if "seen" in told:
        life.seen[told["seen"]].append(told["word"])
    else:
        life.resumed.update({name: text.split() for name, text in told["resumed"].items()})


def _command(place: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "integration.three_sessions", "live", str(place)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=["show", "live"], default="show")
    parser.add_argument("place", nargs="?", type=Path)
    given = parser.parse_args()
    if given.mode == "live":
        anyio.run(live, given.place or Path("three-sessions"))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        return 0 if show(given.place or Path(directory)) else 1


if __name__ == "__main__":
    sys.exit(main())
