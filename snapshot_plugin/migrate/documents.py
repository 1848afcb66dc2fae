"""Load documents of any released version, and migrate them to the current one, step by step.

Documents of every release load. A document of a newer release is refused, never read in part. The input is not
modified. A step that was released is never edited, moved or removed: a mistake in it is corrected by the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.inert import several
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.migrate.v1 import v1_to_v2
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import CURRENT_VERSION, SessionSnapshot

__all__ = ["CHAIN", "STEPS", "Chain", "MigrationStep", "StepInfo", "load_document", "migrate", "plan_migration"]

_FIRST = 1
_SEE = "docs/reference/migrations.md shows what can be read; asnap import reads files of other tools"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInfo:
    """One step, as a dry run reports it."""

    from_version: int
    to_version: int
    description: str


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """Migrates a document from *from_version* to the next version.

    `run` owns the document it is given and may edit it; the chain writes the new ``version``.
    """

    from_version: int
    description: str
    run: Callable[[Raw], Raw]

    @property
    def info(self) -> StepInfo:
        """Describe the step without running it."""
        return StepInfo(
            from_version=self.from_version, to_version=self.from_version + 1, description=self.description
        )


class Chain:
    """All steps from version 1 to *current*, each exactly once.

    Raises:
        InvalidInput: a step is missing, doubled, or out of order.
    """

    def __init__(self, steps: Iterable[MigrationStep], *, current: int) -> None:
        self._steps = tuple(steps)
        found = [step.from_version for step in self._steps]
        if found != list(range(_FIRST, current)):
            raise InvalidInput(
                f"the steps to version {current} start from {found}, not from every version once and in order",
                hint="append the missing step; never renumber one",
            )
        self.current = current

    def plan(self, raw: Any) -> tuple[StepInfo, ...]:
        """The steps that `migrate` would run on *raw*, in order. Runs none; raises what `migrate` raises."""
        return tuple(step.info for step in self._needed(raw))

    def migrate(self, raw: Any) -> Raw:
        """Return *raw* at the current version. *raw* is never changed; a current document is returned unchanged.

        Raises:
            InvalidSnapshot: it is not a session, or does not fit its version.
            InvalidSnapshotVersion: it is newer than this release, or has no usable version.
        """
        needed = self._needed(raw)
        document: Raw = thaw(raw) if needed else raw
        for step in needed:
            document = _run(step, document)
        return document

    def _needed(self, raw: Any) -> tuple[MigrationStep, ...]:
        version = _version_of(raw)
        if version > self.current:
            session_id = _session_id_of(raw)
            raise InvalidSnapshotVersion(
                f"session {session_id!r} has version {version}; this release reads up to {self.current}",
                session_id=session_id,
            )
        if not raw.get("session_id"):
            raise InvalidSnapshot(f"the document says version {version} but has no session_id")
        return self._steps[version - _FIRST :]


def _run(step: MigrationStep, document: Raw) -> Raw:
    session_id = _session_id_of(document)
    try:
        return {**step.run(document), "version": step.from_version + 1}
    except InvalidSnapshot as error:
        raise InvalidSnapshot(
            f"session {session_id!r} is not a valid version {step.from_version} document: {error.message}",
            session_id=session_id,
            hint=error.hint,
        ) from error


def _version_of(raw: Any) -> int:
    """The version that *raw* declares.

    Raises:
        InvalidSnapshot: it is not a session, or has no version.
        InvalidSnapshotVersion: its version is not a whole number of at least 1.
    """
    if not isinstance(raw, dict):
        raise InvalidSnapshot(f"a session is a JSON object, not {type(raw).__name__}")
    session_id, version = _session_id_of(raw), raw.get("version")
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


def _session_id_of(raw: Raw) -> str | None:
    """The session id of *raw*; None if it has no usable one."""
    found = raw.get("session_id")
    return found if isinstance(found, str) else None


STEPS: tuple[MigrationStep, ...] = (
    MigrationStep(
        1, "put tool calls inside the message, and give config and metrics the names of the model", v1_to_v2
    ),
)
"""All steps, oldest first. New ones are appended."""
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
