"""The memory of a project, for programs: what one session learns, the next one knows.

::

    async with ProjectMemory(".") as memory:
        context = await memory.load_context()               # what earlier sessions left
        await memory.save("decisions", "database", {"choice": "sqlite"})
        await memory.record_error("TypeError_app.js:42", message="x is undefined")

`save`, `delete`, `save_baseline` and `set_noise` are on disk when they return. `record_error`, `resolve_error`,
`observe_endpoint` and `record_timing` are many: they are collected and written every `flush_interval` seconds and
at the end, so a crash costs at most that much of them. Whatever happens, every file is whole, old or new.

One process writes; others read, and their saves raise `MemoryReadOnly` until the writer has ended. Where the disk
refuses (full, read-only), a save raises `StoreUnavailable` and the entry is kept in memory: it can be loaded, and
is written as soon as the disk allows.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.abc
import anyio.to_thread
from pydantic import ValidationError

from snapshot_plugin.memory.archive import Archive, Saved
from snapshot_plugin.memory.files import encoded
from snapshot_plugin.memory.flush import flush
from snapshot_plugin.memory.limits import Limits
from snapshot_plugin.memory.names import BASELINES, NOISE_CONFIG, name_of, namespace_dir
from snapshot_plugin.memory.overview import context_of, stats_of
from snapshot_plugin.memory.privacy import without_secrets
from snapshot_plugin.memory.project import project_root
from snapshot_plugin.memory.records import (
    Baseline,
    Endpoint,
    EndpointTiming,
    ErrorRecord,
    NoiseConfig,
    NoiseRule,
)
from snapshot_plugin.memory.register import ProjectRegister, default_register_dir
from snapshot_plugin.memory.seen import Seen
from snapshot_plugin.memory.summary import MemoryStats, Persistence, SessionContext, told
from snapshot_plugin.errors import InvalidInput, SnapshotCorrupted, SnapshotError, StoreUnavailable
from snapshot_plugin.manager.ports import Clock, utc_now
from snapshot_plugin.model.frozen import freeze

__all__ = ["FLUSH_INTERVAL", "ProjectMemory"]

FLUSH_INTERVAL: Final = 30.0
"""Seconds between two flushes: what a crash may cost of what is collected."""

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ProjectMemory:
    """One session's access to its project's memory. An async context manager; use it from one event loop.

    Args:
        start: a directory of the project; the root is looked for there and above.
        limits: how much may be stored.
        flush_interval: seconds between two flushes of what is collected.
        register: where the sizes of all projects' memories are noted; default: the user's state directory.
        clock: the time of day.
    """

    def __init__(
        self,
        start: str | os.PathLike[str] = ".",
        *,
        limits: Limits | None = None,
        flush_interval: float = FLUSH_INTERVAL,
        register: Path | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.project = project_root(Path(start), home=_home())
        self._limits = limits or Limits()
        self._interval = flush_interval
        self._clock = clock
        places = ProjectRegister(register or default_register_dir(os.environ))
        self._archive = Archive(self.project, limits=self._limits, register=places, clock=clock)
        self._seen = Seen()
        self._is_open = False
        self._tasks: anyio.abc.TaskGroup | None = None

    # Life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await anyio.to_thread.run_sync(self._archive.begin)
        self._is_open = True
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._keep_flushing)
        if _log.isEnabledFor(logging.INFO):
            _log.info("%s", told(await self.load_context()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None  # noqa: S101 — entered before
        with anyio.CancelScope(shield=True):
            await self.aclose()
        self._tasks.cancel_scope.cancel()
        if isinstance(error, Exception):  # the caller's own: not for our task group to wrap or to swallow
            await self._tasks.__aexit__(None, None, None)
            return None
        return await self._tasks.__aexit__(kind, error, trace)

    async def aclose(self) -> None:
        """Write what is only in memory, and let the next session write. Never raises; twice is fine."""
        if self._is_open:
            self._is_open = False
            await anyio.to_thread.run_sync(self._end)

    def _end(self) -> None:
        try:
            flush(self._archive, self._seen)
        except SnapshotError as error:
            _log.warning("the project memory could not be written at the end: %s", error.message)
        self._archive.end()

    async def flush(self) -> None:
        """Write what is only in memory.

        Raises:
            MemoryReadOnly, StoreUnavailable: it could not be written, and is still in memory.
        """
        await self._run(lambda: flush(self._archive, self._seen))

    async def _keep_flushing(self) -> None:
        while True:
            await anyio.sleep(self._interval)
            with contextlib.suppress(SnapshotError):  # every answer says so; the next flush tries again
                await self.flush()

    async def _run(self, work: Callable[[], T]) -> T:
        if not self._is_open:
            raise StoreUnavailable("the project memory is not open", hint="use it inside its async with block")
        return await anyio.to_thread.run_sync(work)

    # Standing ----------------------------------------------------------------------------------------------

    @property
    def persistence(self) -> Persistence:
        """``disk``: saves last. ``memory``: the disk refuses. ``read-only``: another process writes."""
        return self._archive.standing.persistence

    @property
    def notices(self) -> tuple[str, ...]:
        """What a caller should be told: why nothing is stored, what was found damaged and where it is kept."""
        return self._archive.standing.notices

    @property
    def session_count(self) -> int:
        """How many sessions the project has had, this one included."""
        return self._archive.sessions.meta.session_count

    # Entries -----------------------------------------------------------------------------------------------

    async def save(self, namespace: str, key: str, data: Any) -> Saved:
        """Store JSON *data*; on disk when it returns. Secrets are taken out first.

        Raises:
            InvalidInput: a name or the data cannot be stored.
            LimitExceeded: it is too large, or there is no room.
            MemoryReadOnly: another process writes.
            StoreUnavailable: the disk refused; the entry is kept in memory.
        """
        name = name_of(namespace, key)
        return await self._run(lambda: self._archive.save(name, data))

    async def load(self, namespace: str, key: str) -> Any:
        """The data of an entry. `NotFound`; `SnapshotCorrupted` for a damaged file, which is then kept aside."""
        name = name_of(namespace, key)
        return await self._run(lambda: self._archive.load(name))

    async def list(self, namespace: str) -> Sequence[str]:
        """The keys of a namespace, in order; none for a namespace nobody has used."""
        namespace_dir(namespace)
        return (await self.namespaces()).get(namespace, [])

    async def namespaces(self) -> Mapping[str, Sequence[str]]:
        """Every namespace that holds something, with its keys."""
        return await self._run(self._archive.entries)

    async def delete(self, namespace: str, key: str) -> None:
        """Remove an entry; `NotFound`, and otherwise as `save`."""
        name = name_of(namespace, key)
        await self._run(lambda: self._archive.delete(name))

    async def clear(self) -> None:
        """Remove everything the project's memory holds. There is no way back."""

        def work() -> None:
            with self._archive.lock:
                self._archive.clear()
                self._seen = Seen()

        await self._run(work)

    async def stats(self) -> MemoryStats:
        """How much is stored, by namespace."""
        return await self._run(lambda: stats_of(self._archive))

    async def load_context(self) -> SessionContext:
        """What earlier sessions left, in short; stored noise rules are in effect from now on."""
        return await self._run(lambda: context_of(self._archive, self._seen))

    # Baselines and noise -----------------------------------------------------------------------------------

    async def save_baseline(self, baseline: Baseline) -> Saved:
        """Store a baseline under its name. Of more than fifty, the least recently used goes."""
        stamped = baseline.evolve(saved_at=self._clock())
        return await self.save(BASELINES, baseline.name, stamped.raw())

    async def load_baseline(self, name: str) -> Baseline:
        """A baseline; reading it counts as use. `NotFound`."""
        raw = await self.load(BASELINES, name)
        try:
            return Baseline.model_validate({"name": name, **raw})
        except (ValidationError, TypeError) as error:
            raise SnapshotCorrupted(
                f"the baseline {name!r} is not one", hint="load() gives its raw data"
            ) from error

    async def set_noise(self, *rules: NoiseRule) -> Saved:
        """Make these the noise rules: stored, and in effect at once."""
        return await self.save(NOISE_CONFIG.namespace, NOISE_CONFIG.key, NoiseConfig(rules=rules).raw())

    def noise_rule(self, text: str) -> NoiseRule | None:
        """The rule by which *text* is noise; None if it is worth looking at."""
        return self._archive.noise.rule_for(text)

    # Collected ---------------------------------------------------------------------------------------------

    async def record_error(self, fingerprint: str, *, message: str | None = None) -> bool:
        """An error was seen. False when a noise rule keeps it out. An error that was resolved is open again.

        A very long message is cut, with a mark. `LimitExceeded` for a very long fingerprint.
        """
        now = self._clock()
        error = ErrorRecord(
            fingerprint=self._name(fingerprint),
            message=self._limits.shortened(_clean(message)) if message else None,
            first_seen=now,
            last_seen=now,
            first_session=self.session_count,
        )
        rule = self.noise_rule(f"{fingerprint} {message or ''}")
        if rule is None:
            await self._collect(lambda: self._seen.add_error(error, self._limits, now))
        else:
            await self._collect(lambda: self._seen.filtered.update({rule.pattern: 1}))
        return rule is None

    async def resolve_error(self, fingerprint: str) -> None:
        """An error was resolved. `InvalidInput` for one that nobody has seen."""
        known = {error.fingerprint: error for error in (await self.load_context()).error_history.unresolved}
        fingerprint = self._name(fingerprint)
        if fingerprint not in known:
            raise InvalidInput(
                f"there is no unresolved error {fingerprint!r}", hint="load_context() lists those there are"
            )
        seen = known[fingerprint]
        resolved = ErrorRecord(
            fingerprint=fingerprint,
            first_seen=seen.first_seen,
            last_seen=seen.last_seen,
            occurrences=0,
            resolved_at=max(self._clock(), seen.last_seen),
            resolved_session=self.session_count,
        )
        await self._collect(lambda: self._seen.add_error(resolved, self._limits, self._clock()))

    async def observe_endpoint(self, endpoint: str, *, shape: Any = None) -> None:
        """An endpoint of the project's API was seen, as ``GET /users``; *shape* says what it looks like.

        `LimitExceeded` for a very long name or shape.
        """
        name, clean = self._name(endpoint), _clean(shape)
        self._limits.check_shape(name, encoded(clean)[1])
        observed = Endpoint(endpoint=name, last_seen=self._clock(), session=self.session_count, shape=clean)
        await self._collect(lambda: self._seen.add_endpoint(observed, self._limits))

    async def record_timing(self, endpoint: str, milliseconds: float) -> None:
        """A request to an endpoint took this long."""
        now = self._clock()
        timing = EndpointTiming(
            endpoint=self._name(endpoint), updated_at=now, session=self.session_count, session_ms=milliseconds
        )
        await self._collect(lambda: self._seen.add_timing(timing, self._limits, now))

    def _name(self, name: str) -> str:
        clean = str(_clean(name))
        self._limits.check_name(clean)
        return clean

    async def _collect(self, add: Callable[[], None]) -> None:
        def work() -> None:
            with self._archive.lock:
                add()

        await self._run(work)


def _clean(seen: Any) -> Any:
    """What was seen, fit for the disk: it is added to documents that are clean already."""
    return without_secrets(freeze(seen, "data"))[0]


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return None
