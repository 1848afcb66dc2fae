"""What is imported when, and what is said when the SDK is not there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import snapshot_plugin.acp.sdk as package
import snapshot_plugin.adapters.acp_sdk as old_package
from snapshot_plugin import MissingExtra
from snapshot_plugin.acp.hosts.sdk_client import ClientHost, connect, tap_connection

pytestmark = pytest.mark.anyio


def test_the_sdk_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys; import snapshot_plugin.acp.sdk as p;"
        "p.record, p.resume_agent, p.resume_over, p.AcpProvider, p.Handshake;"
        "sys.exit('acp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


async def test_missing_sdk_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(MissingExtra) as caught:
        connect(_Nothing(), None, _unused, unstable=False)
    assert "[acp]" in caught.value.hint


async def test_sdk_without_transports_is_reported_as_too_old() -> None:
    class Old:
        class _conn:  # noqa: N801 — the SDK's name
            send_request = None

    with pytest.raises(MissingExtra):
        tap_connection(Old(), _unused)


def _unused(_inner: object) -> ClientHost:
    raise AssertionError


def test_the_old_name_of_the_module_still_works() -> None:
    assert old_package.record is package.record
    assert old_package.__all__ == package.__all__
    with pytest.raises(AttributeError):
        old_package.nonsense  # noqa: B018 — looking is the test


@pytest.mark.parametrize("name", package.__all__)
def test_every_documented_name_is_exported(name: str) -> None:
    assert getattr(package, name)
    assert name in dir(package)


def test_undocumented_names_are_not_exported() -> None:
    with pytest.raises(AttributeError):
        package.nonsense  # noqa: B018 — looking is the test


class _Nothing:
    async def send(self, message: dict[str, object]) -> None:
        raise AssertionError

    async def receive(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError
