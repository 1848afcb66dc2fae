"""What the torture programs have found, each as a test of its own."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from integration.soak.sessions import SESSION, store_at, version
from snapshot_plugin import StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_disk_failure_right_after_a_delete_is_reported_as_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    async with store_at(tmp_path) as store:
        await store.save(version(1))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", refuse)
            with pytest.raises(StoreUnavailable):
                await store.delete(SESSION)
        assert [trashed.session_id for trashed in await store.trash()] == [SESSION]
