"""The version and the session id of a raw document."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.errors import InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.migrate.fields import Raw

__all__ = ["session_id_of", "version_of"]

_SEE = "docs/reference/migrations.md shows what can be read; asnap import reads files of other tools"


def version_of(raw: Any) -> int:
    """The version that *raw* declares.

    Raises:
        InvalidSnapshot: it is not a session, or has no version.
        InvalidSnapshotVersion: its version is not a whole number of at least 1.
    """
    if not isinstance(raw, dict):
        raise InvalidSnapshot(f"a session is a JSON object, not {type(raw).__name__}")
    session_id, version = session_id_of(raw), raw.get("version")
    if version is None:
        what = f"the document of session {session_id!r}" if session_id else "the document"
        raise InvalidSnapshot(f"{what} has no version", session_id=session_id, hint=_SEE)
    if type(version) is not int or version < 1:
        raise InvalidSnapshotVersion(
            f"the version of session {session_id!r} is {version!r}, not a whole number from 1 on",
            session_id=session_id,
            hint=_SEE,
        )
    return version


def session_id_of(raw: Raw) -> str | None:
    """The session id of *raw*; None if it has no usable one."""
    found = raw.get("session_id")
    return found if isinstance(found, str) else None
