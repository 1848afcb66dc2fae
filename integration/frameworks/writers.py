"""A process that adds entries to one session through an adapter, for the tests of `AdapterFaults`.

``python -m integration.frameworks.writers openai_agents PLACE a b`` prints the names that are there in one line,
then each new name once it is durable. With ``--full``, it first tries to add the last name while no file may grow,
and prints the error.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from snapshot_plugin.errors import SnapshotError


class Writer(NamedTuple):
    """One session of a framework: add an entry with a name, and the names of all entries."""

    add: Callable[[str], None]
    names: Callable[[], list[str]]


# Each environment has one of the frameworks, so each is imported where it is used.


def _langgraph(place: str) -> Writer:
    base = import_module("langgraph.checkpoint.base")
    saver = import_module("snapshot_plugin.frameworks.langgraph").SnapshotSaver(place)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}

    def add(name: str) -> None:
        made = {**base.empty_checkpoint(), "channel_values": {"said": name}, "channel_versions": {"said": "1"}}
        saver.put(config, made, {"source": "loop", "step": 0}, {"said": "1"})

    return Writer(add, lambda: [each.checkpoint["channel_values"]["said"] for each in saver.list(config)])


def _openai_agents(place: str) -> Writer:
    session = import_module("snapshot_plugin.frameworks.openai_agents").SnapshotSession("s", place)
    return Writer(
        lambda name: asyncio.run(session.add_items([{"role": "user", "content": name}])),
        lambda: [item["content"] for item in asyncio.run(session.get_items())],
    )


def _claude_agent_sdk(place: str) -> Writer:
    store = import_module("snapshot_plugin.frameworks.claude_agent_sdk").SnapshotSessionStore(place)
    key = {"project_key": "p", "session_id": "s"}
    return Writer(
        lambda name: asyncio.run(store.append(key, [{"type": "x", "uuid": name}])),
        lambda: [entry["uuid"] for entry in asyncio.run(store.load(key)) or ()],
    )


def _pydantic_ai(place: str) -> Writer:
    messages = import_module("pydantic_ai.messages")
    conversation = import_module("pydantic_ai.conversation").Conversation
    conflict = import_module("pydantic_ai.conversation_store").ConversationConflict
    store = import_module("snapshot_plugin.frameworks.pydantic_ai").SnapshotConversationStore(place)

    async def load() -> Any:
        return await store.load("c") or conversation(conversation_id="c", messages=[])

    async def add(name: str) -> None:
        while True:
            found = await load()
            found.messages.append(messages.ModelRequest([messages.UserPromptPart(name)]))
            try:
                await store.save(found)
            except conflict:  # as its callers have to: load again, and make the change on top
                continue
            return

    return Writer(
        lambda name: asyncio.run(add(name)),
        lambda: [each.parts[0].content for each in asyncio.run(load()).messages],
    )


def _google_adk(place: str) -> Writer:
    exists = import_module("google.adk.errors.already_exists_error").AlreadyExistsError
    stale = import_module("google.adk.errors").StaleSessionError
    event = import_module("google.adk.events").Event
    service = import_module("snapshot_plugin.frameworks.google_adk").SnapshotSessionService(place)
    who = {"app_name": "shop", "user_id": "ada", "session_id": "s"}

    async def session() -> Any:
        try:
            return await service.create_session(**who)
        except exists:
            return await service.get_session(**who)

    async def add(name: str) -> None:
        while True:
            try:
                await service.append_event(await session(), event(author="user", id=name))
            except stale:  # as its callers have to: get it again
                continue
            return

    return Writer(lambda name: asyncio.run(add(name)), lambda: [each.id for each in asyncio.run(session()).events])


def _agent_framework(place: str) -> Writer:
    message = import_module("agent_framework").Message
    provider = import_module("snapshot_plugin.frameworks.agent_framework").SnapshotHistoryProvider(place)
    return Writer(
        lambda name: asyncio.run(provider.save_messages("s", [message("user", ["x"], message_id=name)])),
        lambda: [each.message_id for each in asyncio.run(provider.get_messages("s"))],
    )


def _agent_framework_workflows(place: str) -> Writer:
    checkpoint = import_module("agent_framework").WorkflowCheckpoint
    storage = import_module("snapshot_plugin.frameworks.agent_framework").SnapshotCheckpointStorage(place)
    return Writer(
        lambda name: asyncio.run(
            storage.save(checkpoint(workflow_name="w", graph_signature_hash="g", checkpoint_id=name))
        ),
        lambda: list(asyncio.run(storage.list_checkpoint_ids(workflow_name="w"))),
    )


WRITERS: dict[str, Callable[[str], Writer]] = {
    "langgraph": _langgraph,
    "openai_agents": _openai_agents,
    "claude_agent_sdk": _claude_agent_sdk,
    "pydantic_ai": _pydantic_ai,
    "google_adk": _google_adk,
    "agent_framework": _agent_framework,
    "agent_framework_workflows": _agent_framework_workflows,
}


def refused_while_full(writer: Writer, name: str) -> str:
    """Add *name* while no file of this process may grow; the kind of the error."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        writer.add(name)
    except SnapshotError as error:
        return error.code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return "no error"


def main() -> None:
    framework, place, *names = sys.argv[1:]
    writer = WRITERS[framework](place)
    print(*writer.names(), flush=True)
    if names[:1] == ["--full"]:
        names = names[1:]
        print(refused_while_full(writer, names[-1]))
    for name in names:
        writer.add(name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
