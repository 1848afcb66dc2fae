"""`Archive` in one run: it notices every change of a session."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from snapshot_plugin import FilesystemStore
from snapshot_plugin.store.archive import Archive
from snapshot_plugin.store.s3 import ObjectStore, bucket_at
from snapshot_plugin.testing import make_snapshot
from tests.store.s3_server import BUCKET, running

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_session_of_the_same_size_as_before_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running() as server, FilesystemStore(tmp_path, background=False).sync as store:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        source = FilesystemStore(tmp_path, background=False)
        archive = Archive(source, ObjectStore(bucket_at(f"s3://{BUCKET}/archive"), background=False))
        archive.prepare()
        store.save(make_snapshot("a"))
        (before,) = source.frames.sessions()
        assert [each.status for each in archive.copy_all(NOW)] == ["copied"]
        assert archive.copy_all(NOW) == []
        store.delete("session")
        store.save(make_snapshot("b"))
        (after,) = source.frames.sessions()
        assert before.size_bytes == after.size_bytes

        assert [each.status for each in archive.copy_all(NOW)] == ["diverged"]
