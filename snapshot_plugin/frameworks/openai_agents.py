"""`SnapshotSession`: conversations of the OpenAI Agents SDK as sessions of a snapshot store.

::

    result = await Runner.run(agent, "Hello", session=SnapshotSession("user-123", "sessions"))

Behaves as the SDK's `SQLiteSession`, with history, integrity checks and encryption; an interrupted run can be kept
with it (`save_run_state`). Install ``snapshot-plugin[openai-agents]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.extras import needs_extra
from snapshot_plugin.frameworks.conversations import (
    FLOATS,
    checked,
    described,
    reading,
    with_floats,
    without_floats,
)
from snapshot_plugin.frameworks.openai_items import item_in, item_of, message_of
from snapshot_plugin.frameworks.sessions import (
    Key,
    LabelledSnapshot,
    Place,
    new_session,
    open_place,
    session_id_for,
    shared_session,
)
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.store.hop import in_thread

with needs_extra("openai-agents", "sessions of the OpenAI Agents SDK need the package openai-agents"):
    from agents import Agent, Runner
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings
    from agents.run_state import RunState

__all__ = ["SnapshotSession", "persistent_conversation"]

FRAMEWORK = "openai-agents"
FORMAT = 1
S = TypeVar("S")
T = TypeVar("T")
_RUN_STATE = f"{FRAMEWORK}:run-state"


class SnapshotSession(SessionABC):
    """The items of one conversation: durable when a call returns.

    Any number of threads, event loops and processes may use the same session; each call is atomic.

    Args:
        session_id: which conversation.
        place: a directory, a URL, or an open store.
        key: a passphrase or key source; everything but ids is then encrypted.
        session_settings: the SDK's settings, as for its own sessions: a default limit for `get_items`.
    """

    def __init__(
        self,
        session_id: str,
        place: Place,
        key: Key = None,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        settings = SessionSettings(**session_settings) if isinstance(session_settings, dict) else session_settings
        self.session_settings = settings or SessionSettings()
        self._session = shared_session(open_place(place, key), session_id_for(session_id))
        self._closed = False
        self._counted: WeakKeyDictionary[Any, tuple[int, int]] = WeakKeyDictionary()
        """The tokens of each run that are stored with its items."""

    # The SDK's protocol. It passes the context of the run as *wrapper*, which counts its tokens. ---------------

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        """All items, or the latest *limit*, oldest first. A negative limit means all."""
        self._spent(wrapper)
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await self._run(self._get, limit)

    async def add_items(self, items: Sequence[Any], *, wrapper: Any = None) -> None:
        """Add items at the end, all or none, with the tokens that the run took for them."""
        given, said = self._spent(wrapper)
        await self._run(self._add, items, {"input_tokens": given, "output_tokens": said} if given or said else None)
        if wrapper is not None and items:
            before = self._counted[wrapper]
            self._counted[wrapper] = before[0] + given, before[1] + said

    async def pop_item(self, *, wrapper: Any = None) -> Any | None:  # noqa: ARG002 — all four methods must take it
        """Remove and return the last item; None if there is none.

        Raises:
            InvalidInput: the SDK's `EncryptedSession` has stored the item. With a wrong key it would remove every
                item of the session in search of one that it can read. Nothing is removed.
        """
        return await self._run(self._pop)

    async def clear_session(self, *, wrapper: Any = None) -> None:  # noqa: ARG002 — as above
        """Remove all items and a kept run state. Earlier snapshots stay in the history; see `delete_session`."""
        await self._run(self._keep, None, ())

    def close(self) -> None:
        """Refuse further calls. The store stays open for other sessions."""
        self._closed = True

    # Beyond it -------------------------------------------------------------------------------------------

    async def delete_session(self) -> None:
        """Remove the session and its history for ever."""
        await self._run(self._session.delete)

    async def save_run_state(self, state: RunState[Any, Any] | None, **options: Any) -> None:
        """Keep an interrupted run (``result.to_state()``) with the session, or with None, forget it.

        *options* are those of `RunState.to_json`, such as ``context_serializer``.
        """
        kept, floats = without_floats(state and state.to_json(**options))
        await self._run(self._keep, {**kept, FLOATS: floats} if floats else kept)

    async def load_run_state(self, agent: Any, **options: Any) -> RunState[Any, Any] | None:
        """The run that was kept, for *agent*; None if there is none. Approve or reject, then run it.

        *options* are those of `RunState.from_json`, such as ``context_deserializer`` and ``context_override``.
        """
        kept = await self._run(self._kept)
        return None if kept is None else await RunState.from_json(agent, kept, **options)

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> Any | None:
        """Called by the SDK's compaction session: the items, and a function that replaces the last of them.

        None for a subclass, whose own methods may change items, as for a subclass of `SQLiteSession`.
        """
        if type(self) is not SnapshotSession:
            return None
        from agents.memory.session import _CompactionSnapshot  # noqa: PLC0415 — not in every supported release

        messages = await self._run(self._messages)
        seen = messages[-limit:]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            return await self._run(self._replace_suffix, seen[start:], output, prune_prefix)

        return _CompactionSnapshot(self._items(item_of, seen), len(messages) <= limit, replace_suffix)

    # Inside, in a worker thread --------------------------------------------------------------------------

    async def _run(self, work: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise RuntimeError("SnapshotSession is closed")
        return await in_thread(work, *args)

    def _snapshot(self) -> SessionSnapshot | None:
        return checked(self._session.current(), FRAMEWORK)

    def _messages(self) -> tuple[Message, ...]:
        found = self._snapshot()
        return found.messages if found else ()

    def _get(self, limit: int | None) -> list[Any]:
        found = self._session.first_lines()
        if found is not None:
            checked(found.session, FRAMEWORK)
            return self._items(item_in, _latest(found.messages, limit))
        return self._items(item_of, _latest(self._messages(), limit))

    def _items(self, item: Callable[[S], Any], stored: Sequence[S]) -> list[Any]:
        with reading(self._session.session_id, FRAMEWORK):
            return [item(each) for each in stored]

    def _spent(self, wrapper: Any) -> tuple[int, int]:
        """The tokens of the run that are not stored yet. A resumed run begins with those it had before."""
        if wrapper is None:
            return 0, 0
        used = wrapper.usage.input_tokens, wrapper.usage.output_tokens
        before = self._counted.setdefault(wrapper, used)
        return used[0] - before[0], used[1] - before[1]

    def _add(self, items: Sequence[Any], usage: dict[str, int] | None = None) -> None:
        added = tuple(map(message_of, items))
        if added and usage:
            added = (*added[:-1], added[-1].evolve(metadata={**added[-1].metadata, "usage": usage}))
        if added:
            self._session.change(lambda head: self._change(head, (*(head.messages if head else ()), *added), added))

    def _replace(self, make: Callable[[tuple[Message, ...]], tuple[Message, ...]]) -> None:
        def change(head: SessionSnapshot | None) -> LabelledSnapshot | None:
            before = head.messages if head else ()
            after = make(before)
            return None if after is before else self._change(head, after)

        self._session.change(change)

    def _change(
        self, head: SessionSnapshot | None, messages: tuple[Message, ...], added: tuple[Message, ...] | None = None
    ) -> LabelledSnapshot:
        base = checked(head, FRAMEWORK) or new_session(self._session.session_id, FRAMEWORK)
        facts: dict[str, Any] = {"updated_at": max(base.updated_at, self._session.now())}
        if FRAMEWORK not in base.plugins:
            facts["plugins"] = {**base.plugins, FRAMEWORK: FORMAT}
        return LabelledSnapshot(
            described(base, messages, added=added, **facts), {"framework": FRAMEWORK, "session": self.session_id}
        )

    def _pop(self) -> Any | None:
        popped: list[Any] = []

        def without_last(before: tuple[Message, ...]) -> tuple[Message, ...]:
            popped[:] = self._items(item_of, before[-1:])
            if popped and isinstance(popped[0], dict) and popped[0].get("__enc__") == 1:
                raise InvalidInput(
                    f"session {self.session_id!r} holds items of an EncryptedSession, which cannot be popped",
                    session_id=self._session.session_id,
                    hint="encrypt the store instead: SnapshotSession(session_id, place, key=...)",
                )
            return before[:-1] if before else before

        self._replace(without_last)
        return popped[0] if popped else None

    def _keep(self, state: Any | None, messages: tuple[Message, ...] | None = None) -> None:
        """Set the kept run and the messages in one save. None means no run, or unchanged messages."""

        def change(head: SessionSnapshot | None) -> LabelledSnapshot | None:
            before = head.messages if head else ()
            after = before if messages is None else messages
            if state is None and after == before and (head is None or _RUN_STATE not in head.plugins):
                return None
            made, labels = self._change(head, after)
            plugins = {name: value for name, value in made.plugins.items() if name != _RUN_STATE}
            return LabelledSnapshot(
                made.evolve(plugins={**plugins, _RUN_STATE: state} if state else plugins), labels
            )

        self._session.change(change)

    def _kept(self) -> Any | None:
        found = self._snapshot()
        kept = thaw(found.plugins.get(_RUN_STATE)) if found else None
        if kept is not None:
            with reading(self._session.session_id, FRAMEWORK):
                with_floats(kept, kept).pop(FLOATS, None)
        return kept

    def _replace_suffix(
        self, expected: tuple[Message, ...], output: Sequence[Any], expired: Callable[[Any], bool] | None
    ) -> bool:
        replaced = False

        def make(before: tuple[Message, ...]) -> tuple[Message, ...]:
            nonlocal replaced
            replaced = bool(expected) and before[-len(expected) :] == expected
            if not replaced:
                return before
            kept = before[: -len(expected)]
            while expired and kept and expired(item_of(kept[0])):
                kept = kept[1:]
            return (*kept, *map(message_of, output))

        self._replace(make)
        return replaced


def _latest(entries: Sequence[T], limit: int | None) -> Sequence[T]:
    return entries if limit is None or limit < 0 else entries[max(0, len(entries) - limit) :]


class _SessionConversation:
    """The conversation of an agent in a `persistent_session`."""

    framework = FRAMEWORK

    def __init__(self, agent: Any, adapter: SnapshotSession) -> None:
        self._agent, self.adapter = agent, adapter

    async def run(self, prompt: Any, **options: Any) -> Any:
        """See `Runner.run`. A run that waits for an approval is kept with the session."""
        result = await Runner.run(self._agent, prompt, session=self.adapter, **options)
        await self.adapter.save_run_state(result.to_state() if result.interruptions else None)
        return result


def persistent_conversation(agent: object, session_id: str, place: Place) -> _SessionConversation | None:
    """The conversation that `persistent_session` keeps for an `Agent`; None if *agent* is something else."""
    return _SessionConversation(agent, SnapshotSession(session_id, place)) if isinstance(agent, Agent) else None
