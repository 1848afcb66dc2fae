"""Keeping a session's history as short as the settings say, off the road of any save."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_plugin.manager.config import SnapshotConfig
from snapshot_plugin.model.meta import SnapshotMeta
from snapshot_plugin.model.policy import RetentionPolicy
from snapshot_plugin.store.base import ForgetResult, SnapshotStore

__all__ = ["batch_of", "policy_for", "trim"]


def batch_of(config: SnapshotConfig) -> int:
    """How many snapshots over the limit pile up before history is rewritten: half the limit again."""
    return max(1, config.max_snapshots_per_session // 2)


async def trim(store: SnapshotStore, session_id: str, config: SnapshotConfig) -> ForgetResult | None:
    """Forget what the settings do not keep, if that is worth a rewrite. What has a tag stays: somebody wants it."""
    history = await store.history(session_id)
    if config.retention is None and len(history) < config.max_snapshots_per_session + batch_of(config):
        return None
    return await store.forget(session_id, policy_for(history, config))


def policy_for(history: Sequence[SnapshotMeta], config: SnapshotConfig) -> RetentionPolicy:
    """What the settings keep of a session with this history: what has a tag stays, whatever they say."""
    tags = {tag for meta in history for tag in meta.snapshot_tags}
    return config.keep.evolve(keep_tags=tuple(sorted(tags.union(config.keep.keep_tags))))
