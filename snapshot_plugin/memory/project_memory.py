"""The memory of a project, for programs: it keeps what a session learned for later sessions.

::

    async with ProjectMemory(".") as memory:
        context = await memory.load_context()               # what earlier sessions left
        await memory.save("decisions", "database", {"choice": "sqlite"})
        await memory.record_error("TypeError_app.js:42", message="x is undefined")

`save`, `delete`, `save_baseline`, `set_noise` and `resolve_error` are on disk when they return. `record_error`,
`observe_endpoint` and `record_timing` are collected and written every `flush_interval` seconds and at the end, so a
crash loses at most that much of them; with ``durable=True`` they are written immediately.

Several processes may use one memory: each write holds a kernel lock while it lasts. If the disk refuses, a save
raises `StoreUnavailable`; if another process keeps the lock too long, `MemoryReadOnly`. The entry is then kept in
memory, can be loaded, and is written with the next write that succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from snapshot_plugin.errors import SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.places import user_state_dir
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.memory.changes import Persistence, Saved
from snapshot_plugin.memory.context import MemoryStats, SessionContext, context_of, stats_of
from snapshot_plugin.memory.documents import NoiseRule, matching_rule
from snapshot_plugin.memory.engine import UNWRITTEN, USER, MemoryEngine
from snapshot_plugin.memory.entries import KINDS, moment_in
from snapshot_plugin.memory.files import (
    API_SCHEMA,
    BASELINES,
    ERRORS,
    GLOBAL,
    NOISE,
    PERFORMANCE,
    Name,
    encoded,
    name_of,
    namespace_of,
)  # fmt: skip
from snapshot_plugin.memory.limits import MemoryLimits
from snapshot_plugin.memory.place import ProjectPlace, find_project
from snapshot_plugin.memory.privacy import without_secrets
from snapshot_plugin.memory.shapes import Baseline, Difference, baseline_data, differences, with_shapes

__all__ = ["FLUSH_INTERVAL", "ProjectMemory"]

FLUSH_INTERVAL: Final = 30.0
_MOST_COLLECTED: Final = 500
_log = logging.getLogger(__name__)
T = TypeVar("T")


class ProjectMemory:
    """One session's access to its project's memory. An async context manager; use it from one event loop.

    Args:
        start: a directory in the project, from which its root is found (`find_project`), or a `ProjectPlace`.
        limits: how much may be stored.
        flush_interval: seconds between two flushes of collected observations.
        state: where the sizes of all projects and ``global`` are kept; default: the user's state directory.
        clock: returns the time of day.
        lazy: count the session at the first call, not on entering.
    """

    def __init__(
        self,
        start: str | os.PathLike[str] | ProjectPlace = ".",
        *,
        limits: MemoryLimits | None = None,
        flush_interval: float = FLUSH_INTERVAL,
        state: Path | None = None,
        clock: Clock = utc_now,
        lazy: bool = False,
    ) -> None:
        self.place = start if isinstance(start, ProjectPlace) else find_project(start)
        self._limits = limits or MemoryLimits()
        self._interval, self._clock, self._lazy = flush_interval, clock, lazy
        state = state or user_state_dir(os.environ)
        self._engine = MemoryEngine(self.project, limits=self._limits, state=state, clock=clock)
        self._user = MemoryEngine(state, USER, limits=self._limits, state=state, clock=clock)
        self._is_open = False
        self._begun = anyio.Lock()

    # Life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._is_open = True
        if not self._lazy:
            await self._begin()
        return self

    async def __aexit__(self, *_exit: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()

    async def aclose(self) -> None:
        """Write what is only in memory. Never raises; idempotent."""
        if not self._is_open:
            return
        try:
            if self.session_count:
                await anyio.to_thread.run_sync(self._engine.write, self._engine.change("end"))
                await anyio.to_thread.run_sync(self._user.flush)
        except SnapshotError as error:
            _log.warning("the project memory could not be written at the end: %s", error.message)
        finally:
            self._is_open = False
            await anyio.to_thread.run_sync(self._engine.close)

    async def flush(self) -> None:
        """Write what is only in memory.

        Raises:
            StoreUnavailable, MemoryReadOnly: it could not be written, and is still in memory.
        """
        await self._run(self._engine.flush)
        await self._run(self._user.flush)

    async def _begin(self) -> None:
        if not self._is_open:
            raise StoreUnavailable("the project memory is not open", hint="use it inside its async with block")
        async with self._begun:
            if self.session_count:
                return
            await anyio.to_thread.run_sync(self._engine.begin)
            self._engine.keep_flushing(self._interval)
        if _log.isEnabledFor(logging.INFO):
            _log.info("session %d: %s", self.session_count, (await self.load_context()).start_line)

    async def _run(self, work: Callable[[], T]) -> T:
        await self._begin()
        return await anyio.to_thread.run_sync(work)

    def _engine_of(self, namespace: str) -> MemoryEngine:
        return self._user if namespace == GLOBAL else self._engine

    async def _submit(self, op: str, name: Name | None = None, data: Any = None) -> Saved:
        engine = self._engine_of(name.namespace if name else "")
        return await self._run(lambda: engine.write(engine.change(op, name, data)))

    # Standing ----------------------------------------------------------------------------------------------

    @property
    def project(self) -> Path:
        """The project's directory."""
        return self.place.directory

    @property
    def session_count(self) -> int:
        """The number of this session in the project; 0 until it is counted."""
        return self._engine.session

    @property
    def persistence(self) -> Persistence:
        """``disk``: saves last. ``memory``: the disk refuses. ``read-only``: another process keeps the lock."""
        return self._engine.persistence

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings: why saves wait, what is damaged and where it is kept, what is not read."""
        return self._engine.notices

    # Entries -----------------------------------------------------------------------------------------------

    async def save(self, namespace: str | None, key: str, data: Any) -> Saved:
        """Store JSON *data*; on disk when it returns. Secrets are removed first.

        In ``errors``, ``api_schema``, ``performance`` and ``noise``, *data* is merged with the known entries.

        Raises:
            InvalidInput: a name or the data cannot be stored.
            LimitExceeded: it is too large, or there is no room.
            StoreUnavailable, MemoryReadOnly: it is not on disk, and is kept in memory.
        """
        name = name_of(namespace, key)
        clean, redacted = await self._run(lambda: without_secrets(data))
        saved = await self._submit("save", name, clean)
        return saved.evolve(redacted={**redacted, **saved.redacted})

    async def load(self, namespace: str | None, key: str) -> Any:
        """The data of an entry, or one entry of a document by its name (``errors``, ``TypeError_app.js:42``).

        Raises:
            NotFound: there is none.
            SnapshotCorrupted: its file is damaged, and was set aside.
        """
        name = name_of(namespace, key, any_length=True)
        return await self._run(lambda: self._engine_of(name.namespace).load(name))

    async def list(self, namespace: str | None) -> Sequence[str]:
        """The keys of a namespace; in ``errors`` and the like, the names in its document. Each can be loaded."""
        return (await self.namespaces()).get(namespace_of(namespace), [])

    async def namespaces(self) -> Mapping[str, Sequence[str]]:
        """All namespaces with entries, and their keys as `list` returns them."""
        return await self._run(lambda: self._engine.view().keys | self._user.view().keys)

    async def delete(self, namespace: str | None, key: str) -> None:
        """Remove an entry, or one entry of a document. Raises `NotFound`, and otherwise as `save`."""
        await self._submit("delete", name_of(namespace, key, any_length=True))

    async def clear(self, namespace: str | None = None) -> None:
        """Permanently remove all entries of *namespace*.

        With None, everything in the project's memory; the namespace ``global`` stays.
        """
        await self._submit("clear", None if namespace is None else Name(namespace_of(namespace), ""))
        if namespace is None:
            self._engine.session, self._engine.previous = 1, None

    async def stats(self) -> MemoryStats:
        """How much is stored, by namespace."""

        def work() -> MemoryStats:  # not a view: a worker thread keeps the last result it had
            return stats_of(
                self._engine.view(), project=str(self.project), limit_bytes=self._limits.project_bytes,
                other_projects_bytes=self._engine.others(), persistence=self.persistence,
                notices=self.notices,
            )  # fmt: skip

        return await self._run(work)

    async def load_context(self) -> SessionContext:
        """A summary of what earlier sessions left. Stored noise rules apply from now on."""
        return await self._run(self.peek)

    async def preferences(self) -> dict[str, Any]:
        """The entries of the namespace ``global``; damaged ones are left out."""

        def work() -> dict[str, Any]:
            view, found = self._user.view(), {}
            for name in sorted(view.entries):
                with contextlib.suppress(SnapshotError):
                    found[name.key] = view.load(name)
            return found

        return await self._run(work)

    def peek(self) -> SessionContext:
        """The context, without counting a session or writing anything. Blocks on the disk."""
        preferences = tuple(self._user.view().keys.get(GLOBAL, ()))
        return context_of(
            self._engine.view(), now=self._clock(), project=str(self.project),
            last_session=moment_in(self._engine.previous), preferences=preferences,
            persistence=self.persistence, notices=self.notices,
        )  # fmt: skip

    # Baselines and noise -----------------------------------------------------------------------------------

    async def save_baseline(self, baseline: Baseline) -> Saved:
        """Store a baseline under its name. Beyond fifty, the least recently used one is removed."""
        stamped = baseline.evolve(saved_at=self._clock())
        return await self.save(BASELINES, baseline.name, stamped.raw())

    async def load_baseline(self, name: str) -> Baseline:
        """Load a baseline, which counts as use. Raises `NotFound` or `SnapshotCorrupted`."""
        raw = await self.load(BASELINES, name)
        data = baseline_data(raw)
        if not isinstance(data, dict):
            raise SnapshotCorrupted(f"the baseline {name!r} is not an object", hint="load() gives its raw data")
        return Baseline(name=name, data=data, saved_at=None if data is raw else moment_in(raw.get("saved_at")))

    async def compare_baseline(self, name: str, observed: Any) -> Sequence[Difference]:
        """How *observed* differs from the baseline *name*: shapes of responses, and other values. Counts as use.

        Raises:
            NotFound: there is no such baseline.
        """
        stored = await self.load(BASELINES, name)
        clean, _ = await self._run(lambda: without_secrets(observed))
        return await self._run(lambda: differences(baseline_data(stored), with_shapes(clean)[0]))

    async def set_noise(self, *rules: NoiseRule) -> Saved:
        """Store these noise rules; they apply immediately."""
        data, redacted = without_secrets([rule.raw() for rule in rules])
        document, kept = KINDS[NOISE].document, {rule["pattern"] for rule in data}
        known = (await self._run(self._engine.view)).document(NOISE).entries
        removed = [{"pattern": pattern, "remove": True} for pattern in known if pattern not in kept]
        saved = await self._submit("save", document, removed + data) if removed or data else Saved()
        return saved.evolve(redacted=redacted)

    def noise_rule(self, text: str) -> NoiseRule | None:
        """The noise rule that matches *text*; None if none does."""
        pattern = matching_rule(self._engine.noise, text)
        return None if pattern is None else NoiseRule.model_validate(self._engine.noise[pattern])

    # Observations ------------------------------------------------------------------------------------------

    async def record_error(self, fingerprint: str, *, message: str | None = None, durable: bool = False) -> bool:
        """Record that an error was seen; False if a noise rule filters it. A resolved error becomes open again.

        A long message is truncated, with a mark. Raises `LimitExceeded` for a very long fingerprint.
        """
        await self._begin()
        data = {"fingerprint": self._named(fingerprint), **({"message": message} if message else {})}
        is_noise = self.noise_rule(f"{fingerprint} {message or ''}") is not None
        await self._observe(ERRORS, data, durable=durable)
        return not is_noise

    async def resolve_error(self, fingerprint: str | None, about: Mapping[str, Any] | None = None) -> Saved:
        """Mark an error as resolved; the receipt says after how many sessions. `InvalidInput` if it is unknown.

        With None, the error that *about* describes. The fields in *about* are kept with the error.
        """
        named = {} if fingerprint is None else {"fingerprint": self._named(fingerprint)}
        data = {**without_secrets(dict(about or {}))[0], **named, "resolved": True}
        return await self._submit("resolve", KINDS[ERRORS].document, data)

    async def observe_endpoint(self, endpoint: str, *, shape: Any = None, durable: bool = False) -> None:
        """Record an endpoint of the project's API, such as ``GET /users``; *shape* describes its response.

        Raises `LimitExceeded` for a very long name or shape.
        """
        self._limits.check_shape(endpoint, len(encoded(shape)))
        data = {"endpoint": self._named(endpoint), **({} if shape is None else {"shape": shape})}
        await self._observe(API_SCHEMA, data, durable=durable)

    async def record_timing(self, endpoint: str, milliseconds: float, *, durable: bool = False) -> None:
        """Record how long a request to an endpoint took."""
        await self._observe(PERFORMANCE, {"endpoint": self._named(endpoint), "ms": milliseconds}, durable=durable)

    def _named(self, name: str) -> str:
        clean = str(without_secrets(name)[0])
        self._limits.check_name(clean)
        return clean

    async def _observe(self, namespace: str, data: dict[str, Any], *, durable: bool) -> None:
        await self._begin()
        if durable:
            await self.save(namespace, KINDS[namespace].document.key, data)
            return
        change = self._engine.change("save", KINDS[namespace].document, without_secrets(data)[0])
        self._engine.queue.append(change)
        if len(self._engine.queue) > _MOST_COLLECTED:
            with contextlib.suppress(*UNWRITTEN):
                await self.flush()
