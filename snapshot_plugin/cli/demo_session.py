"""The session that ``asnap demo`` kills: it streams an answer, and writes each word down before showing it.

Run as ``python -m snapshot_plugin.cli.demo_session STORE PAUSE``. Started again, it goes on where it was cut off.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import anyio

from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.manager.lease import Lease, Owner
from snapshot_plugin.manager.recovery import with_upto
from snapshot_plugin.manager.spool import Spool
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore

SESSION_ID = "demo"
QUESTION = "Why do sessions die?"
ANSWER = (
    "Because an agent keeps what it is saying in memory until the turn is over. "
    "Kill it in mid-sentence and the words you have just read exist nowhere: not in its history, "
    "not in what the model is told next. So every word is written down here before you see it, "
    "and every finished turn is on disk before it is called finished. "
    "That is all there is to it, and it is enough: nothing you have seen is ever lost."
)


async def _session(store: FilesystemStore) -> SessionSnapshot:
    """The session as it was left, or a new one with the question asked and saved."""
    try:
        return await store.load(SESSION_ID)
    except SnapshotNotFound:
        now = datetime.now(UTC)
        new = SessionSnapshot(session_id=SESSION_ID, created_at=now, updated_at=now, title=QUESTION)
        new = new.append(Message(role="user", content=QUESTION), Message(role="assistant", content=""))
        await store.save(new, trigger="event")
        return new


async def _run(place: Path, pause: float) -> None:
    async with FilesystemStore(place) as store:
        session = await _session(store)
        directory = store.session_dir(SESSION_ID)
        lease = Lease.acquire(directory, Owner(pid=os.getpid(), host=os.uname().nodename, since=datetime.now(UTC)))
        spool = Spool.open(directory, session_id=SESSION_ID)
        said = session.messages[-1].text
        for word in ANSWER[len(said) :].split(" "):
            if word:
                chunk = word if not said or said.endswith(" ") else f" {word}"
                spool.append({"append": {"text": chunk}})
                said += chunk
                sys.stdout.write(chunk)
                sys.stdout.flush()
                await anyio.sleep(pause)
        answered = session.evolve(messages=(*session.messages[:-1], Message(role="assistant", content=said)))
        await store.save(with_upto(answered, spool.last), trigger="exit")
        spool.truncate(spool.last)
        spool.close()
        lease.release()


if __name__ == "__main__":
    anyio.run(_run, Path(sys.argv[1]), float(sys.argv[2]))
