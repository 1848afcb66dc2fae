"""`asnap run --learn`: failed tool calls become errors in the project's history."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin.memory.learn import ErrorLearner, error_in
from snapshot_plugin.testing.acp_client import AGENT, Client
from tests.memory.opening import Opener
from tests.one_loop import anyio_backend  # noqa: F401 — pytest uses it


def update(status: str, text: str = "", **more: Any) -> dict[str, Any]:
    content = [{"type": "content", "content": {"type": "text", "text": text}}] if text else []
    return {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "status": status, "content": content, **more}


CALL = {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "npm test", "status": "pending"}
FAILED = update("failed", "TypeError: x is undefined\n    at run (src/app.js:42)")


def test_only_failed_calls_are_errors() -> None:
    assert error_in(update("completed", "fine")) is None
    assert error_in(update("failed"), "npm test") == {
        "message": "npm test failed",
        "tool": "npm test",
        "source_of_error": "tool call",
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rawOutput": "exit 1"}, "exit 1"),
        ({"rawOutput": {"error": "ENOENT"}}, "ENOENT"),
        ({"rawOutput": 7, "content": 7}, "npm test failed"),
        ({"content": [7, {"content": 7}, {"content": {"text": 7}}]}, "npm test failed"),
    ],
)
def test_failures_are_found_in_each_agents_own_format(more: dict[str, Any], message: str) -> None:
    found = error_in(update("failed", title="npm test") | more)
    assert found is not None
    assert found["message"] == message


@pytest.mark.anyio
async def test_failed_tool_calls_are_in_the_context_of_the_next_session(open_memory: Opener, project: Path) -> None:
    learner = ErrorLearner(state=project.parent / "state", interval=60)
    assert not learner.observe(CALL, lambda: str(project))
    for _ in range(3):
        assert learner.observe(FAILED, lambda: str(project))
    assert not learner.observe(update("completed", "ok"), lambda: str(project))
    assert not learner.observe(FAILED, lambda: None)
    assert not learner.observe(FAILED, lambda: "/"), "the root directory is no project"
    learner.close()
    async with open_memory() as memory:
        [error] = (await memory.load_context()).error_history.unresolved
        assert (error.fingerprint, error.occurrences) == ("TypeError_app.js:42", 3)
        assert (await memory.load("errors", error.fingerprint))["tool"] == "npm test"


@pytest.mark.anyio
async def test_errors_reach_an_open_memory_of_the_project(open_memory: Opener, project: Path) -> None:
    learner = ErrorLearner(state=project.parent / "state", interval=60)
    async with open_memory() as memory:
        await memory.save("a", "k", 1)
        assert learner.observe(update("failed", "token ghp_" + "a1B2" * 10 + " refused"), lambda: str(project))
        learner.close()
        await memory.flush()
        [error] = (await memory.load_context()).error_history.unresolved
        assert error.message == "token [redacted:github-token] refused"


def test_failing_disk_fails_no_tool_call(project: Path) -> None:
    (project / ".asnap").write_text("a file where the directory should be")
    learner = ErrorLearner(state=project.parent / "state", interval=60)
    assert learner.observe(FAILED, lambda: str(project))
    learner.close()


def run_with_a_failing_tool(tmp_path: Path, project: Path, *flags: str) -> None:
    asnap = (sys.executable, "-m", "snapshot_plugin", "run", "--store", str(tmp_path / "store"), *flags, "--")
    with Client((*asnap, *AGENT)) as client:
        client.initialize()
        session_id = client.new_session(project)
        client.prompt(session_id, f"update {json.dumps(CALL)}\nupdate {json.dumps(FAILED)}\nsay done")
        client.hang_up()
        assert client.exit_status() == 0


@pytest.mark.anyio
async def test_run_records_failed_tool_calls_only_with_learn(
    open_memory: Opener, project: Path, tmp_path: Path
) -> None:
    run_with_a_failing_tool(tmp_path, project)
    assert not (project / ".asnap").exists()

    run_with_a_failing_tool(tmp_path, project, "--learn")
    async with open_memory() as memory:
        [error] = (await memory.load_context()).error_history.unresolved
    assert error.fingerprint == "TypeError_app.js:42"
