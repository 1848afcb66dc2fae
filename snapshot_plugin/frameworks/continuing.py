"""How a framework's session is continued: in code, with the adapter that wrote it."""

from __future__ import annotations

import re

from snapshot_plugin.frameworks.sessions import WORKFLOW

__all__ = ["how_to_continue"]

_LINES = {
    "langgraph": 'builder.compile(SnapshotSaver({place!r})).invoke(…, {{"configurable": {{"thread_id": {id!r}}}}})',
    "openai-agents": "await Runner.run(agent, prompt, session=SnapshotSession({id!r}, {place!r}))",
    "claude-agent-sdk": "ClaudeAgentOptions(resume={id!r}, session_store=SnapshotSessionStore({place!r}))",
    "agent-framework": "Agent(client, context_providers=[SnapshotHistoryProvider({place!r})])"
    ".run(prompt, session=AgentSession(session_id={id!r}))",
    "agent-framework-workflow": "WorkflowBuilder(name={id!r}, …, "
    "checkpoint_storage=SnapshotCheckpointStorage({place!r})).build().run(checkpoint_id=…)",
    "google-adk": "Runner(…, session_service=SnapshotSessionService({place!r})).run_async(…, session_id={id!r})",
    "pydantic-ai": "await agent.run(prompt, conversation=await SnapshotConversationStore({place!r}).load({id!r}))",
    "persistent": "async with persistent_session(agent, agent_id={id!r}, store={place!r}): ...",
}
_DIGEST = re.compile("[0-9a-f]{16}")
_SUFFIXED = ("claude-agent-sdk", "google-adk")
"""Frameworks whose session ids end with a digest of the project or user."""


def how_to_continue(provider_type: str | None, session_id: str, place: str) -> str | None:
    """A line of Python that continues a session of this kind; None if it is not continued in code."""
    line = _LINES.get(provider_type or "")
    if line is None:
        return None
    name = session_id.removesuffix(WORKFLOW)
    if provider_type in _SUFFIXED:
        name, _, digest = session_id.rpartition(".")
        if not _DIGEST.fullmatch(digest):
            return f"a fork made with {provider_type} itself: it cannot ask for a branch that asnap made"
    return line.format(id=name, place=place)
