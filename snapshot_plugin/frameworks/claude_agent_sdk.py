"""`SnapshotSessionStore`: transcripts of the Claude Agent SDK as sessions of a snapshot store.

::

    options = ClaudeAgentOptions(session_store=SnapshotSessionStore("sessions"))

A transcript is a session; those of its subagents are sections of it. Runs on asyncio and trio. Install
``snapshot-plugin[claude-agent-sdk]``.
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
from snapshot_plugin.store.recent import Recent

with needs_extra("claude-agent-sdk", "sessions of the Claude Agent SDK need the package claude-agent-sdk"):
    from claude_agent_sdk import SessionStore, fold_session_summary

__all__ = ["SnapshotSessionStore"]

FRAMEWORK = "claude-agent-sdk"
FORMAT, FORMAT_WITH_SUBAGENTS = 1, 2
"""A session with entries of subagents has the second: release 0.2 would look for them elsewhere."""
_SUBAGENT = f"{FRAMEWORK}:subagent:"
_SUMMARY = f"{FRAMEWORK}:summary"
_SUBPATH = "subpath"
_MOVED = 1024
"""For how many sessions it is remembered that nothing of release 0.2 is left to be moved."""


class SnapshotSessionStore(SessionStore):
    """Keeps transcripts: durable when `append` returns. Entries with a known ``uuid`` are not added again.

    Args:
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
    """

    def __init__(self, place: Place, key: Key = None) -> None:
        self._sessions = OpenSessions(place, key)
        self._moved: Recent[bool] = Recent(_MOVED)

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

    def _session(self, key: Mapping[str, Any]) -> SharedSession:
        return self._sessions.session(_name(key["project_key"], key["session_id"]))

    def _append(self, key: Mapping[str, Any], entries: Sequence[Any]) -> None:
        added = [message_of(entry) for entry in entries]
        if key.get(_SUBPATH):
            self._move_in(key)
            self._session(key).change(lambda head: self._with_subagent(head, key, {key[_SUBPATH]: added}))
        else:
            self._session(key).change(lambda head: self._appended(head, key, entries, added))

    def _appended(
        self, head: SessionSnapshot | None, key: Mapping[str, Any], entries: Sequence[Any], added: Sequence[Message]
    ) -> LabelledSnapshot | None:
        base = self._base(head, key)
        known = {message.id for message in base.messages}
        fresh = [at for at, each in enumerate(added) if each.id is None or each.id not in known]
        if not fresh:
            return None
        before = thaw(base.plugins.get(_SUMMARY))
        summary = fold_session_summary(before, key, [entries[at] for at in fresh])
        messages = (*base.messages, *(added[at] for at in fresh))
        facts: dict[str, Any] = {}
        models = [model for at in fresh if (model := model_of(added[at]))]
        cwd = next((each["cwd"] for each in entries if isinstance(each.get("cwd"), str)), base.config.cwd)
        if models or cwd != base.config.cwd:
            facts["config"] = base.config.evolve(model=models[-1] if models else base.config.model, cwd=cwd)
        return self._made(described(base, messages, **facts), key, {**base.plugins, _SUMMARY: summary})

    def _with_subagent(
        self, head: SessionSnapshot | None, key: Mapping[str, Any], added: Mapping[str, Sequence[Message]]
    ) -> LabelledSnapshot | None:
        """The session with entries of subagents, by subpath: each batch is a section, which is written once."""
        base = self._base(head, key)
        batches = _batches(base)
        count = max((int(name.removeprefix(_SUBAGENT)) for name in batches), default=0)
        sections = dict(base.plugins)
        for subpath, messages in added.items():
            known = {each.get("id") for each in _entries(batches, subpath)}
            fresh = [each.raw() for each in messages if each.id is None or each.id not in known]
            if fresh:
                count += 1
                sections[f"{_SUBAGENT}{count:06}"] = {_SUBPATH: subpath, "entries": fresh}
        return self._made(base, key, sections) if len(sections) > len(base.plugins) else None

    def _base(self, head: SessionSnapshot | None, key: Mapping[str, Any]) -> SessionSnapshot:
        return checked(head, FRAMEWORK, FORMAT_WITH_SUBAGENTS) or new_session(
            self._session(key).session_id, FRAMEWORK
        )

    @staticmethod
    def _made(base: SessionSnapshot, key: Mapping[str, Any], sections: Mapping[str, Any]) -> LabelledSnapshot:
        about = {"project": key["project_key"], "session": key["session_id"]}
        is_alone = not any(name.startswith(_SUBAGENT) for name in sections)
        core = {"format": FORMAT if is_alone else FORMAT_WITH_SUBAGENTS, **about}
        made = base.evolve(
            plugins={**sections, FRAMEWORK: core}, updated_at=max(base.updated_at, SharedSession.now())
        )
        return LabelledSnapshot(made, {"framework": FRAMEWORK, **about})

    def _current(self, key: Mapping[str, Any]) -> SessionSnapshot | None:
        return checked(self._session(key).current(), FRAMEWORK, FORMAT_WITH_SUBAGENTS)

    def _load(self, key: Mapping[str, Any]) -> list[Any] | None:
        subpath = key.get(_SUBPATH)
        if subpath:
            self._move_in(key)
        head = self._current(key)
        with reading(self._session(key).session_id, FRAMEWORK):
            if head is None or not subpath:
                messages = head.messages if head else ()
            else:
                messages = tuple(Message.model_validate(each) for each in _entries(_batches(head), subpath))
            return [entry_of(message) for message in messages] or None

    def _project(self, project_key: str) -> Iterator[tuple[SnapshotMeta, str]]:
        for meta, about in labelled(self._sessions.store, FRAMEWORK, "project", "session"):
            # Without branches that people made, as the SDK does not know their ids, and without transcripts that
            # only a subagent has begun.
            if about.get("project") == project_key and meta.messages:
                name = _name(project_key, about["session"])
                if name_in(meta.session_id, name) == name:
                    yield meta, about["session"]

    def _summary(self, meta: SnapshotMeta, session_id: str) -> dict[str, Any]:
        kept = self._sessions.store.section(meta.session_id, "plugins", _SUMMARY) or {}
        return {**_listed(meta, session_id), "data": kept.get("data", {})}

    def _subkeys(self, key: Mapping[str, Any]) -> list[str]:
        self._move_in(key)
        head = self._current(key)
        return sorted({batch[_SUBPATH] for batch in _batches(head).values()}) if head else []

    def _delete(self, key: Mapping[str, Any]) -> None:
        subpath = key.get(_SUBPATH)
        if not subpath:
            self._session(key).delete()
            self._old(key).delete()
            return

        def without(head: SessionSnapshot | None) -> LabelledSnapshot | None:
            batches = _batches(head) if head else {}
            gone = {name for name, batch in batches.items() if batch[_SUBPATH] == subpath}
            if head is None or not gone:
                return None
            return self._made(head, key, {name: each for name, each in head.plugins.items() if name not in gone})

        self._move_in(key)
        self._session(key).change(without)

    def _old(self, key: Mapping[str, Any]) -> SharedSession:
        return self._sessions.session(_name(key["project_key"], key["session_id"]), COMPANION)

    def _move_in(self, key: Mapping[str, Any]) -> None:
        """Take in the entries of subagents that release 0.2 stored in a second session. It goes to the trash."""
        name = self._session(key).session_id
        if self._moved.get(name):
            return
        old = self._old(key)
        with old.lock:
            head = checked(old.current(), FRAMEWORK)
            if head is not None:
                added: dict[str, list[Message]] = {}
                for each in head.messages:
                    about = {field: value for field, value in each.metadata.items() if field != _SUBPATH}
                    added.setdefault(each.metadata[_SUBPATH], []).append(each.evolve(metadata=about))
                self._session(key).change(lambda head: self._with_subagent(head, key, added))
                old.store.delete(old.session_id)
        self._moved.put(name, True)


def _batches(head: SessionSnapshot) -> dict[str, Mapping[str, Any]]:
    """The sections that hold entries of subagents, in their order."""
    return {name: head.plugins[name] for name in sorted(head.plugins) if name.startswith(_SUBAGENT)}


def _entries(batches: Mapping[str, Mapping[str, Any]], subpath: str) -> list[Mapping[str, Any]]:
    return [each for batch in batches.values() if batch[_SUBPATH] == subpath for each in batch["entries"]]


def _name(project_key: str, session_id: str) -> str:
    project = hashlib.sha256(project_key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{session_id}.{project}"


def _listed(meta: SnapshotMeta, session_id: str) -> dict[str, Any]:
    return {"session_id": session_id, "mtime": int(meta.saved_at.timestamp() * 1000)}
