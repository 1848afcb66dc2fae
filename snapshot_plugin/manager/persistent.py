"""`persistent_session`: load an agent on entry, save it on exit, with one line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import anyio

from snapshot_plugin.errors import Damaged, InvalidInput, InvalidSessionId, SnapshotNotFound
from snapshot_plugin.live.place import refuse_shared_without_leases
from snapshot_plugin.manager.callable_store import CallableStore, Delete, Load, Save
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.config_values import seconds
from snapshot_plugin.manager.context import (
    AgentReader,
    FrameworkConversation,
    PluginStates,
    Problem,
    conversation_of,
)
from snapshot_plugin.manager.events import Event, SnapshotCreated, SnapshotFailed, SnapshotSkipped
from snapshot_plugin.manager.manager import SnapshotManager
from snapshot_plugin.manager.opening import open_place
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.manager.working_memory import COMPANION, WorkingMemory, memory_id, pinned, with_memory
from snapshot_plugin.model.ids import check_session_id, dirname_of, is_companion
from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
from snapshot_plugin.model.snapshot import AgentInfo, SessionSnapshot
from snapshot_plugin.model.value import Value
from snapshot_plugin.store.base import Finding, SnapshotStore, StoredSnapshot
from snapshot_plugin.store.hop import Deadline

__all__ = ["LoadReport", "PersistentSession", "persistent_session"]

_log = logging.getLogger(__name__)
_PROVIDER = "persistent"


class LoadReport(Value):
    """The result of a load. Parts not named in `problems` were loaded."""

    found: bool
    """False if nothing was stored yet."""
    seq: int | None = None
    """The snapshot that was loaded."""
    age: float | None = None
    """How old that snapshot was, in seconds."""
    messages: int = 0
    problems: tuple[Problem, ...] = ()
    """Parts that could not be loaded, and why."""
    skipped: tuple[Finding, ...] = ()
    """Newer snapshots that are damaged."""


def persistent_session(
    agent: object,
    *,
    agent_id: str,
    store: SnapshotStore | str | Path | tuple[Save, Load, Delete] | None = None,
    auto_save_interval: float | None = 30.0,
    save_on_exit: bool = True,
    load_on_enter: bool = True,
    agent_type: str | None = None,
    clock: Clock = utc_now,
) -> PersistentSession:
    """Persist *agent* under *agent_id*: load on entry, save when changed, and save on exit.

    It stores history, system prompt, instructions, model, tools, permissions, options, title and tags, as far as
    the agent has them (`snapshot_plugin.manager.context` says how they are read), the working memory of the
    session, and the state of each registered plugin. Agents of openai-agents and pydantic-ai do not hold their
    conversations:
    run them with ``session.run(prompt)``, and their adapters store the conversation.

    Args:
        agent: the agent. It is not changed otherwise, and works as before outside the block.
        agent_id: the id to store it under. One process at a time can have it open.
        store: a store, a path or URL of one, or three functions (save, load, delete), see `CallableStore`; default:
        the user's own store (``ASNAP_STORE``, or the data directory).
        auto_save_interval: seconds between saves of a changed session; None or 0: only by `save`.
        save_on_exit: save when the block is left, even by an error or a cancellation.
        load_on_enter: restore the agent when the block is entered.
        agent_type: what kind of agent it is; default: the name of its class. State stored by another kind is
        refused.
        clock: the time of day.
    """
    return PersistentSession(
        agent,
        agent_id=agent_id,
        store=CallableStore(*store) if isinstance(store, tuple) else store,
        auto_save_interval=auto_save_interval,
        save_on_exit=save_on_exit,
        load_on_enter=load_on_enter,
        agent_type=agent_type,
        clock=clock,
    )


class PersistentSession:
    """The stored context of an agent; see `persistent_session`. `load` and `save` also work without entering it."""

    is_part = True
    """Beside a framework's own conversation, its session is a part of that one: see `check_session`."""

    def __init__(
        self,
        agent: object,
        *,
        agent_id: str,
        store: SnapshotStore | str | Path | None,
        auto_save_interval: float | None,
        save_on_exit: bool,
        load_on_enter: bool,
        agent_type: str | None,
        clock: Clock,
    ) -> None:
        self.agent = agent
        self.report = LoadReport(found=False)
        self._interval = seconds(auto_save_interval) if auto_save_interval else None
        self._save_on_exit = save_on_exit
        self._load_on_enter = load_on_enter
        self._clock = clock
        self._store, self._owns_store = open_place(store)
        refuse_shared_without_leases(self._store)
        self._agent_id = _checked_id(agent_id)
        self._conversation = conversation_of(agent, agent_id, self._store)
        self.session_id = agent_id + COMPANION if self._conversation else agent_id
        self._types = (agent_type,) if agent_type else _types_of(agent, self._conversation)
        self._reader = AgentReader(agent, kept_by_adapter=self._conversation is not None)
        self._plugins = PluginStates()
        self.memory = WorkingMemory(clock=clock)
        self.manager = SnapshotManager(self._store, self._settings(), clock=clock)
        self._state: SessionSnapshot | None = None
        self._problems: tuple[Problem, ...] = ()
        self._failed: tuple[Problem, ...] = ()
        self.manager.events.subscribe(self._saved_or_not, SnapshotCreated, SnapshotSkipped, SnapshotFailed)
        self._closing = AsyncExitStack()

    def _settings(self) -> SnapshotConfig:
        return SnapshotConfig(
            enable_persistence=True,
            snapshot_on_exit=self._save_on_exit,
            snapshot_on_signal=self._save_on_exit,
        )

    # For callers ----------------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The parts that the last save could not store; ``session`` if all of it failed. All others are stored."""
        return (*self._failed, *self._problems)

    @property
    def path(self) -> str:
        """The place where it is stored, for display."""
        root = getattr(self._store, "path", None)
        kept = Path(root) / "sessions" / dirname_of(self._agent_id) if root else None
        return str(kept) if kept else f"{type(self._store).__name__} {self._agent_id}"

    @property
    def conversation(self) -> Any:
        """The `SnapshotSession` or `SnapshotConversationStore` that stores the conversation of a framework's agent.

        None for agents that hold their own history.
        """
        return self._conversation.adapter if self._conversation else None

    async def run(self, prompt: Any, **options: Any) -> Any:
        """Run an agent of openai-agents or pydantic-ai with the whole conversation; returns its result.

        *options* are those of the framework's own ``run``.

        Raises:
            InvalidInput: the agent is of another kind. Call it yourself; the session saves its history.
        """
        if self._conversation is None:
            raise InvalidInput(f"a {type(self.agent).__name__} is not run by its session", hint="run it yourself")
        return await self._conversation.run(prompt, **options)

    def register_plugin(self, name: str, get_state: Callable[[], Any], set_state: Callable[[Any], None]) -> None:
        """Store a plugin's state too. It is restored now if the session is loaded already, else on load.

        Both functions are synchronous. A failing one is named in `report` (restoring) or `problems` (saving).
        """
        self._plugins.register(name, get_state, set_state)
        if self._state is not None:
            failed = self._plugins.write(self._state.plugins, only=name)
            self._set_report(self.report.evolve(problems=(*self.report.problems, *failed)))

    async def load(self) -> LoadReport:
        """Restore the agent. Does nothing if nothing is stored, or if no snapshot is intact (`report` says so).

        Raises:
            InvalidInput: another kind of agent stored it.
            SnapshotError: the store cannot be read (a missing key, a newer version, the disk).
        """
        await self._load()
        return self.report

    async def save(self) -> SnapshotRef:
        """Save the agent's current context; durable on return. An unchanged context is not written."""
        return await self.manager.snapshot(self)

    async def exists(self) -> bool:
        """Whether anything is stored."""
        return bool(await self._history())

    async def last_modified(self) -> datetime | None:
        """When the stored context last changed; None if nothing is stored."""
        history = await self._history()
        return history[0].saved_at if history else None

    async def delete(self) -> bool:
        """Move the stored context to the store's trash; returns whether there was any.

        The agent is unchanged and no longer saved automatically; `save` starts a new history.
        """
        await self.manager.stop_auto_snapshot(self.session_id, save=False)
        self._save_on_exit = False
        async with self.manager.leasing(self.session_id) as managed:
            await managed.release()  # lease and spool are moved to the trash too; the next save creates new ones
            kept = {self.session_id: None, self._agent_id: None, memory_id(self._agent_id): None}
            existed = [await self._delete(name) for name in kept]
        self._state = None
        self.memory.reset({})
        return any(existed)

    # Entering and leaving --------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            if self._owns_store:
                await stack.enter_async_context(self._store)
            await stack.enter_async_context(self.manager)
            managed = await stack.enter_async_context(self.manager.leasing(self.session_id))
            await managed.try_to_take()
            self._set_problems(self._unread())
            found = await self._load() if self._load_on_enter else None
            if self._interval is not None:
                await self.manager.start_auto_snapshot(self, self._interval, baseline=found)
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._save_on_exit and self.session_id not in self.manager.live:
                await self._save_at_exit()
        finally:
            await self._closing.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Close the store if it was opened here. For sessions that are used without entering them."""
        if self._owns_store:
            await self._store.aclose()

    async def _save_at_exit(self) -> None:
        limit, deadline = self.manager.config.exit_timeout, Deadline()
        with anyio.move_on_after(limit, shield=True), deadline.applies():
            deadline.set(limit)
            try:
                await self.manager.snapshot(self, trigger="exit")
            except Exception as error:  # noqa: BLE001 — reported, as a failed automatic save
                self.manager.report.failed(self.session_id, "save", error)

    # For the manager -------------------------------------------------------------------------------------

    async def snapshot(self) -> SessionSnapshot:
        """The agent's current snapshot, with its memory and the states of its plugins."""
        state = self._state or self._new_state()
        state, problems = self._reader.read(state)
        plugins, failed = self._plugins.read(state.plugins)
        entries = self.memory.section()
        self._set_problems((*self._unread(), *problems, *failed, *self.memory.problems))
        self._state = pinned(state.evolve(plugins=plugins, memory=entries, updated_at=self._clock()))
        return self._state

    # Inside ----------------------------------------------------------------------------------------------

    async def _load(self) -> StoredSnapshot | None:
        try:
            found = await self.manager.restore(self.session_id)
        except SnapshotNotFound:
            talk = await self._talk()
            self._set_report(LoadReport(found=bool(talk), messages=talk[0].messages if talk else 0))
            return None
        except Damaged as error:
            self._set_report(LoadReport(found=False, problems=(Problem("session", error.message),)))
            return None
        talk = await self._talk()
        await self._apply(found, talk[0].messages if talk else len(found.snapshot.messages))
        return found

    async def _talk(self) -> Sequence[SnapshotMeta]:
        """The history of the conversation that an adapter stores, newest first."""
        talk = await self._history() if self._conversation else ()
        framework = self._conversation.framework if self._conversation else None
        if talk and talk[0].provider_type != framework:
            raise self._other_kind(talk[0].provider_type or "another framework")
        return talk

    async def _apply(self, found: StoredSnapshot, messages: int) -> None:
        self._check_type(found.snapshot)
        snapshot = await with_memory(self._store, found.snapshot)
        self._state = snapshot
        self.memory.reset(snapshot.memory)
        problems = (*self._reader.write(snapshot), *self._plugins.write(snapshot.plugins))
        age = max(0.0, (self._clock() - snapshot.updated_at).total_seconds())
        self._set_report(
            LoadReport(
                found=True,
                seq=found.ref.seq,
                age=age,
                messages=messages,
                problems=problems,
                skipped=found.skipped,
            )
        )

    def _check_type(self, snapshot: SessionSnapshot) -> None:
        kept = snapshot.agent.name if snapshot.agent else None
        if snapshot.provider_type == _PROVIDER and kept and kept not in self._types:
            raise self._other_kind(kept)

    def _other_kind(self, kept: str) -> InvalidInput:
        return InvalidInput(
            f"what is kept as {self._agent_id!r} belongs to a {kept}, and this agent is a {self._types[0]}",
            session_id=self._agent_id, hint=f"use another agent_id, or take it over with agent_type={kept!r}",
        )  # fmt: skip

    def _unread(self) -> tuple[Problem, ...]:
        missing = self._reader.unreadable_history
        return (missing,) if missing else ()

    def _new_state(self) -> SessionSnapshot:
        now = self._clock()
        return SessionSnapshot(
            session_id=self.session_id,
            provider_type=_PROVIDER,
            agent=AgentInfo(name=self._types[0]),
            created_at=now,
            updated_at=now,
        )

    def _set_report(self, report: LoadReport) -> None:
        for problem in report.problems[len(self.report.problems) :]:
            _log.warning("session %s: %s was not given back: %s", self.session_id, problem.part, problem.reason)
        self.report = report

    def _saved_or_not(self, event: Event) -> None:
        if event.session_id == self.session_id:
            if not isinstance(event, SnapshotFailed):
                self._failed = ()
            elif event.operation == "save":
                self._failed = (Problem("session", event.message),)

    def _set_problems(self, problems: tuple[Problem, ...]) -> None:
        for problem in problems:
            if problem not in self._problems:
                self.manager.report.not_kept(self.session_id, problem.part, problem.reason)
        self._problems = problems

    async def _history(self) -> Sequence[SnapshotMeta]:
        try:
            return await self._store.history(self._agent_id)
        except SnapshotNotFound:
            return ()

    async def _delete(self, session_id: str) -> bool:
        try:
            await self._store.delete(session_id)
        except SnapshotNotFound:
            return False
        return True


def _types_of(agent: object, conversation: FrameworkConversation | None) -> tuple[str, ...]:
    names = tuple(each.__name__ for each in type(agent).__mro__)
    return tuple(f"{conversation.framework} {name}" for name in names) if conversation else names


def _checked_id(agent_id: str) -> str:
    """*agent_id*, if it is valid for a session and its companion, and is not itself the id of a companion."""
    check_session_id(check_session_id(agent_id) + COMPANION)
    if is_companion(agent_id):
        raise InvalidSessionId(
            f"the agent id {agent_id!r} cannot be used: it names a part of another session",
            hint="use another agent id",
        )
    return agent_id
