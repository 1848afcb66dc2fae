"""The public suite for ACP hosts: what a host that records owes its client, tested on a real process.

A *host* sits between an ACP client and an ACP agent and records what passes. Say how yours is started:

    class TestMyHost(HostContract):
        def command(self, store, agent):
            return ["my-host", "--store", str(store), "--", *agent]

The suite starts that command, speaks ACP with it through the official SDK (``pip install
'snapshot-plugin[acp]' pytest``), kills it with everything it started, and reads the store. The agent is
`snapshot_plugin.testing.acp_agent`.
"""

# ruff: noqa: S101 — it is a test suite
from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema

from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["HostContract"]

PATIENCE = 60.0
_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes through /proc")
_NEVER_WAS = "00000000000000000000000000000000"


class HostContract:
    """Inherit this and define `command`."""

    def command(self, store: Path, agent: Sequence[str]) -> Sequence[str]:
        """The command of a host that speaks ACP on stdin and stdout.

        Args:
            store: the directory of the `FilesystemStore` that it records to.
            agent: the command of the agent that it talks to.
        """
        raise NotImplementedError

    def test_what_the_client_saw_is_stored(self, tmp_path: Path) -> None:
        """A finished turn, its tool and its plan are in the store when the host has ended."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                assert await user.prompt(session_id, "say Good morning.\ntool\nplan") == "Good morning."
            kept = await _stored(tmp_path, session_id)
            assert [message.role for message in kept.messages] == ["user", "assistant"]
            assert kept.messages[1].text == "Good morning."
            assert "Edit notes.txt" in kept.model_dump_json()
            assert "Leap" in str(kept.current_task)

        _run(case)

    def test_chunks_arrive_one_by_one_and_in_order(self, tmp_path: Path) -> None:
        """A burst of chunks is neither joined nor reordered."""

        async def case() -> None:
            parts = [f"part-{number:03}." for number in range(300)]
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "stream 300")
                assert user.chunks == parts
            assert (await _stored(tmp_path, session_id)).messages[1].text == "".join(parts)

        _run(case)

    @_LINUX
    def test_every_chunk_that_the_client_saw_survives_kill_9(self, tmp_path: Path) -> None:
        """Host and agent are killed in mid-turn; the next host replays every word, and the model is told it."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "say first")
                running = asyncio.create_task(user.prompt(session_id, "stream 4000 2"))
                await user.hears("part-012.")
                _kill_with_descendants(user.pid)
                with suppress(Exception):  # the connection has ended
                    await running
                seen = "".join(user.chunks).removeprefix("first")
            async with self._talk(tmp_path) as user:
                await user.load(session_id)
                assert "say first" in user.replayed
                assert "".join(user.chunks).removeprefix("first").startswith(seen)
                assert seen in await user.prompt(session_id, "blocks"), "the model is told what the user saw"

        _run(case)

    @_LINUX
    def test_a_finished_answer_is_on_disk(self, tmp_path: Path) -> None:
        """An answer that the client received as finished survives a kill at once."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "say kept for ever")
                _kill_with_descendants(user.pid)
            async with self._talk(tmp_path) as user:
                await user.load(session_id)
                assert user.chunks == ["kept for ever"]

        _run(case)

    def test_an_agent_that_remembers_loads_the_session_itself(self, tmp_path: Path) -> None:
        """The agent's own memory is used, and it is told nothing that it knows."""

        async def case() -> None:
            async with self._talk(tmp_path, remembers=True) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "say one")
            async with self._talk(tmp_path, remembers=True) as user:
                await user.load(session_id)
                assert user.chunks == ["one"]
                assert await user.prompt(session_id, "remember") == "earlier turns: 1; last prompt: say one"
                assert "say one" not in await user.prompt(session_id, "blocks")

        _run(case)

    def test_an_agent_that_forgot_is_told_the_conversation_once(self, tmp_path: Path) -> None:
        """The model gets what it does not remember with the next prompt, and only with that one."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "say one")
            async with self._talk(tmp_path) as user:
                await user.load(session_id)
                assert "one" in await user.prompt(session_id, "blocks")
                assert "say one" not in await user.prompt(session_id, "blocks")
            texts = [m.text for m in (await _stored(tmp_path, session_id)).messages if m.role == "user"]
            assert texts == ["say one", "blocks", "blocks"], "the note to the model is not the user's"

        _run(case)

    def test_a_permission_is_asked_and_its_answer_reaches_the_agent(self, tmp_path: Path) -> None:
        """A request of the agent reaches the client under the client's session id."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "ask")
                assert user.asked == [session_id]
            assert '"completed"' in (await _stored(tmp_path, session_id)).model_dump_json()

        _run(case)

    def test_a_cancelled_turn_ends_as_cancelled(self, tmp_path: Path) -> None:
        """``session/cancel`` reaches the agent, and the session works on."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                running = asyncio.create_task(user.turn(session_id, "stream 100000 5"))
                await user.hears("part-002.")
                await user.connection.cancel(session_id=session_id)
                assert await running == "cancelled"
                assert await user.prompt(session_id, "say still here") == "still here"

        _run(case)

    def test_an_unknown_session_is_refused_and_the_connection_works_on(self, tmp_path: Path) -> None:
        """A request that cannot be met gets one error."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                with pytest.raises(acp.RequestError):
                    await user.load(_NEVER_WAS)
                session_id = await user.begin()
                with pytest.raises(acp.RequestError):
                    await user.prompt(_NEVER_WAS, "say lost")
                assert await user.prompt(session_id, "say still here") == "still here"

        _run(case)

    @_LINUX
    def test_hanging_up_ends_host_and_agent(self, tmp_path: Path) -> None:
        """A client that closes the connection leaves no process behind."""

        async def case() -> None:
            async with self._talk(tmp_path) as user:
                session_id = await user.begin()
                await user.prompt(session_id, "say one")
                started = [user.pid, *_descendants(user.pid)]
            while any(_is_alive(pid) for pid in started):  # noqa: ASYNC110 — no event tells of it
                await asyncio.sleep(0.02)

        _run(case)

    @asynccontextmanager
    async def _talk(self, place: Path, *, remembers: bool = False) -> AsyncIterator[_User]:
        memory = ("--state", str(place / "agent.json")) if remembers else ()
        agent = (sys.executable, "-m", "snapshot_plugin.testing.acp_agent", *memory)
        user: Any = _User()
        environment = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
        command = self.command(place / "store", agent)
        async with acp.spawn_agent_process(user, *command, env=environment) as (connection, process):
            user.connection, user.pid = connection, process.pid
            await connection.initialize(protocol_version=1)
            yield user


class _User:
    """The client's side of a connection, and everything it was shown."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.pid = 0
        self.chunks: list[str] = []
        self.replayed, self.asked = list[str](), list[str]()
        self._news = asyncio.Event()

    def on_connect(self, _connection: Any) -> None:
        """The SDK tells us that it is connected."""

    async def session_update(self, update: Any, **_more: Any) -> None:
        """Keep what the user is shown."""
        text = getattr(getattr(update, "content", None), "text", "")
        if update.session_update == "agent_message_chunk":
            self.chunks.append(text)
        elif update.session_update == "user_message_chunk":
            self.replayed.append(text)
        self._news.set()

    async def request_permission(self, options: list[Any], session_id: str, **_more: Any) -> Any:
        """Allow it."""
        self.asked.append(session_id)
        outcome = schema.AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def begin(self) -> str:
        """A new session."""
        return str((await self.connection.new_session(cwd="/", mcp_servers=[])).session_id)

    async def load(self, session_id: str) -> None:
        """Load a session; what is replayed is in `chunks` and `replayed`."""
        await self.connection.load_session(session_id=session_id, cwd="/", mcp_servers=[])

    async def turn(self, session_id: str, text: str) -> str:
        """Run a turn and return its stop reason."""
        block = schema.TextContentBlock(type="text", text=text)
        return str((await self.connection.prompt(session_id=session_id, prompt=[block])).stop_reason)

    async def prompt(self, session_id: str, text: str) -> str:
        """Run a turn and return what the agent said."""
        before = len(self.chunks)
        await self.turn(session_id, text)
        return "".join(self.chunks[before:])

    async def hears(self, text: str) -> None:
        """Wait until the agent has said *text*."""
        while not any(text in chunk for chunk in self.chunks):
            self._news.clear()
            await self._news.wait()


def _run(case: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(case(), PATIENCE))


async def _stored(place: Path, session_id: str) -> SessionSnapshot:
    async with FilesystemStore(place / "store") as store:
        return await store.load(session_id)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):  # it may end meanwhile
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _kill_with_descendants(pid: int) -> None:
    for each in [pid, *_descendants(pid)]:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
