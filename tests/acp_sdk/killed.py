"""An orchestrator in a process of its own, to be killed: it prints, line by line, what its user is shown.

``python -m tests.acp_sdk.killed STORE SCRIPT AGENT...`` begins a session, says a turn, then SCRIPT.
``python -m tests.acp_sdk.killed STORE --resume SESSION AGENT...`` goes on with it and prints what came back.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import acp

from snapshot_plugin import FilesystemStore, SnapshotManager
from snapshot_plugin.acp.hosts.sdk_client import record
from snapshot_plugin.acp.hosts.sdk_provider import resume_agent
from tests.acp_sdk.orchestrator import Orchestrator, new_session, prompt


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 — the user's screen


class Screen(Orchestrator):
    """Shows every update at once, as it is on the wire."""

    async def session_update(self, session_id: str, update: Any, **_kwargs: Any) -> None:
        tell(update=update.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def request_permission(self, *_arguments: Any, **_kwargs: Any) -> Any:
        tell(asked=True)
        await asyncio.sleep(60)


async def begin(manager: SnapshotManager, script: str, agent: list[str]) -> None:
    screen: Any = Screen()
    async with acp.spawn_agent_process(screen, *agent) as (connection, _):
        record(connection, manager, command=agent)
        await connection.initialize(protocol_version=1)
        session_id = await new_session(connection)
        tell(session=session_id)
        await prompt(connection, session_id, "say one\nthink\ntool\nplan")
        await prompt(connection, session_id, script)
        tell(turn="over")
        await asyncio.sleep(60)


async def go_on(manager: SnapshotManager, session_id: str, agent: list[str]) -> None:
    client = Orchestrator()
    async with resume_agent(agent, session_id, manager, client=client) as (connection, report):
        tell(grade=report.grade, note=report.note, transcript=report.transcript, notices=report.notices)
        await prompt(connection, session_id, "echo-blocks")
        tell(heard=client.heard)


async def main(place: str, what: str, *rest: str) -> None:
    async with FilesystemStore(place) as store, SnapshotManager(store) as manager:
        if what == "--resume":
            await go_on(manager, rest[0], list(rest[1:]))
        else:
            await begin(manager, what, list(rest))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
