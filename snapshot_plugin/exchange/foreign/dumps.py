"""Session files of openagent-terminal, oneringai and OrbitMesh, read as documents.

Files are recognised by their shape. Their ``version`` field is unrelated to ours.
"""

from __future__ import annotations

from typing import Any, Literal

from snapshot_plugin.errors import InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.exchange.foreign.oneringai import oneringai_to_v1
from snapshot_plugin.exchange.foreign.openagent import openagent_to_v1
from snapshot_plugin.exchange.foreign.orbitmesh import is_orbitmesh, orbitmesh_to_v1
from snapshot_plugin.migrate import load_document
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Shape", "as_document", "load_dump", "shape_of"]

Shape = Literal["openagent", "oneringai", "orbitmesh"]

_ONERINGAI_VERSION = 1
_READERS = {"openagent": openagent_to_v1, "oneringai": oneringai_to_v1, "orbitmesh": orbitmesh_to_v1}
_COMPANIONS = {
    "sessions": "this is an index of sessions; give the file of one session",
    "entries": 'this is the memory of a session; put it into the session document as "memory"',
}
"""Files beside foreign session files, recognised by the list they hold."""


def load_dump(raw: Any) -> SessionSnapshot:
    """Return *raw*, a dump or a document of ours of any version, as a snapshot. *raw* is never changed.

    Raises:
        InvalidSnapshot: it is not a session, or a part of it does not fit; the text names the path to it.
        InvalidSnapshotVersion: it has a version that is not known.
    """
    try:
        return load_document(as_document(raw))
    except RecursionError:
        raise InvalidSnapshot("the document is nested too deeply", hint="flatten it") from None


def as_document(raw: Any) -> Any:
    """Convert a dump to a version 1 document; return anything else unchanged. Raises what `load_dump` does."""
    shape = shape_of(raw) if isinstance(raw, dict) else None
    if shape is None:
        _refuse_companion(raw)
        return raw
    session_id = _id_of(raw, shape)
    if shape == "oneringai":
        _refuse_unknown_oneringai(raw)
    try:
        return {**_READERS[shape](thaw(raw)), "version": 1}
    except InvalidSnapshot as error:
        raise InvalidSnapshot(
            f"session {session_id!r} is not a valid {shape} document: {error.message}",
            session_id=session_id,
            hint=error.hint,
        ) from error


def _id_of(raw: Raw, shape: Shape) -> str:
    if shape == "orbitmesh":
        return str(raw["SessionID"])
    return str(raw["agentId"] if shape == "oneringai" else raw["metadata"]["session_id"])


def shape_of(raw: Raw) -> Shape | None:
    """The foreign format of *raw*; None if it is not one."""
    if "session_id" in raw:
        return None
    if _is_openagent(raw):
        return "openagent"
    if is_orbitmesh(raw):
        return "orbitmesh"
    return "oneringai" if _is_oneringai(raw) else None


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


def _refuse_companion(raw: Any) -> None:
    for name, hint in _COMPANIONS.items():
        if isinstance(raw, dict) and "session_id" not in raw and isinstance(raw.get(name), list):
            raise InvalidSnapshot("this JSON file belongs to a session but is not one", hint=hint)
