"""Recovery finds the reducer by itself, reads a spool once, and keeps what it cannot apply."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import FilesystemStore, SnapshotManager
from snapshot_plugin.live import spool
from snapshot_plugin.live.lease import FilePlace, Lease, Owner
from snapshot_plugin.live.ports import Record
from snapshot_plugin.live.recovery import KNOWN, reduced
from tests.live.events import NOW, blank

RECOVERING = """
    import sys, anyio
    from snapshot_plugin import FilesystemStore, SnapshotManager

    async def main():
        async with FilesystemStore(sys.argv[1]) as store, SnapshotManager(store) as manager:
            adapters = ("snapshot_plugin.adapters", "snapshot_plugin.acp")
            assert not [name for name in sys.modules if name.startswith(adapters)]
            for found in await manager.recover():
                print(found.session_id, found.records, found.problem)
            snapshot = await store.load("acp-session")
            print(snapshot.provider_type, [message.text for message in snapshot.messages])

    anyio.run(main)
"""


def spooled(store: FilesystemStore, session_id: str, *records: dict[str, Any]) -> None:
    hold = FilePlace(store).take(session_id, Owner.this_process(since=NOW))
    hold.append(records)
    hold.release()


def test_plain_manager_recovers_acp_sessions_and_names_unknown_reducers(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path, background=False)
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Because of the rain."}}
    spooled(
        store,
        "acp-session",
        {"provider_type": "acp", "new": {"cwd": "/tmp"}},
        {"prompt": [{"type": "text", "text": "Why?"}]},
        {"update": update},
    )
    spooled(store, "unknown", {"provider_type": "chess"}, {"move": "e4"})
    line = [sys.executable, "-c", textwrap.dedent(RECOVERING), str(tmp_path)]  # not forked: it looks at its modules
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "acp-session 3 None",
        "unknown 0 no reducer is known for records of provider type 'chess'",
        "acp ['Why?', 'Because of the rain.']",
    ]
    assert spool.read_spool(store.session_dir("unknown"), session_id="unknown").records


@pytest.mark.parametrize("provider_type", KNOWN)
def test_every_known_reducer_can_be_imported(provider_type: str) -> None:
    records = [Record(1, {"provider_type": provider_type})]
    assert reduced(blank(), records).session_id == "s"


@pytest.mark.anyio
async def test_recovery_reads_a_spool_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = spool._read_files, []

    def counted(directory: Path, session_id: str) -> list[bytes]:
        reads.append(session_id)
        return read(directory, session_id)

    async with FilesystemStore(tmp_path) as store:
        spooled(store, "left", {"message": {"role": "user", "content": "hello"}})
        await store.save(blank("stopped"))
        Lease.acquire(store.session_dir("stopped"), Owner.this_process(since=NOW)).release()
        monkeypatch.setattr(spool, "_read_files", counted)
        (found,) = await SnapshotManager(store).recover()
        assert (found.session_id, found.records, found.problem) == ("left", 1, None)
    assert reads == ["left"]
