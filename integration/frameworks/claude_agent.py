"""A transcript of the Claude Agent SDK, written by a scripted model. Its process is killed, and another goes on.

``python -m integration.frameworks.claude_agent STORE begin`` mirrors a turn as the SDK does, with a tool call, and
kills itself before the tool's result. ``… STORE resume`` reads the conversation with the SDK's own helpers and
completes it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from claude_agent_sdk import get_session_messages_from_store, list_sessions_from_store, project_key_for_directory

from snapshot_plugin.frameworks.claude_agent_sdk import SnapshotSessionStore

SESSION = "5b0e4c1a-8f1d-4d8e-9a35-0d7a2e6b1c11"
HERE = Path(__file__).parent


def entry(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind, "uuid": f"00000000-0000-4000-8000-{number:012}", "sessionId": SESSION, "cwd": str(HERE),
        "parentUuid": f"00000000-0000-4000-8000-{number - 1:012}" if number > 1 else None,
        "timestamp": f"2026-11-16T10:00:{number:02}.000Z", "isSidechain": False, "version": "2.1.0",
        "message": {"role": kind, "content": content, **more},
    }  # fmt: skip


def turn() -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    usage = {"input_tokens": 9, "output_tokens": 5}
    return [
        entry(1, "user", "Which files are here?"),
        entry(2, "assistant", [{"type": "text", "text": "I look."}, call], model="claude-x", usage=usage),
        entry(3, "user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]),
        entry(4, "assistant", [{"type": "text", "text": "One file, a.py."}], model="claude-x", usage=usage),
    ]


async def begin(store: SnapshotSessionStore, key: dict[str, Any]) -> None:
    await store.append(key, turn()[:1])
    await store.append(key, turn()[1:2])
    os.kill(os.getpid(), signal.SIGKILL)


async def resume(store: SnapshotSessionStore, key: dict[str, Any]) -> None:
    known = await get_session_messages_from_store(store, SESSION, directory=str(HERE))
    await store.append(key, turn()[1:])  # the SDK repeats a batch whose fate it does not know
    for info in await list_sessions_from_store(store, directory=str(HERE)):
        print(f"{info.session_id}: {info.summary}")
    after = await get_session_messages_from_store(store, SESSION, directory=str(HERE))
    print(f"{len(known)} messages before, {len(after)} after")


def main() -> None:
    store = SnapshotSessionStore(Path(sys.argv[1]))
    key = {"project_key": project_key_for_directory(str(HERE)), "session_id": SESSION}
    asyncio.run(begin(store, key) if sys.argv[2] == "begin" else resume(store, key))


if __name__ == "__main__":
    main()
