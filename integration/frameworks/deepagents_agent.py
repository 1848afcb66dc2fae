"""deepagents-acp, stock, with sessions that survive. What its author writes is the class with its two methods."""

# mypy: ignore-errors
# It runs where deepagents is installed, which is not where types are checked.
import asyncio
from pathlib import Path

from acp import run_agent
from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from deepagents_acp.server import AgentServerACP
from langchain_core.messages import messages_from_dict, messages_to_dict
from langgraph.checkpoint.memory import MemorySaver

from snapshot_plugin.acp.sdk import SnapshotAgentMixin

files = FilesystemBackend(root_dir=Path.cwd(), virtual_mode=True)
graph = create_deep_agent(model="openai:gpt-5.2", backend=files, checkpointer=MemorySaver())


class DeepAgent(SnapshotAgentMixin, AgentServerACP):
    """The stock server; its memory is the messages of the graph."""

    async def history(self, session_id: str) -> dict:
        """The messages, as LangChain writes them."""
        state = await graph.aget_state({"configurable": {"thread_id": session_id}})
        return {"messages": messages_to_dict(state.values["messages"])}

    async def take_back(self, session_id: str, history: dict, transcript: tuple) -> None:  # noqa: ARG002 — not needed
        """The same messages, in the new thread."""
        messages = {"messages": messages_from_dict(history["messages"])}
        await graph.aupdate_state({"configurable": {"thread_id": session_id}}, messages, as_node="__start__")


asyncio.run(run_agent(DeepAgent(graph)))
