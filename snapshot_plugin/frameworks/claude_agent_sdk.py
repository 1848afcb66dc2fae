"""`SnapshotSessionStore`: transcripts of the Claude Agent SDK as sessions of a snapshot store.

::

    options = ClaudeAgentOptions(session_store=SnapshotSessionStore("sessions"))

A transcript is a session; those of its subagents are a companion session that lists hide. Runs on asyncio and trio.
Install ``snapshot-plugin[claude-agent-sdk]``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.claude_entries import entry_of, message_of, model_of
from snapshot_plugin.frameworks.conversations import checked, described, reading
from snapshot_plugin.frameworks.sessions import (
    COMPANION,
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
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.hop import in_thread

with needs_extra("claude-agent-sdk", "sessions of the Claude Agent SDK need the package claude-agent-sdk"):
    from claude_agent_sdk import SessionStore, fold_session_summary

__all__ = ["SnapshotSessionStore"]

FRAMEWORK = "claude-agent-sdk"
FORMAT = 1
_SUMMARY = f"{FRAMEWORK}:summary"
_SUBPATH = "subpath"


class SnapshotSessionStore(SessionStore):
    """Keeps transcripts: durable when `append` returns. Entries with a known ``uuid`` are not added again.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
    """

    def __init__(self, place: Place, key: Key = None) -> None:
        self._sessions = OpenSessions(place, key)

    async def append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> None:
        """Add entries to a transcript, all or none, in the order of the calls."""
        if entries:
            await in_thread(self._append, key, entries)

    async def load(self, key: Mapping[str, Any]) -> list[Any] | None:
        """The entries of a transcript; None if it was never written."""
        return await in_thread(self._load, key)

    async def list_sessions(self, project_key: str) -> list[Any]:
        """The sessions of a project with the time of their last change, in milliseconds."""
        return await in_thread(lambda: [_listed(*each) for each in self._project(project_key)])

    async def list_session_summaries(self, project_key: str) -> list[Any]:
        """The SDK's own summaries of the sessions of a project."""
        return await in_thread(lambda: [self._summary(*each) for each in self._project(project_key)])

    async def delete(self, key: Mapping[str, Any]) -> None:
        """Remove a transcript for ever: with its subagents' transcripts, or (``subpath``) just one of those."""
        await in_thread(self._delete, key)

    async def list_subkeys(self, key: Mapping[str, Any]) -> list[str]:
        """The subpaths of a session."""
        return await in_thread(self._subkeys, key)

    # Inside, in a worker thread --------------------------------------------------------------------------

    def _session(self, key: Mapping[str, Any], *, sub: bool) -> SharedSession:
        return self._sessions.session(_name(key["project_key"], key["session_id"]), COMPANION if sub else "")

    def _append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> None:
        subpath = key.get(_SUBPATH)
        added = [_in(subpath, message_of(entry)) for entry in entries]
        self._session(key, sub=bool(subpath)).change(lambda head: self._appended(head, key, entries, added))

    def _appended(
        self, head: SessionSnapshot | None, key: Mapping[str, Any], entries: Sequence[Any], added: Sequence[Message]
    ) -> LabelledSnapshot | None:
        subpath, head = key.get(_SUBPATH), checked(head, FRAMEWORK)
        known = {_identity(message) for message in head.messages} if head else set()
        fresh = [at for at, each in enumerate(added) if each.id is None or _identity(each) not in known]
        if not fresh:
            return None
        base = head or new_session(self._session(key, sub=bool(subpath)).session_id, FRAMEWORK)
        about = {"project": key["project_key"], "session": key["session_id"]}
        plugins = {**base.plugins, FRAMEWORK: {"format": FORMAT, **about}}
        if not subpath:
            before = thaw(base.plugins.get(_SUMMARY))
            plugins[_SUMMARY] = fold_session_summary(before, key, [entries[at] for at in fresh])
        messages = (*base.messages, *(added[at] for at in fresh))
        facts: dict[str, Any] = {"plugins": plugins, "updated_at": max(base.updated_at, SharedSession.now())}
        models = [model for at in fresh if (model := model_of(added[at]))]
        cwd = next((each["cwd"] for each in entries if isinstance(each.get("cwd"), str)), base.config.cwd)
        if models or cwd != base.config.cwd:
            facts["config"] = base.config.evolve(model=models[-1] if models else base.config.model, cwd=cwd)
        return LabelledSnapshot(described(base, messages, **facts), {"framework": FRAMEWORK, **about})

    def _messages(self, key: Mapping[str, Any]) -> tuple[Message, ...]:
        subpath = key.get(_SUBPATH)
        head = checked(self._session(key, sub=bool(subpath)).current(), FRAMEWORK)
        messages = head.messages if head else ()
        return tuple(each for each in messages if each.metadata.get(_SUBPATH) == subpath) if subpath else messages

    def _load(self, key: Mapping[str, Any]) -> list[Any] | None:
        with reading(self._session(key, sub=bool(key.get(_SUBPATH))).session_id, FRAMEWORK):
            return [entry_of(message) for message in self._messages(key)] or None

    def _project(self, project_key: str) -> Iterator[tuple[SnapshotMeta, str]]:
        for meta, about in labelled(self._sessions.store, FRAMEWORK, "project", "session"):
            # Without companions and branches that people made: the SDK does not know their ids.
            if about.get("project") == project_key:
                name = _name(project_key, about["session"])
                if name_in(meta.session_id, name) == name:
                    yield meta, about["session"]

    def _summary(self, meta: SnapshotMeta, session_id: str) -> dict[str, Any]:
        kept = self._sessions.store.section(meta.session_id, "plugins", _SUMMARY) or {}
        return {**_listed(meta, session_id), "data": kept.get("data", {})}

    def _subkeys(self, key: Mapping[str, Any]) -> list[str]:
        head = checked(self._session(key, sub=True).current(), FRAMEWORK)
        return sorted({each.metadata[_SUBPATH] for each in head.messages}) if head else []

    def _delete(self, key: Mapping[str, Any]) -> None:
        subpath, companion = key.get(_SUBPATH), self._session(key, sub=True)
        with companion.lock:
            if not subpath:
                self._session(key, sub=False).delete()
            if not subpath or self._subkeys(key) == [subpath]:
                companion.delete()
                return

            def without(head: SessionSnapshot | None) -> LabelledSnapshot | None:
                kept = (
                    tuple(each for each in head.messages if each.metadata.get(_SUBPATH) != subpath) if head else ()
                )
                if head is None or len(kept) == len(head.messages):
                    return None
                return LabelledSnapshot(described(head, kept), {"framework": FRAMEWORK})

            companion.change(without)


def _name(project_key: str, session_id: str) -> str:
    project = hashlib.sha256(project_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{session_id}.{project}"


def _in(subpath: str | None, message: Message) -> Message:
    return message.evolve(metadata={**message.metadata, _SUBPATH: subpath}) if subpath else message


def _identity(message: Message) -> tuple[str | None, Any]:
    return message.id, message.metadata.get(_SUBPATH)


def _listed(meta: SnapshotMeta, session_id: str) -> dict[str, Any]:
    return {"session_id": session_id, "mtime": int(meta.saved_at.timestamp() * 1000)}
