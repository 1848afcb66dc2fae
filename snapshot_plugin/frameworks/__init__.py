"""Drop-in stores for agent frameworks: one line to switch, and `asnap` sees the conversations.

| module | class | takes the place of |
|---|---|---|
| `langgraph` | `SnapshotSaver` | LangGraph's `SqliteSaver`, `PostgresSaver` |
| `openai_agents` | `SnapshotSession` | the OpenAI Agents SDK's `SQLiteSession` |
| `claude_agent_sdk` | `SnapshotSessionStore` | the Claude Agent SDK's `SessionStore` |
| `agent_framework` | `SnapshotHistoryProvider` | agent-framework's `FileHistoryProvider` |
| | `SnapshotCheckpointStorage` | agent-framework's `FileCheckpointStorage` |
| `google_adk` | `SnapshotSessionService` | ADK's `SqliteSessionService`, `DatabaseSessionService` |
| `pydantic_ai` | `SnapshotConversationStore` | pydantic-ai's `ConversationStore` |

Each takes a *place* (a directory, a URL, or an open store) and a *key*. They share `sessions` (one open store
per place and key, one object per session, safe for threads and processes), `conversations` (titles, counts, opaque
entries, exact JSON), `parts` (what people can read of a message) and `checkpoints` (snapshots found by labels). A
framework is imported by its own module alone.

Promises: durable on return; entries come back equal to what was given, or the write fails; objects are made by the
framework's own constructors, nothing is unpickled; ids of the framework are labels, never tags.
"""
