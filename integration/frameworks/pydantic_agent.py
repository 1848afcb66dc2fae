"""An agent on pydantic-ai with a scripted model. It is killed while a tool call waits for approval, and goes on.

``python -m integration.frameworks.pydantic_agent STORE ask`` runs until the tool needs approval, saves the
conversation, and kills itself. ``… STORE approve``, in another process, approves and completes the turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from snapshot_plugin.frameworks.pydantic_ai import SnapshotConversationStore

CONVERSATION = "desk-7"


def scripted(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    done = any(part.part_kind == "tool-return" for message in messages for part in message.parts)
    return ModelResponse(parts=[TextPart("Refunded 40.") if done else ToolCallPart("refund", {"amount": 40}, "c1")])


def agent_with(log: Path) -> Agent[Any, Any]:
    agent = Agent(FunctionModel(scripted), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def refund(amount: int) -> str:
        """Pay an amount back."""
        with log.open("a") as out:
            out.write("refund\n")
        return f"paid {amount}"

    return agent


async def ask(store: SnapshotConversationStore, log: Path) -> None:
    result = await agent_with(log).run("Refund order 7", conversation_id=CONVERSATION)
    await store.save(result)
    os.kill(os.getpid(), signal.SIGKILL)


async def approve(store: SnapshotConversationStore, log: Path) -> None:
    conversation = await store.load(CONVERSATION)
    if conversation is None or conversation.deferred_tool_requests is None:
        raise SystemExit("no tool call is waiting")
    answers = conversation.deferred_tool_requests.build_results(approve_all=True)
    result = await agent_with(log).run(conversation=conversation, deferred_tool_results=answers)
    await store.save(result)
    print(result.output)


def main() -> None:
    place = Path(sys.argv[1])
    store = SnapshotConversationStore(place)
    asyncio.run((ask if sys.argv[2] == "ask" else approve)(store, place.with_suffix(".log")))


if __name__ == "__main__":
    main()
