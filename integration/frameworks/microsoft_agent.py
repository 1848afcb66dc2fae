"""An agent on Microsoft's agent-framework with a scripted model. It is killed in its second turn, and goes on.

``python -m integration.frameworks.microsoft_agent STORE first`` runs a turn, then begins another and kills itself
while the model works. ``… STORE second``, in another process, continues: the model is told the first turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Message

from snapshot_plugin.frameworks.agent_framework import SnapshotHistoryProvider


class ScriptedClient(BaseChatClient):
    """Answers with what it was told so far; dies when it is asked to."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def respond() -> ChatResponse:
            if messages[-1].text == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            told = " | ".join(message.text for message in messages)
            return ChatResponse(messages=[Message("assistant", [f"told: {told}"])])

        return respond()


async def run(place: Path, *prompts: str) -> None:
    agent = Agent(ScriptedClient(), context_providers=[SnapshotHistoryProvider(place)])
    session = AgentSession(session_id="trip")
    for prompt in prompts:
        print((await agent.run(prompt, session=session)).text, flush=True)


def main() -> None:
    prompts = ("Plan Oslo", "die") if sys.argv[2] == "first" else ("And Bergen",)
    asyncio.run(run(Path(sys.argv[1]), *prompts))


if __name__ == "__main__":
    main()
