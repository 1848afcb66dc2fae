"""An agent on Google's ADK with a scripted model. It is killed in its second turn, and goes on.

``python -m integration.frameworks.google_agent STORE first`` runs a turn, then begins another and kills itself
while the model works. ``… STORE second``, in another process, continues: the model is told what was said before.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai import types

from snapshot_plugin.frameworks.google_adk import SnapshotSessionService

WHO = {"app_name": "shop", "user_id": "ada"}


class ScriptedModel(BaseLlm):
    """Answers with what it was told so far; dies when it is asked to."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        """One answer."""
        _ = stream
        texts = [part.text for content in llm_request.contents for part in content.parts if part.text]
        if texts[-1] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = types.Content(role="model", parts=[types.Part(text=f"told: {' | '.join(texts)}")])
        yield LlmResponse(content=answer)


async def run(place: Path, *prompts: str) -> None:
    service = SnapshotSessionService(place)
    agent = LlmAgent(name="desk", model=ScriptedModel())
    runner = Runner(app_name=WHO["app_name"], agent=agent, session_service=service)
    if await service.get_session(**WHO, session_id="s1") is None:
        await service.create_session(**WHO, session_id="s1", state={"user:name": "Ada"})
    for prompt in prompts:
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        async for event in runner.run_async(user_id=WHO["user_id"], session_id="s1", new_message=message):
            print(event.content.parts[0].text, flush=True)


def main() -> None:
    prompts = ("Plan Oslo", "die") if sys.argv[2] == "first" else ("And Bergen",)
    asyncio.run(run(Path(sys.argv[1]), *prompts))


if __name__ == "__main__":
    main()
