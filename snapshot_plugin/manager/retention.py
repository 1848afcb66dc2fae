"""Apply retention: limit the snapshots of a session and the number of sessions, as the settings say.

A manager applies its settings to a session after saves, when the session stops and when the manager closes. When it
opens, and once an hour, it applies what depends on age or on other sessions (``retention``, ``max_sessions``,
``max_session_age``) to every session of the store, because a stopped session ages too. Whole sessions go to the
trash. Nothing here raises: failures are reported and never fail a save.
"""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import anyio

from snapshot_plugin.errors import SessionLocked, SnapshotNotFound
from snapshot_plugin.live.events import Event, SnapshotCreated
from snapshot_plugin.live.place import held_alone
from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.manager.forgetting import countable_sessions, forget_session, surplus_sessions
from snapshot_plugin.manager.ports import Clock
from snapshot_plugin.model.ids import companions, owner_of
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.policy import RetentionPolicy, keeping_tagged, plan

if TYPE_CHECKING:
    from snapshot_plugin.live.events import Reporter
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Retention", "Surplus", "batch_of", "policy_for", "surplus_of"]

_log = logging.getLogger(__name__)

_SWEEP_EVERY = 3600.0
_SWEEP_AT_MOST = 200
"""How many histories one sweep reads. In a store with more sessions, each sweep reads others."""
_REMEMBERED = 4096
"""For how many sessions the length of the history is cached."""
_CLOSING = 2.0
"""How long a closing manager continues to trim sessions, in seconds."""


def batch_of(config: SnapshotConfig) -> int:
    """How many snapshots over the limit are tolerated before the history is rewritten: half the limit."""
    return max(1, config.max_snapshots_per_session // 2)


def policy_for(history: Sequence[SnapshotMeta], config: SnapshotConfig) -> RetentionPolicy:
    """The policy for a session with this history; tagged snapshots are kept, see `keeping_tagged`."""
    return keeping_tagged(config.keep, history)


class Surplus(NamedTuple):
    """A session that the settings do not keep, and why."""

    meta: SnapshotMeta
    why: str


def surplus_of(metas: Sequence[SnapshotMeta], config: SnapshotConfig, clock: Clock) -> list[Surplus]:
    """The sessions that ``max_sessions`` and ``max_session_age`` do not keep, of those listed newest first."""
    found: dict[str, Surplus] = {}
    if config.max_session_age is not None:
        oldest = clock() - timedelta(seconds=config.max_session_age)
        for meta in countable_sessions(metas):
            if meta.changed_at < oldest:
                found[meta.session_id] = Surplus(meta, "not changed within max_session_age")
    if config.max_sessions is not None:
        why = f"not among the {config.max_sessions} that changed last (max_sessions)"
        for meta in surplus_sessions(metas, config.max_sessions):
            found.setdefault(meta.session_id, Surplus(meta, why))
    return list(found.values())


class Retention:
    """Applies the settings of one manager. It subscribes to the manager's events, and runs while that is open."""

    def __init__(
        self,
        store: SnapshotStore,
        config: SnapshotConfig,
        report: Reporter,
        clock: Clock,
        swept: dict[str, anyio.Event] | None = None,
        *,
        held: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._store, self._config, self._report, self._clock = store, config, report, clock
        self._swept, self._held = {} if swept is None else swept, held
        self._lengths: OrderedDict[str, int] = OrderedDict()
        """How many snapshots each session has; those of which it is not known are looked at with the next save."""
        self._dirty: dict[str, int] = {}
        """The sessions to look at, and how often each was saved since the last look."""
        self._wake = anyio.Event()
        self._sweeping: anyio.Event | None = None
        self._trimming = anyio.Lock()

    def __call__(self, event: Event) -> None:
        """A subscriber: counts saves."""
        if isinstance(event, SnapshotCreated):
            self.written(event.session_id)
            self._wake.set()

    def written(self, session_id: str) -> None:
        """A snapshot was written."""
        self._dirty[session_id] = self._dirty.get(session_id, 0) + 1
        if session_id in self._lengths:
            self._lengths[session_id] += 1

    def started(self, session_id: str) -> None:
        """A session went live: trim what its last run left, with the next save or when it stops."""
        self._dirty.setdefault(session_id, 0)

    async def run(self) -> None:
        """Sweep the store now and every hour, and trim sessions soon after they were saved."""
        while True:
            self._sweeping = anyio.Event()
            await self._sweep()
            self._sweeping.set()
            with anyio.move_on_after(_SWEEP_EVERY):
                while True:
                    await self._wake.wait()
                    self._wake = anyio.Event()
                    for session_id in tuple(self._dirty):
                        await self.apply(session_id)

    async def apply(self, session_id: str, *, exactly: bool = False) -> None:
        """Trim a session that was saved here, if enough snapshots are over the limit; with *exactly*, always."""
        async with self._trimming:
            if session_id not in self._dirty:
                return
            try:
                await self._apply(session_id, exactly=exactly)
            except SnapshotNotFound:
                del self._dirty[session_id]
            except Exception as error:  # noqa: BLE001 — reported, and tried with the next save
                del self._dirty[session_id]
                self._report.failed(session_id, "retention", error)

    async def aclose(self) -> None:
        """Finish the sweep in progress, and trim the sessions saved here within a short time limit."""
        with anyio.move_on_after(_CLOSING, shield=True):
            for session_id in tuple(self._dirty):
                await self.apply(session_id, exactly=True)
            if self._sweeping is not None:
                await self._sweeping.wait()

    async def _apply(self, session_id: str, *, exactly: bool) -> None:
        limit, batch = self._config.max_snapshots_per_session, batch_of(self._config)
        allowed = limit if exactly else limit + batch - 1
        if self._lengths.get(session_id, allowed + 1) <= allowed:
            return
        saves = self._dirty[session_id]
        history = await self._store.history(session_id)
        kept = len(history)
        if kept > allowed or self._config.retention is not None:
            kept = await self._trim(session_id, history)
        late = self._dirty[session_id] - saves  # written after the history was read
        self._remember(session_id, kept + late)
        if not late and (exactly or kept <= limit):
            del self._dirty[session_id]

    def _remember(self, session_id: str, length: int) -> None:
        # A policy, unlike the count, is applied after each batch of saves, whatever the length.
        known = length if self._config.retention is None else self._config.max_snapshots_per_session
        self._lengths[session_id] = known
        self._lengths.move_to_end(session_id)
        while len(self._lengths) > _REMEMBERED:
            self._lengths.popitem(last=False)

    async def _trim(self, session_id: str, history: Sequence[SnapshotMeta]) -> int:
        policy = policy_for(history, self._config)
        if any(meta.state != "ok" for meta in history):  # damaged sessions are not thinned
            return len(history)
        going = [each for each in plan(history, policy, self._clock()) if not each.keep]
        if going:
            await self._store.forget(session_id, policy)
        return len(history) - len(going)

    # Every session ---------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        config = self._config
        if config.retention is None and config.max_sessions is None and config.max_session_age is None:
            return
        try:
            metas = await self._store.list()
        except Exception as error:  # noqa: BLE001 — the store will say so to those who ask
            _log.debug("no sweep: %s", error)
            return
        gone = await self._forget_surplus(metas)
        if self._config.retention is None:  # a plain count only changes with a save; reading histories takes time
            return
        for meta in _some([meta for meta in metas if meta.session_id not in gone]):
            await self._attempt(meta.session_id, self._trim_stopped)

    async def _trim_stopped(self, session_id: str) -> None:
        history = await self._store.history(session_id)
        if all(each.keep for each in plan(history, policy_for(history, self._config), self._clock())):
            return
        async with held_alone(self._store, session_id, self._clock, to="trim it"):
            await self._trim(session_id, history)

    async def _forget_surplus(self, metas: Sequence[SnapshotMeta]) -> set[str]:
        gone: set[str] = set()
        known = {meta.session_id for meta in metas}
        for meta, why in surplus_of(metas, self._config, self._clock):
            for session_id in (meta.session_id, *companions(meta.session_id, known)):
                if await self._attempt(session_id, self._forget):
                    _log.info("session %s went to the trash: %s", session_id, why)
                    gone.add(session_id)
                elif session_id == meta.session_id:  # a session that stays keeps its companions
                    break
        return gone

    async def _forget(self, session_id: str) -> None:
        await forget_session(self._store, session_id, clock=self._clock)

    async def _attempt(self, session_id: str, work: Callable[[str], Awaitable[None]]) -> bool:
        if self._held(session_id):  # live here, or about to be: starting it must not fail
            return False
        done = self._swept[session_id] = anyio.Event()
        try:
            await work(session_id)
        except (SessionLocked, SnapshotNotFound):  # its owner trims it, or it was deleted
            return False
        except Exception as error:  # noqa: BLE001 — as above
            self._report.failed(session_id, "retention", error)
            return False
        finally:
            del self._swept[session_id]
            done.set()
        return True


def _some(metas: Sequence[SnapshotMeta]) -> list[SnapshotMeta]:
    pinned = {meta.session_id for meta in metas if meta.pinned}
    found = [
        meta
        for meta in metas
        if meta.seq > 1 and meta.state == "ok" and pinned.isdisjoint((meta.session_id, owner_of(meta.session_id)))
    ]
    return found if len(found) <= _SWEEP_AT_MOST else random.sample(found, _SWEEP_AT_MOST)
