"""An agent on the OpenAI Agents SDK with a scripted model. It is killed while a person is asked for approval.

``python -m integration.frameworks.openai_agent STORE ask`` runs until the tool needs approval, keeps the run with
the session, and kills itself. ``… STORE approve``, in another process, approves and completes the turn.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from snapshot_plugin.frameworks.openai_agents import SnapshotSession

set_tracing_disabled(disabled=True)
_USAGE = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)


class ScriptedModel(Model):
    """Calls the tool once, then answers."""

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """The tool call, or once its output is there, the answer."""
        given = options.get("input") or args[1]
        answered = not isinstance(given, str) and any(x.get("type") == "function_call_output" for x in given)
        return ModelResponse(output=[_answer() if answered else _call()], usage=_USAGE, response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Not needed here."""
        raise NotImplementedError


def _call() -> ResponseFunctionToolCall:
    arguments = '{"amount": 40}'
    return ResponseFunctionToolCall(
        type="function_call", call_id="call-1", name="refund", arguments=arguments, id="fc_1"
    )


def _answer() -> ResponseOutputMessage:
    text = ResponseOutputText(type="output_text", text="Refunded 40.", annotations=[])
    return ResponseOutputMessage(id="msg_1", type="message", role="assistant", status="completed", content=[text])


def agent_with(log: Path) -> Agent[Any]:
    @function_tool(needs_approval=True)
    def refund(amount: int) -> str:
        """Pay an amount back."""
        with log.open("a") as out:
            out.write("refund\n")
        return f"paid {amount}"

    return Agent(name="desk", model=ScriptedModel(), tools=[refund])


async def ask(session: SnapshotSession, log: Path) -> None:
    result = await Runner.run(agent_with(log), "Refund order 7", session=session)
    await session.save_run_state(result.to_state())
    os.kill(os.getpid(), signal.SIGKILL)


async def approve(session: SnapshotSession, log: Path) -> None:
    agent = agent_with(log)
    state = await session.load_run_state(agent)
    if state is None:
        raise SystemExit("no run is waiting")
    for item in state.get_interruptions():
        state.approve(item)
    result = await Runner.run(agent, state, session=session)
    await session.save_run_state(None)
    print(result.final_output)


def main() -> None:
    place, what = Path(sys.argv[1]), sys.argv[2]
    log = place.with_suffix(".log")
    session = SnapshotSession("desk-7", place)
    asyncio.run(ask(session, log) if what == "ask" else approve(session, log))


if __name__ == "__main__":
    main()
