"""The MCP inspector's command line against ``asnap mcp``; it needs no network once it is installed.

Install it with ``python -m integration.agents.install inspector``, run ``pytest -n0 integration/agents``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.agents.catalog import inspector

_REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    not inspector().exists(), reason="no inspector here: python -m integration.agents.install inspector"
)


def inspect(project: Path, *arguments: str) -> dict[str, Any]:
    """What the inspector prints for a method."""
    server = [sys.executable, "-m", "snapshot_plugin", "mcp", "--project", str(project)]
    environment = {
        "PYTHONPATH": str(_REPOSITORY),
        "XDG_STATE_HOME": str(project.parent),
        "ASNAP_STORE": str(project / "s"),
    }
    settings = [part for name, value in environment.items() for part in ("-e", f"{name}={value}")]
    done = subprocess.run(
        [str(inspector()), "--cli", *settings, *server, *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_inspector_lists_tools_and_resources(tmp_path: Path) -> None:
    tools = inspect(tmp_path, "--method", "tools/list")["tools"]
    assert {"session_store", "load_session_context", "record_error", "compare_baseline"} <= {
        tool["name"] for tool in tools
    }
    assert all(tool["inputSchema"]["type"] == "object" for tool in tools)
    assert not (tmp_path / ".asnap").exists(), "listing is not a session"
    resources = inspect(tmp_path, "--method", "resources/list")["resources"]
    assert "asnap://memory/context" in {resource["uri"] for resource in resources}


def test_the_inspector_stores_and_finds(tmp_path: Path) -> None:
    call = ("--method", "tools/call", "--tool-name", "session_store")
    named = ("--tool-arg", "namespace=decisions", "--tool-arg", "key=db")
    saved = inspect(tmp_path, *call, "--tool-arg", "action=save", *named, "--tool-arg", 'data={"choice": "sqlite"}')
    assert saved["structuredContent"]["persistence"] == "disk"
    loaded = inspect(tmp_path, *call, "--tool-arg", "action=load", *named)
    assert loaded["structuredContent"]["data"] == {"choice": "sqlite"}
    missing = inspect(
        tmp_path, *call, "--tool-arg", "action=load", "--tool-arg", "namespace=a", "--tool-arg", "key=b"
    )
    assert missing["isError"] is True


def test_natural_calls_of_the_inspector_are_understood_over_sessions(tmp_path: Path) -> None:
    def call(tool: str, **arguments: str) -> Any:
        given = [part for name, value in arguments.items() for part in ("--tool-arg", f"{name}={value}")]
        answer = inspect(tmp_path, "--method", "tools/call", "--tool-name", tool, *given)
        assert not answer.get("isError"), answer
        return json.loads(answer["content"][0]["text"])

    call("record_error", error="TypeError: x is undefined at app.js:42")
    call("observe_endpoint", endpoint="GET /api/users", ms="150")
    slow = call("observe_endpoint", endpoint="GET /api/users", ms="380")  # each call is a session of its own
    assert "was 150 ms, now 380 ms: DEGRADED" in slow["understood"][1]
    call(
        "session_store",
        action="save",
        namespace="baselines",
        key="login",
        data='{"status": 200, "body": {"id": 7}}',
    )
    assert call("compare_baseline", name="login", observed='{"status": 200, "body": {}}')["regressions"] == [
        "body.id: missing"
    ]
    fixed = call("record_error", fingerprint="TypeError_app.js:42", resolved="true")
    assert "resolved after 6 sessions" in fixed["understood"][0]
    context = call("load_session_context")
    assert (context["session_count"], context["error_history"]["unresolved"]) == (7, [])
    assert context["performance_baselines"]["degraded_since_last"] == ["GET /api/users (was 150ms, now 380ms)"]
