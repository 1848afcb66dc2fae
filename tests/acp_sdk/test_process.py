"""The agent's process: its environment, its stderr, its lines, its end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from snapshot_plugin import AgentUnavailable
from snapshot_plugin.acp.hosts.stdio_agent import StdioAgent
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.system.processes import AgentProcess

pytestmark = pytest.mark.anyio
PATIENCE = 60.0


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


async def first_of(agent: StdioAgent) -> Any:
    with anyio.fail_after(PATIENCE):
        return await agent.receive()


@pytest.mark.parametrize("env", [None, {}, {"API_KEY": "k", "PATH": "/nowhere"}])
async def test_agent_gets_exactly_the_given_environment(
    env: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONLY_HERE", "1")
    code = "import json, os; print(json.dumps({'env': dict(os.environ)}), flush=True)"
    agent = await StdioAgent.start(python(code), env=env)
    seen = (await first_of(agent))["env"]
    await agent.close()
    if env is None:
        assert os.environ.items() <= seen.items()  # readline adds to it behind Python's back
    else:
        assert {name: value for name, value in seen.items() if name != "LC_CTYPE"} == env  # Python's own


async def test_agent_that_writes_much_to_stderr_does_not_hang(caplog: pytest.LogCaptureFixture) -> None:
    code = "import sys; sys.stderr.write('noise\\n' * 60000); sys.stderr.flush(); print('{\"id\": 1}', flush=True)"
    agent = await StdioAgent.start(python(code))
    assert await first_of(agent) == {"id": 1}
    assert await first_of(agent) is None
    assert (await agent.stderr_tail()).splitlines() == ["noise"] * 20
    await agent.close()


async def test_a_message_beyond_the_limit_becomes_an_error_and_the_next_one_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    head, tail = '{"jsonrpc": "2.0", "result": {"id": 8, "text": "', '"}, "id": 7}'
    code = f"print({head!r} + 'x' * 3_000_000 + {tail!r}); print('{{}}', flush=True)"
    agent = await StdioAgent.start(python(code), line_bytes=1 << 20)
    answer = await first_of(agent)
    assert (answer["id"], "more than 1 MB" in answer["error"]["message"]) == (7, True)
    assert await first_of(agent) == {}
    await agent.close()
    assert "more than 1 MB" in caplog.text


async def test_lines_may_be_long_and_non_messages_are_skipped() -> None:
    code = "print('Debugger attached.'); print('[1]'); print('{\"text\": \"' + 'x' * 3000000 + '\"}', flush=True)"
    agent = await StdioAgent.start(python(code))
    assert len((await first_of(agent))["text"]) == 3_000_000
    await agent.close()


@pytest.mark.parametrize("steps", range(8))
async def test_start_cancelled_at_any_step_leaves_no_open_pipe(steps: int) -> None:
    started = list[StdioAgent]()

    async def start() -> None:
        started.append(await StdioAgent.start(python("import sys; sys.stdin.read()")))

    before = open_files()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        for agent in started:
            await agent.close()
        while open_files() > before:  # a transport closes its pipe one step later
            await anyio.lowlevel.checkpoint()


async def test_agents_children_end_with_it(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(note)!r}, 'w').write(str(p.pid)); print('{{}}', flush=True); sys.stdin.read()"
    )
    agent = await StdioAgent.start(python(code))
    assert await first_of(agent) == {}
    await agent.close()
    with anyio.fail_after(PATIENCE):
        await anyio.to_thread.run_sync(_wait_for_end, int(note.read_text()))


def _wait_for_end(pid: int) -> None:
    """Nobody may be left to reap it, so one that is dead is enough."""
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and " Z " not in stat.read_text():
        time.sleep(0.01)


async def test_agent_that_ignores_every_signal_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_plugin.acp.hosts.stdio_agent._PATIENCE", 0.1)
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    code = f"{stubborn}; print('{{}}', flush=True); time.sleep(60)"
    agent = await StdioAgent.start(python(code))
    assert await first_of(agent) == {}
    with anyio.fail_after(PATIENCE):
        await agent.close()
    with pytest.raises(ProcessLookupError):
        os.kill(agent.pid, 0)


async def test_agent_is_ended_once_even_if_the_caller_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = await StdioAgent.start(python("print('{}', flush=True); input()"))
    assert await first_of(agent) == {}
    with anyio.CancelScope() as scope:
        scope.cancel()
        await agent.close()
    with pytest.raises(ProcessLookupError):
        os.kill(agent.pid, 0)
    monkeypatch.setattr(os, "killpg", pytest.fail)  # by now the number may be another's
    await agent.close()


@pytest.mark.parametrize("command", [["no-such-program"], [str(Path("/"))]])
async def test_agent_that_cannot_start_is_unavailable(command: list[str]) -> None:
    with pytest.raises(AgentUnavailable):
        await StdioAgent.start(command)


async def test_missing_working_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable) as caught:
        await StdioAgent.start(python("pass"), cwd=tmp_path / "gone")
    assert "gone" in caught.value.message


async def test_messages_reach_the_agent_whole() -> None:
    code = "import sys; print(sys.stdin.readline(), flush=True)"
    agent = await StdioAgent.start(python(code))
    message = {"text": "ü" * 200_000}
    await agent.send(message)
    assert json.dumps(await first_of(agent)) == json.dumps(message)
    await agent.close()


async def test_cancelled_close_ends_the_agent_first() -> None:
    agent = await StdioAgent.start(python("import time; print('{}', flush=True); time.sleep(600)"))
    assert await first_of(agent) == {}
    closing = asyncio.create_task(agent.close())
    await asyncio.sleep(0)  # it has begun
    closing.cancel()
    await asyncio.wait({closing}, timeout=30)
    assert closing.cancelled()
    with pytest.raises(ProcessLookupError):
        os.kill(agent.pid, 0)


async def test_store_is_not_kept_waiting_by_many_agents_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They end in threads of their own: the store has no more than 32."""
    released, stop = threading.Event(), AgentProcess.stop

    def stubborn(process: AgentProcess, *, patience: float) -> int:
        assert released.wait(PATIENCE)
        return stop(process, patience=patience)

    monkeypatch.setattr(AgentProcess, "stop", stubborn)
    agents = [await StdioAgent.start(["cat"]) for _ in range(40)]
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as closing:
            for agent in agents:
                closing.start_soon(agent.close)
            await anyio.wait_all_tasks_blocked()
            assert await in_thread(lambda: "answered") == "answered"
            released.set()
