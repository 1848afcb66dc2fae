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
    environment = {"PYTHONPATH": str(_REPOSITORY), "XDG_STATE_HOME": str(project.parent)}
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
    assert {"session_store", "load_session_context"} <= {tool["name"] for tool in tools}
    assert all(tool["outputSchema"]["type"] == "object" for tool in tools)
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
