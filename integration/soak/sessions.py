"""The sessions that are tortured: the n-th version is always the same, so anybody can tell right from wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from integration.soak.program import Tally
from snapshot_plugin.codec.keys import generate_key
from snapshot_plugin.errors import SnapshotError, SnapshotNotFound
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore
from snapshot_plugin.testing import make_message, make_snapshot

__all__ = ["KEY", "MODES", "SESSION", "assess", "number_of", "save_version", "store_at", "version"]

KEY = generate_key(random=lambda size: b"k" * size)
"""A generated key opens at once, where a passphrase takes scrypt."""
MODES: dict[str, str | None] = {"plain": None, "encrypted": KEY}
SESSION = "session"


@cache
def _message(number: int, largest: int) -> Message:
    chance = random.Random(number)
    words = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz 0123456789", k=chance.randrange(largest)))
    return make_message(f"message {number} {words}", role="assistant" if number % 2 else "user")


def version(number: int, *, largest: int = 200) -> SessionSnapshot:
    """The session at its *number*-th save: one message more each time, of up to *largest* characters."""
    return make_snapshot(session_id=SESSION, messages=tuple(_message(n, largest) for n in range(1, number + 1)))


def number_of(snapshot: SessionSnapshot) -> int:
    """Which `version` it is."""
    return len(snapshot.messages)


def store_at(path: Path, key: str | None = None, **options: Any) -> FilesystemStore:
    """A new store object, as another process would have one. It compacts only when told to."""
    return FilesystemStore(path, key, **{"background": False, **options})


async def save_version(store: FilesystemStore, number: int, *, largest: int = 200) -> SnapshotRef:
    """Save the *number*-th version on top of the newest snapshot, which an earlier process may have saved."""
    tip = await store.tip(SESSION)
    return await store.save(version(number, largest=largest), base=tip.seq if tip else 0)


async def assess(
    path: Path, key: str | None, acknowledged: Mapping[int, int], tally: Tally, *, largest: int = 200
) -> int:
    """Hold a store against what was acknowledged (sequence number: `version`); return the newest version.

    Everything acknowledged must load as it was, nothing may look damaged, and what is there unasked must be whole.
    """
    async with store_at(path, key) as store:
        try:
            newest = await store.read(SESSION)
        except SnapshotNotFound:
            if acknowledged:
                tally.lose(len(acknowledged), f"the session with {len(acknowledged)} acknowledged saves is gone")
            return 0
        except SnapshotError as error:
            if acknowledged:
                tally.lose(len(acknowledged), f"the session cannot be read: {error.code}: {error.message}")
            else:
                tally.fault(f"what a crash left passes for damage: {error.code}")
            return 0
        if newest.snapshot != version(number_of(newest.snapshot), largest=largest):
            tally.fault(f"snapshot {newest.ref.seq} was never saved")
        for seq, number in sorted(acknowledged.items()):
            await _assess_one(store, seq, version(number, largest=largest), tally)
        report = await store.check()
        if not report.ok:
            kinds = sorted({finding.kind for finding in report.findings if finding.is_damage})
            tally.fault(f"what a crash left passes for damage: {', '.join(kinds)}")
        return number_of(newest.snapshot)


async def _assess_one(store: FilesystemStore, seq: int, saved: SessionSnapshot, tally: Tally) -> None:
    try:
        found = await store.load(SESSION, at=seq)
    except SnapshotError as error:
        tally.lose(1, f"snapshot {seq} was acknowledged and is gone: {error.code}: {error.message}")
    else:
        if found != saved:
            tally.fault(f"snapshot {seq} has the content of another")
