"""`SnapshotConversationStore`: pydantic-ai conversations as sessions of a snapshot store.

::

    store = SnapshotConversationStore("sessions")
    conversation = await store.load("chat-7") or Conversation(conversation_id="chat-7")
    result = await agent.run("Hello", conversation=conversation)
    await store.save(result)

A conversation is a session: its history is the session's messages, entries of branches it left are sections. A fork
is a session of its own that keeps the ids of the entries it shares. Install ``snapshot-plugin[pydantic-ai]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.conversations import checked, described, left_out, reading, title_of
from snapshot_plugin.frameworks.pydantic_messages import json_of, message_of, model_of, prompt_of
from snapshot_plugin.frameworks.sessions import (
    Key,
    LabelledSnapshot,
    OpenSessions,
    Place,
    SharedSession,
    labelled,
    name_in,
    new_session,
)
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Parent, SessionSnapshot
from snapshot_plugin.store.hop import in_thread
from snapshot_plugin.store.recent import Recent

with needs_extra("pydantic-ai", "conversations of pydantic-ai need the package pydantic-ai-slim"):
    from pydantic_ai import Conversation
    from pydantic_ai.agent import AbstractAgent
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter

__all__ = ["SnapshotConversationStore", "persistent_conversation"]

FRAMEWORK = "pydantic-ai"
FORMAT = 1
_LEFT = f"{FRAMEWORK}:left:"
"""Entries of branches that the conversation left."""
_ENTRIES = 4096
_records: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


class _Kept(NamedTuple):
    parent: str | None
    message: Message


class SnapshotConversationStore(ConversationStore):
    """Keeps conversations: durable when `save` returns, and refused after a concurrent save.

    `delete` erases a conversation and its history for ever; forks keep the entries they share.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
    """

    def __init__(self, place: Place, key: Key = None) -> None:
        self._conversations = _Conversations(OpenSessions(place, key))

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation; None if there is none."""
        return await in_thread(self._conversations.read_record, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, or those of a scope, the one saved last first."""
        return await in_thread(self._conversations.read_records, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Save a record and its new entries at once, or raise `ConversationConflict` and save neither."""
        await in_thread(self._conversations.write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Erase a conversation for ever, or raise `ConversationConflict` if it was saved meanwhile."""
        await in_thread(self._conversations.delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry; `LookupError` if no conversation has it."""
        return (await in_thread(self._conversations.history, entry_id, 1))[0]

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """The entries up to *head_id*, or the last *limit* of them."""
        return [] if head_id is None or limit == 0 else await in_thread(self._conversations.history, head_id, limit)


class _Conversations:
    """The work of the store, in a worker thread."""

    def __init__(self, sessions: OpenSessions) -> None:
        self._sessions = sessions
        self._homes: Recent[str] = Recent(_ENTRIES)

    def _session(self, conversation_id: str) -> SharedSession:
        return self._sessions.session(conversation_id)

    def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation."""
        record = _record_of(self._session(conversation_id).current())
        if record is not None:
            self._remember(record)
        return record

    def _remember(self, record: ConversationRecord) -> None:
        for entry_id in (record.head_id, *record.branches):
            if entry_id is not None:
                self._homes.put(entry_id, record.conversation_id)

    def read_records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        """The records of a scope, or all, newest first."""
        found = [
            (meta.changed_at, name_in(meta.session_id, about.get("conversation_id")))
            for meta, about in labelled(self._sessions.store, FRAMEWORK, "conversation_id")
            if scope is None or about.get("scope") == scope
        ]
        records: list[ConversationRecord] = []
        for _, conversation_id in sorted(found, key=lambda each: each[0], reverse=True):
            if len(records) == limit:
                break
            with left_out():
                if (record := self.read_record(conversation_id)) is not None:
                    records.append(record)
        return records

    def write(
        self, record: ConversationRecord, new_entries: Sequence[ConversationEntry], expected: str | None
    ) -> None:
        """Save a record and its new entries."""
        raw = ModelMessagesTypeAdapter.dump_python([entry.message for entry in new_entries], mode="json")
        added = {
            entry.id: _Kept(entry.parent_id, message_of(data, entry.id))
            for entry, data in zip(new_entries, raw, strict=True)
        }
        session = self._session(record.conversation_id)
        source = self._entries_of(record.forked_from) if expected is None and record.forked_from else {}

        def change(head: SessionSnapshot | None) -> LabelledSnapshot:
            stored = _record_of(head)
            if (stored.revision if stored else None) != expected:
                raise ConversationConflict(record.conversation_id)
            base = head or self._begun(record, session.session_id)
            return self._changed(base, record, {**source, **_entries(head), **added})

        session.change(change)
        self._remember(record)

    def _begun(self, record: ConversationRecord, session_id: str) -> SessionSnapshot:
        """A new session; a fork begins with the messages of its source, which are not counted again."""
        made = new_session(session_id, FRAMEWORK, _updated(record))
        source = self._session(record.forked_from) if record.forked_from else None
        head = source.current() if source else None
        if source is None or head is None:
            return made
        kept = [message.id for message in head.messages]
        index = kept.index(record.forked_at) + 1 if record.forked_at in kept else 0
        parent = Parent(session_id=source.session_id, seq=source.seq, message_index=index)
        return made.evolve(parent=parent, messages=head.messages[:index])

    @staticmethod
    def _changed(base: SessionSnapshot, record: ConversationRecord, known: Mapping[str, _Kept]) -> LabelledSnapshot:
        try:
            chain = _chain(record.head_id, known)
            reachable = {each for tip in record.branches for each in _chain(tip, known)}
        except LookupError:  # a concurrent delete or rewrite released them
            raise ConversationConflict(record.conversation_id) from None
        left = reachable.difference(chain)
        data = _records.dump_python(record, mode="json")
        kept = {name: value for name, value in base.plugins.items() if not name.startswith(_LEFT)}
        sections = {_LEFT + each: base.plugins.get(_LEFT + each) or _section(known[each]) for each in left}
        messages = tuple(known[each].message for each in chain)
        facts: dict[str, Any] = {
            "plugins": {**kept, **sections, FRAMEWORK: {**data, "format": FORMAT}},
            "updated_at": _updated(record),
        }
        asked = (Message(role="user", content=words) for each in messages[:8] if (words := prompt_of(each)))
        if not base.title and (title := title_of(asked)):
            facts["title"] = title
        if model := next((model for each in reversed(messages[-8:]) if (model := model_of(each))), None):
            facts["config"] = base.config.evolve(model=model)
        labels = {"framework": FRAMEWORK, "conversation_id": record.conversation_id}
        return LabelledSnapshot(
            described(base, messages, **facts), {**labels, "scope": record.scope} if record.scope else labels
        )

    def delete(self, conversation_id: str, expected: str) -> None:
        """Erase a conversation that is at this revision."""
        session = self._session(conversation_id)
        with session.lock:
            record = _record_of(session.current())
            if record is None or record.revision != expected:
                raise ConversationConflict(conversation_id)
            session.delete()

    def history(self, head_id: str, limit: int | None) -> list[ConversationEntry]:
        """The entries up to one."""
        known = self._entries_of(self._homes.get(head_id))
        if head_id not in known:
            known = self._searched(head_id)
        chain = _chain(head_id, known)
        wanted = [known[each] for each in (chain if limit is None else chain[-limit:])]
        with reading(self._homes.get(head_id) or head_id, FRAMEWORK):
            messages = ModelMessagesTypeAdapter.validate_python([json_of(entry.message) for entry in wanted])
        return [
            ConversationEntry(id=entry.message.id or "", parent_id=entry.parent, message=message)
            for entry, message in zip(wanted, messages, strict=True)
        ]

    def _entries_of(self, conversation_id: str | None) -> Mapping[str, _Kept]:
        return _entries(self._session(conversation_id).current()) if conversation_id is not None else {}

    def _searched(self, entry_id: str) -> Mapping[str, _Kept]:
        """The entries of the conversation that has this one, found by looking at all of them."""
        errors: list[SnapshotError] = []
        for meta, about in labelled(self._sessions.store, FRAMEWORK, "conversation_id"):
            name = name_in(meta.session_id, about.get("conversation_id"))
            with left_out(errors):
                known = self._entries_of(name)
                if entry_id in known:
                    self._homes.put(entry_id, name)
                    return known
        if errors:
            raise errors[0]
        raise LookupError(f"no conversation has the entry {entry_id!r}")


def _record_of(snapshot: SessionSnapshot | None) -> ConversationRecord | None:
    found = checked(snapshot, FRAMEWORK)
    data = found.plugins.get(FRAMEWORK) if found else None
    if found is None or not isinstance(data, dict):
        return None
    plain = {name: value for name, value in thaw(data).items() if name != "format"}
    with reading(found.session_id, FRAMEWORK):
        plain["conversation_id"] = name_in(found.session_id, plain["conversation_id"])
        return _records.validate_python(plain)


def _entries(snapshot: SessionSnapshot | None) -> dict[str, _Kept]:
    """Every entry of a conversation: its history, and the branches it left."""
    if (snapshot := checked(snapshot, FRAMEWORK)) is None:
        return {}
    out: dict[str, _Kept] = {
        name.removeprefix(_LEFT): _Kept(kept["parent"], Message.model_validate(thaw(kept["message"])))
        for name, kept in snapshot.plugins.items()
        if name.startswith(_LEFT)
    }
    parent = None
    for message in snapshot.messages:
        out[message.id or ""] = _Kept(parent, message)
        parent = message.id
    return out


def _section(entry: _Kept) -> dict[str, Any]:
    return {"parent": entry.parent, "message": entry.message.raw()}


def _chain(tip: str | None, known: Mapping[str, _Kept]) -> list[str]:
    """The entries up to *tip*, oldest first; `LookupError` if one is missing."""
    out: list[str] = []
    while tip is not None:
        if tip not in known or len(out) > len(known):
            raise LookupError(f"there is no entry {tip!r}")
        out.append(tip)
        tip = known[tip].parent
    return out[::-1]


def _updated(record: ConversationRecord) -> datetime:
    updated: datetime = record.updated_at
    return updated


class _SavedConversation:
    """The conversation of an agent in a `persistent_session`."""

    framework = FRAMEWORK

    def __init__(self, agent: Any, conversation_id: str, adapter: SnapshotConversationStore) -> None:
        self._agent, self._id, self.adapter = agent, conversation_id, adapter

    async def run(self, prompt: Any, **options: Any) -> Any:
        """See `Agent.run`; the conversation is saved when the run is complete."""
        conversation = await self.adapter.load(self._id) or Conversation(conversation_id=self._id)
        result = await self._agent.run(prompt, conversation=conversation, **options)
        await self.adapter.save(result)
        return result


def persistent_conversation(agent: object, session_id: str, place: Place) -> _SavedConversation | None:
    """The conversation that `persistent_session` keeps for an `Agent`; None if *agent* is something else."""
    if not isinstance(agent, AbstractAgent):
        return None
    return _SavedConversation(agent, session_id, SnapshotConversationStore(place))
