"""What is imported when, and what is said when the SDK is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import snapshot_plugin.adapters.acp_sdk as package
from snapshot_plugin.adapters.acp_sdk.contact import Handshake, contact
from snapshot_plugin.adapters.acp_sdk.observe import tap_connection
from snapshot_plugin.errors import MissingExtra
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.store.memory import MemoryStore

pytestmark = pytest.mark.anyio


def test_the_sdk_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys; import snapshot_plugin.adapters.acp_sdk as p;"
        "p.record, p.resume_agent, p.resume_over, p.AcpProvider, p.Handshake;"
        "sys.exit('acp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


async def test_without_the_sdk_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(MissingExtra) as caught:
        contact(_Nothing(), SnapshotManager(MemoryStore()), None, Handshake())
    assert "[acp]" in caught.value.hint


async def test_an_sdk_without_transports_is_said_to_be_too_old() -> None:
    class Old:
        class _conn:  # noqa: N801 — the SDK's name
            send_request = None

    listener: object = _Nothing()
    with pytest.raises(MissingExtra):
        tap_connection(Old(), listener)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", package.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(package, name)
    assert name in dir(package)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError):
        package.nonsense  # noqa: B018 — looking is the test


class _Nothing:
    async def send(self, message: dict[str, object]) -> None:
        raise AssertionError

    async def receive(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError
