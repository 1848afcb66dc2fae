"""How an agent gets its sessions: the base class, the place where they are kept, and what it costs to import."""

# mypy: disable-error-code="abstract, override"
# The SDK's agents leave methods out.
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from acp import Agent
from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse

from snapshot_plugin import FilesystemStore, InvalidInput, MemoryStore, MissingExtra, SnapshotManager
from snapshot_plugin.acp.hosts.sdk_agent import SnapshotAgentMixin
from tests.acp_sdk.agents.scripted import ScriptedAgent
from tests.acp_sdk.connected import connected

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # the SDK knows no other


class Plain(Agent):
    """An agent somebody else wrote."""

    connections = 0

    def on_connect(self, conn: Any) -> None:
        self.connections += 1

    async def initialize(self, protocol_version: int, **kwargs: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=1)

    async def new_session(self, cwd: str, **kwargs: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="theirs")

    async def prompt(self, session_id: str, prompt: list[Any], **kwargs: Any) -> PromptResponse:
        return PromptResponse(stop_reason="end_turn")


class Wrapped(SnapshotAgentMixin, Plain):
    """With nothing but the mixin."""


class Above(Wrapped):
    """One that calls the one above."""

    def on_connect(self, conn: Any) -> None:
        super().on_connect(conn)


class Duck(SnapshotAgentMixin):
    """One that does not even derive from the SDK's class."""

    connections = 1
    initialize, new_session, prompt = Plain.initialize, Plain.new_session, Plain.prompt


@pytest.mark.parametrize("kind", [Wrapped, Above, Duck])
async def test_mixin_adds_sessions_to_any_agent_class_without_changing_how_it_connects(
    tmp_path: Path, kind: Any
) -> None:
    agent = kind()
    agent.snapshot_store = tmp_path
    async with connected(agent) as peer:
        assert (await peer.initialize())["agentCapabilities"]["loadSession"] is True
        session_id = await peer.new_session()
        await peer.prompt(session_id, "one")
        for method in ("session/load", "session/close", "session/delete"):
            await peer.about(method, session_id)
    assert agent.connections == 1
    async with FilesystemStore(tmp_path) as store:
        assert len(await store.trash()) == 1
        assert await store.list() == []


async def test_sessions_of_an_unnamed_agent_use_its_class_name(tmp_path: Path) -> None:
    for kind, listed in ((Wrapped, 0), (Wrapped, 1), (Above, 0)):
        agent = kind()
        agent.snapshot_store = tmp_path
        async with connected(agent) as peer:
            await peer.initialize()
            assert len((await peer.request("session/list"))["sessions"]) == listed
            await peer.new_session()


async def test_storage_may_be_a_store_a_path_or_a_manager(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path) as store:
        for place in (store, SnapshotManager(store), tmp_path, str(tmp_path)):
            async with connected(ScriptedAgent(place)) as peer:
                await peer.initialize()
                await peer.new_session()
        assert len(await store.list()) == 4


async def test_default_storage_is_the_users_own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASNAP_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    async with connected(ScriptedAgent(None)) as peer:
        await peer.initialize()
        await peer.new_session()
    async with FilesystemStore(tmp_path / "asnap" / "store", create=False) as store:
        assert len(await store.list()) == 1


async def test_an_encrypted_store_keeps_its_secrets(tmp_path: Path) -> None:
    async with FilesystemStore(tmp_path, key="a passphrase of some length") as store:
        async with connected(ScriptedAgent(store)) as peer:
            await peer.initialize()
            session_id = await peer.new_session()
            await peer.begin_prompt(session_id, "wait")
            await peer.wait_for(lambda message: "heard wait" in str(message))
            live = store.session_dir(session_id) / "live"
            assert b"wait" not in live.read_bytes()
        assert (await store.load(session_id)).messages[0].text == "wait"


async def test_store_without_a_spool_is_refused_immediately() -> None:
    with pytest.raises(InvalidInput):
        async with connected(ScriptedAgent(MemoryStore())):
            pass


def test_incompatible_sdk_release_is_named_in_the_error() -> None:
    with pytest.raises(MissingExtra):
        Wrapped().on_connect(SimpleNamespace())


@pytest.mark.parametrize(
    "statement",
    [
        "import snapshot_plugin.acp.sdk",
        "from snapshot_plugin.acp.sdk import SnapshotAgentMixin as M; type('A', (M,), {})",
    ],
)
def test_sdk_is_not_imported_before_an_agent_connects(statement: str) -> None:
    program = f"{statement}; import sys; sys.exit('acp' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
