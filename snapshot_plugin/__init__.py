"""Record agent sessions and restore them after a crash, a deploy or an upgrade.

::

    store = FilesystemStore("sessions")
    ref = await store.save(snapshot)                # durable when it returns
    snapshot = await store.load("my-session")       # after a crash, a deploy, an upgrade

Start with the README, then `docs/explanation/architecture.md`. Names are imported when they are first used,
so ``import snapshot_plugin`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from snapshot_plugin.errors import (
        AgentNoLoadSupport,
        AgentUnavailable,
        Conflict,
        Damaged,
        Fenced,
        FidelityNotMet,
        InvalidInput,
        InvalidPolicy,
        InvalidSessionId,
        InvalidSnapshot,
        InvalidSnapshotVersion,
        KeyMissing,
        KeyProblem,
        LimitExceeded,
        MemoryReadOnly,
        MissingExtra,
        NotFound,
        SessionLocked,
        SnapshotCorrupted,
        SnapshotError,
        SnapshotNotFound,
        SnapshotTampered,
        StoreForbidden,
        StoreNotFound,
        StoreUnavailable,
        Unsupported,
        WrongKey,
    )
    from snapshot_plugin.manager.config import SnapshotConfig
    from snapshot_plugin.manager.manager import SnapshotManager
    from snapshot_plugin.manager.persistent import persistent_session
    from snapshot_plugin.manager.resume import create_or_resume_session
    from snapshot_plugin.model.meta import SnapshotMeta, SnapshotRef
    from snapshot_plugin.model.policy import RetentionPolicy
    from snapshot_plugin.model.snapshot import Message, SessionSnapshot
    from snapshot_plugin.store import open_store
    from snapshot_plugin.store.base import SnapshotStore
    from snapshot_plugin.store.filesystem import FilesystemStore
    from snapshot_plugin.store.memory import MemoryStore

_HOME = {
    "snapshot_plugin.errors": (
        "AgentNoLoadSupport",
        "AgentUnavailable",
        "Conflict",
        "Damaged",
        "Fenced",
        "FidelityNotMet",
        "InvalidInput",
        "InvalidPolicy",
        "InvalidSessionId",
        "InvalidSnapshot",
        "InvalidSnapshotVersion",
        "KeyMissing",
        "KeyProblem",
        "LimitExceeded",
        "MemoryReadOnly",
        "MissingExtra",
        "Unsupported",
        "Unsupported",
        "NotFound",
        "SessionLocked",
        "SnapshotCorrupted",
        "SnapshotError",
        "SnapshotNotFound",
        "SnapshotTampered",
        "StoreForbidden",
        "StoreNotFound",
        "StoreUnavailable",
        "WrongKey",
    ),
    "snapshot_plugin.manager.config": ("SnapshotConfig",),
    "snapshot_plugin.manager.manager": ("SnapshotManager",),
    "snapshot_plugin.manager.persistent": ("persistent_session",),
    "snapshot_plugin.manager.resume": ("create_or_resume_session",),
    "snapshot_plugin.model.meta": ("SnapshotMeta", "SnapshotRef"),
    "snapshot_plugin.model.policy": ("RetentionPolicy",),
    "snapshot_plugin.model.snapshot": ("Message", "SessionSnapshot"),
    "snapshot_plugin.store": ("open_store",),
    "snapshot_plugin.store.base": ("SnapshotStore",),
    "snapshot_plugin.store.filesystem": ("FilesystemStore",),
    "snapshot_plugin.store.memory": ("MemoryStore",),
}

__all__ = [
    "AgentNoLoadSupport",
    "AgentUnavailable",
    "Conflict",
    "Damaged",
    "Fenced",
    "FidelityNotMet",
    "FilesystemStore",
    "InvalidInput",
    "InvalidPolicy",
    "InvalidSessionId",
    "InvalidSnapshot",
    "InvalidSnapshotVersion",
    "KeyMissing",
    "KeyProblem",
    "LimitExceeded",
    "MemoryReadOnly",
    "MemoryStore",
    "Message",
    "MissingExtra",
    "NotFound",
    "RetentionPolicy",
    "SessionLocked",
    "SessionSnapshot",
    "SnapshotConfig",
    "SnapshotCorrupted",
    "SnapshotError",
    "SnapshotManager",
    "SnapshotMeta",
    "SnapshotNotFound",
    "SnapshotRef",
    "SnapshotStore",
    "SnapshotTampered",
    "StoreForbidden",
    "StoreNotFound",
    "StoreUnavailable",
    "Unsupported",
    "WrongKey",
    "create_or_resume_session",
    "open_store",
    "persistent_session",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
