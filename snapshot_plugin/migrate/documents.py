"""Load and migrate documents of any released version."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.inert import several
from snapshot_plugin.migrate.chain import Chain, StepInfo
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.migrate.steps import STEPS
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot

__all__ = ["CHAIN", "load_document", "migrate", "plan_migration"]

CHAIN = Chain(STEPS, current=CURRENT_VERSION)
"""All steps, from version 1 to the version that this release writes."""


def migrate(raw: Any) -> Raw:
    """Return *raw* at the current version; see `Chain.migrate` for guarantees and errors."""
    return CHAIN.migrate(raw)


def plan_migration(raw: Any) -> tuple[StepInfo, ...]:
    """The steps `migrate` would run on *raw*, without running them; empty for a current document."""
    return CHAIN.plan(raw)


def load_document(raw: Any) -> SessionSnapshot:
    """Return *raw*, of any known version, as a snapshot. *raw* is never changed.

    Raises:
        InvalidSnapshot: it is not a session, or a part of it does not fit; the text names the path to it.
        InvalidSnapshotVersion: it is newer than this release, or has no usable version.
    """
    try:
        return _validated(migrate(raw))
    except RecursionError:
        raise InvalidSnapshot("the document is nested too deeply", hint="flatten it") from None


def _validated(document: Raw) -> SessionSnapshot:
    try:
        return SessionSnapshot.model_validate(document)
    except ValidationError as error:
        raise _misfit(document, error) from error


def _misfit(document: Raw, error: ValidationError) -> InvalidSnapshot:
    first = error.errors(include_input=False, include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    session_id = document.get("session_id")
    return InvalidSnapshot(
        f"session {session_id!r} does not fit version {CURRENT_VERSION} at {path}: {first['msg']}",
        session_id=session_id if isinstance(session_id, str) else None,
        hint=f"{several(error.error_count(), 'problem')}; correct the document and load it again",
    )
