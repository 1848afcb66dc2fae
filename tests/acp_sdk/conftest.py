"""The SDK runs on asyncio alone, so its tests do too; and a store with a manager, as an orchestrator has them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore, SnapshotManager


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FilesystemStore]:
    async with FilesystemStore(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
async def manager(store: FilesystemStore) -> AsyncIterator[SnapshotManager]:
    async with SnapshotManager(store) as opened:
        yield opened
