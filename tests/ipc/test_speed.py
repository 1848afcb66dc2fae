"""How much a list reads, as the kernel counts it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.testing import make_message, make_snapshot

pytestmark = pytest.mark.anyio
IO = Path("/proc/self/io")


def bytes_read() -> int:
    """How many bytes this process has read from anywhere, as the kernel counts them."""
    counts = dict(line.split(": ") for line in IO.read_text().splitlines())
    return int(counts["rchar"])


@pytest.mark.skipif(not IO.exists(), reason="only Linux counts what is read")
@pytest.mark.requirement("TERMINAL-PERF-INDEX", "ORBIT-STORE-INDEX")
async def test_a_list_reads_no_conversations(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(200_000).hex()
    async with FilesystemStore(tmp_path) as store:
        for number in range(20):
            snapshot = make_snapshot(noise[number * 100 :], session_id=f"s{number}")
            await store.save(snapshot)
            await store.save(snapshot.append(make_message("short")))
        size = sum(meta.size_bytes for meta in await store.list())
        before = bytes_read()
        listed = await store.list()

        assert len(listed) == 20
        assert bytes_read() - before < size / 2
