"""A user's program passes mypy and pyright, without a plugin; and what both are told is true."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapshot_plugin import Message, RetentionPolicy, SessionSnapshot, SnapshotConfig
from snapshot_plugin.model import SessionConfig

PROGRAM = """
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import assert_type

from snapshot_plugin import (
    FilesystemStore, Message, RetentionPolicy, SessionSnapshot, SnapshotConfig, SnapshotManager, open_store,
)
from snapshot_plugin.model import AgentInfo, Metrics, PlanEntry, SessionConfig, TextBlock, ToolCallBlock

now = datetime.now(UTC)
plain = Message(role="user", content="hi", metadata={"a": 1}, timestamp=now, token_count=3)
blocks = Message(
    role="assistant",
    content=[TextBlock(text="a"), {"type": "text", "text": "b"}, ToolCallBlock(tool_call_id="1", raw_input={})],
)
called = Message(role="assistant", tool_calls=[{"id": "1", "function": {"name": "ls", "arguments": "{}"}}])
answered = Message(role="tool", content="x", tool_call_id="1")
session = SessionSnapshot(
    session_id="s",
    created_at=now,
    updated_at=now,
    agent=AgentInfo(name="a"),
    config=SessionConfig(cwd="/", options={"effort": "high"}, additional_directories=["/a"]),
    messages=[plain, blocks, called],
    plan=[PlanEntry(content="step")],
    metrics=Metrics(turns=1),
    tags=["x"],
    metadata={},
)
longer = session.append(answered, now=now).evolve(title="t")
config = SnapshotConfig(
    snapshot_interval="5m",
    exit_timeout=timedelta(seconds=3),
    retention={"keep_within": "7d"},
    max_session_age="90d",
    storage_path=Path("sessions"),
)
policy = RetentionPolicy(keep_within="7d", keep_tags=["release"])

assert_type(config.snapshot_interval, float)
assert_type(longer.messages, tuple[Message, ...])
assert_type(plain.text, str)


async def main() -> None:
    async with open_store(Path("sessions"), key="words") as store, SnapshotManager(store, config) as manager:
        await store.save(longer)
        assert_type(await manager.fork("s", messages=2), SessionSnapshot)
    async with SnapshotManager("sessions", config), FilesystemStore("a") as other:
        assert_type(await other.load("s"), SessionSnapshot)
"""

WRONG = {
    'Message(role="robot")': "role",
    'Message(role="user", contents="x")': "contents",
    'SessionSnapshot(session_id="s")': "created_at",
    'SnapshotConfig(snapshot_intervall="5m")': "snapshot_intervall",
}


def mypy(directory: Path) -> list[str]:
    files = [str(directory / name) for name in ("right.py", "wrong.py")]
    return [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", os.devnull, *files]


def pyright(directory: Path) -> list[str]:
    (directory / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    return [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--project", str(directory)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_pass_a_users_program_and_find_mistakes_in_another(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    """One run checks both files: nearly all of its time goes to the packages they import."""
    imports = "from snapshot_plugin import Message, SessionSnapshot, SnapshotConfig\n"
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(imports + "\n".join(WRONG))

    done = subprocess.run(checker(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "right.py" not in said, said
    lines = [line for line in said.splitlines() if "error" in line]
    for number, name in enumerate(WRONG.values(), 2):
        assert any(f"wrong.py:{number}:" in line and name in line for line in lines), (name, said)


@pytest.mark.parametrize("kind", [Message, SessionSnapshot, SessionConfig, RetentionPolicy, SnapshotConfig])
def test_type_checkers_know_every_field(kind: Any) -> None:
    fields = kind.__dataclass_fields__ if dataclasses.is_dataclass(kind) else kind.model_fields
    told = [
        {argument.arg for argument in each.args.kwonlyargs}
        for each in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(kind))))
        if isinstance(each, ast.FunctionDef) and each.name == "__init__" and each.args.kwonlyargs
    ]

    assert told[0] - {"tool_calls", "tool_call_id"} == set(fields)
