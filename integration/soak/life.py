"""All that can happen to a session, step by step, with what must be there after each step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from integration.soak.sessions import SESSION, number_of, store_at, version
from snapshot_plugin.errors import SnapshotNotFound
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.filesystem import FilesystemStore

__all__ = ["STATES", "STEPS", "State", "open_store", "state_of"]

State = tuple[dict[int, int], int]
"""The versions by sequence number, and how many sessions are in the trash."""


async def _undelete(store: FilesystemStore) -> object:
    return await store.undelete((await store.trash())[0].token)


def _save(number: int) -> Callable[[FilesystemStore], Awaitable[object]]:
    return lambda store: store.save(version(number))


_STORY: tuple[tuple[Callable[[FilesystemStore], Awaitable[object]], State], ...] = (
    (_save(1), ({1: 1}, 0)),
    (_save(2), ({1: 1, 2: 2}, 0)),
    (_save(3), ({1: 1, 2: 2, 3: 3}, 0)),
    (lambda store: store.compact(SESSION), ({1: 1, 2: 2, 3: 3}, 0)),
    (_save(4), ({1: 1, 2: 2, 3: 3, 4: 4}, 0)),
    (lambda store: store.forget(SESSION, RetentionPolicy(keep_last=2)), ({3: 3, 4: 4}, 0)),
    (_save(5), ({3: 3, 4: 4, 5: 5}, 0)),
    (lambda store: store.delete(SESSION), ({}, 1)),
    (_undelete, ({3: 3, 4: 4, 5: 5}, 0)),
    (lambda store: store.delete(SESSION), ({}, 1)),
    (_save(7), ({1: 7}, 1)),
    (lambda store: store.purge(older_than=timedelta(0)), ({1: 7}, 0)),
)
STEPS = tuple(step for step, _ in _STORY)
STATES: tuple[State, ...] = (({}, 0), *(state for _, state in _STORY))
"""`STATES[n]` is what is there once the first *n* of `STEPS` are done."""


def open_store(path: Path, key: str | None) -> FilesystemStore:
    """A store with small segments, so that a few saves meet every path through the code."""
    return store_at(path, key, segment_frames=2)


async def state_of(store: FilesystemStore) -> State:
    """What is there and whole. Content that was never saved raises `ValueError`."""
    trashed = len(await store.trash())
    try:
        history = await store.history(SESSION)
    except SnapshotNotFound:
        return {}, trashed
    state = {}
    for meta in history:
        if meta.state != "ok":
            continue
        snapshot = await store.load(SESSION, at=meta.seq)
        state[meta.seq] = number_of(snapshot)
        if snapshot != version(number_of(snapshot)):
            raise ValueError(f"snapshot {meta.seq} was never saved")
    return state, trashed
