"""`os.fork` with a live session in PostgreSQL: it stays the parent's."""

from __future__ import annotations

from pathlib import Path

from tests.store.test_fork import RECORDED, run


def test_a_child_cannot_write_to_the_live_session_of_its_parent(tmp_path: Path, postgres_url: str) -> None:
    opened = (
        f"from snapshot_plugin.store.postgres.store import PostgresStore; store = PostgresStore({postgres_url!r})"
    )
    run(RECORDED.replace("sessions = ", f"{opened}; sessions = "), tmp_path)
