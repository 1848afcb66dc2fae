"""The server of ``asnap ui`` in this process: a store, and a client that speaks as our own page does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from snapshot_plugin import FilesystemStore, SnapshotConfig
from snapshot_plugin.testing import make_snapshot
from snapshot_plugin.web.server import application
from snapshot_plugin.web.site import Site

PORT, TOKEN = 4321, "the-token"
OURS = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "store"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A user without history."""
    for name in [name for name in os.environ if name.startswith(("ASNAP_", "XDG_"))]:
        monkeypatch.delenv(name)
    found = {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "CACHE", "DATA", "CONFIG")}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


Opened = Callable[..., TestClient]


@pytest.fixture
def opened(place: Path, environ: dict[str, str]) -> Iterator[Opened]:
    """Serve the store; another class of site, *read_only* and other settings may be given."""
    clients: list[TestClient] = []

    def open_(kind: type[Site] = Site, **settings: Any) -> TestClient:
        store = FilesystemStore(place, background=False)
        site = kind(store, SnapshotConfig(storage_path=str(place)), environ=environ, **settings)
        app = application(site, port=PORT, token=TOKEN)
        client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=OURS, raise_server_exceptions=False)
        client.__enter__()
        clients.append(client)
        return client

    yield open_
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(opened: Opened, place: Path) -> TestClient:
    """Two sessions, served: ``one`` of two snapshots, and its ``other``."""
    store = FilesystemStore(place, background=False)
    store.sync.save(make_snapshot("hello", "a needle", session_id="one", title="first"), base=0, tags=["night"])
    longer = make_snapshot("hello", "a needle", "more", "and **bold**", session_id="one", title="first")
    store.sync.save(longer, base=1)
    store.sync.save(make_snapshot("hello", "another", session_id="a/b c@d", title="odd", tags=("old",)), base=0)
    return opened()
