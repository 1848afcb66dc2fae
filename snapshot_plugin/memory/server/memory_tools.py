"""The tools over the project memory: `session_store` and `load_session_context`."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic import Field

from snapshot_plugin.memory.server.answers import Action, SessionStoreAnswer
from snapshot_plugin.memory.server.failures import answering
from snapshot_plugin.memory import ProjectMemory, SessionContext
from snapshot_plugin.errors import InvalidInput

__all__ = ["add_memory_tools"]

_STORE = """Remember things for later sessions in this project, and recall them.

save: keep `data` (any JSON) under `namespace` and `key`; it is on disk when this returns.
load: get it back. list: the keys of a namespace; without one, all namespaces. delete: remove an entry; with
namespace "*" and confirm=true, everything. stats: how much is stored.

Namespaces with a meaning: baselines (how a feature behaves when it is right), errors, api_schema, performance,
noise (rules for what to ignore). Any other name is yours, as "decisions" or "todo". Secrets are taken out; of what
stands under "response" or "body" in a baseline, the shape is kept: fields and kinds, no values."""

_CONTEXT = """Call this first: everything earlier sessions in this project left for you.

Session count and last session, baselines, known API endpoints, noise rules (in effect from now on), unresolved
and recently resolved errors, endpoints that have become slow, and the keys of all other namespaces."""


def add_memory_tools(server: MCPServer[Any], memory: ProjectMemory) -> None:
    """Offer the tools on *server*."""

    @answering
    async def session_store(
        action: Annotated[Action, Field(description="What to do.")],
        namespace: Annotated[str | None, Field(description="Needed for save, load and delete.")] = None,
        key: Annotated[str | None, Field(description="Needed for save, load and delete.")] = None,
        data: Annotated[Any, Field(description="For save: any JSON value but null.")] = None,
        confirm: Annotated[bool, Field(description='For delete of namespace "*": must be true.')] = False,
    ) -> SessionStoreAnswer:
        answer = await _act(memory, action, namespace, key, data, confirm=confirm)
        return answer.model_copy(update={"persistence": memory.persistence, "notices": list(memory.notices)})

    @answering
    async def load_session_context() -> SessionContext:
        return await memory.load_context()

    server.add_tool(
        session_store,
        title="Remember and recall",
        description=_STORE,
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
    )
    server.add_tool(
        load_session_context,
        title="What earlier sessions left",
        description=_CONTEXT,
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


async def _act(
    memory: ProjectMemory, action: Action, namespace: str | None, key: str | None, data: Any, *, confirm: bool
) -> SessionStoreAnswer:
    if action == "stats":
        return SessionStoreAnswer(action=action, stats=await memory.stats())
    if action == "list":
        return await _list(memory, namespace)
    if action == "delete" and namespace == "*":
        return await _clear(memory, confirm=confirm)
    if namespace is None or key is None:
        raise InvalidInput(f"{action} needs a namespace and a key")
    if action == "load":
        loaded = await memory.load(namespace, key)
        return SessionStoreAnswer(action=action, namespace=namespace, key=key, data=loaded)
    if action == "delete":
        await memory.delete(namespace, key)
        return SessionStoreAnswer(action=action, namespace=namespace, key=key)
    return await _save(memory, namespace, key, data)


async def _save(memory: ProjectMemory, namespace: str, key: str, data: Any) -> SessionStoreAnswer:
    if data is None:
        raise InvalidInput("save needs data", hint="pass data=…, any JSON value but null")
    saved = await memory.save(namespace, key, data)
    return SessionStoreAnswer(
        action="save",
        namespace=namespace,
        key=key,
        bytes=saved.bytes,
        evicted=list(saved.evicted) or None,
        trimmed=saved.trimmed or None,
        redacted=saved.redacted or None,
    )


async def _list(memory: ProjectMemory, namespace: str | None) -> SessionStoreAnswer:
    if namespace is None:
        counts = {name: len(keys) for name, keys in (await memory.namespaces()).items()}
        return SessionStoreAnswer(action="list", namespaces=counts)
    return SessionStoreAnswer(action="list", namespace=namespace, keys=list(await memory.list(namespace)))


async def _clear(memory: ProjectMemory, *, confirm: bool) -> SessionStoreAnswer:
    if not confirm:
        raise InvalidInput(
            "this would delete everything the project's memory holds", hint="ask the user, then pass confirm=true"
        )
    await memory.clear()
    return SessionStoreAnswer(action="delete", namespace="*", cleared=True)
