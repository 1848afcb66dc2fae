"""Which version a raw document is: read from its shape first, from its ``version`` second.

Foreign documents come first because they may carry a ``version`` of their own, which says nothing about ours.
"""

from __future__ import annotations

from typing import Any, Literal

from snapshot_plugin.errors import InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.migrate.fields import Raw

__all__ = ["Shape", "session_id_of", "shape_of", "version_of"]

Shape = Literal["openagent", "oneringai"]

_ONERINGAI_VERSION = 1

_COMPANIONS = {
    "sessions": "this is an index of sessions; give the file of one session",
    "entries": 'this is the memory of a session; put it into the session document as "memory"',
}
"""Files that lie beside foreign session files, by the list they hold."""


def version_of(raw: Any) -> int:
    """The version of *raw*: 0 for a foreign document, else what it says about itself.

    Raises:
        InvalidSnapshot: it is not a session.
        InvalidSnapshotVersion: its version is no whole number from 1 on, or a foreign one we do not know.
    """
    if not isinstance(raw, dict):
        raise InvalidSnapshot(f"a session is a JSON object, not {type(raw).__name__}")
    shape = shape_of(raw)
    if shape == "oneringai":
        _refuse_unknown_oneringai(raw)
    if shape is not None:
        return 0
    _refuse_companion(raw)
    return _own_version(raw)


def shape_of(raw: Raw) -> Shape | None:
    """The foreign format *raw* is written in, or None."""
    if "session_id" in raw:
        return None
    if _is_openagent(raw):
        return "openagent"
    return "oneringai" if _is_oneringai(raw) else None


def session_id_of(raw: Raw) -> str | None:
    """The session id *raw* has, or will have once it is migrated; None where it has no usable one."""
    about = raw.get("metadata")
    foreign = about.get("session_id") if isinstance(about, dict) else None
    found = raw.get("session_id", raw.get("agentId", foreign))
    return found if isinstance(found, str) else None


def _is_openagent(raw: Raw) -> bool:
    about = raw.get("metadata")
    named = isinstance(about, dict) and isinstance(about.get("session_id"), str)
    return named and isinstance(raw.get("messages"), list) and not raw.get("version")


def _is_oneringai(raw: Raw) -> bool:
    context = raw.get("context")
    return (
        isinstance(raw.get("agentId"), str) and isinstance(context, dict) and isinstance(context.get("core"), dict)
    )


def _refuse_unknown_oneringai(raw: Raw) -> None:
    for name, holder in (("version", raw), ("context.version", raw["context"])):
        if holder.get("version", _ONERINGAI_VERSION) != _ONERINGAI_VERSION:
            raise InvalidSnapshotVersion(
                f"the oneringai session {raw['agentId']!r} has {name} {holder['version']!r}; only 1 is known",
                session_id=raw["agentId"],
                hint="export it in that format's version 1",
            )


def _refuse_companion(raw: Raw) -> None:
    for name, hint in _COMPANIONS.items():
        if "session_id" not in raw and isinstance(raw.get(name), list):
            raise InvalidSnapshot("this JSON file belongs to a session but is not one", hint=hint)


def _own_version(raw: Raw) -> int:
    session_id = session_id_of(raw)
    if raw.get("version") is None:
        raise InvalidSnapshot(
            f"the document of session {session_id!r} has no version and no shape we know",
            session_id=session_id,
            hint="docs/reference/migrations.md shows what can be read",
        )
    version = raw["version"]
    if type(version) is not int or version < 1:
        raise InvalidSnapshotVersion(
            f"the version of session {session_id!r} is {version!r}, not a whole number from 1 on",
            session_id=session_id,
            hint="docs/reference/migrations.md shows what can be read",
        )
    return version
