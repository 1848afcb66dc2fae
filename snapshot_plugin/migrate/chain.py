"""The chain of migration steps, each from one version to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, InvalidSnapshotVersion
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.migrate.shapes import session_id_of, version_of
from snapshot_plugin.model.frozen import thaw

__all__ = ["Chain", "MigrationStep", "StepInfo"]

_FIRST = 1


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
        version = version_of(raw)
        if version > self.current:
            session_id = session_id_of(raw)
            raise InvalidSnapshotVersion(
                f"session {session_id!r} has version {version}; this release reads up to {self.current}",
                session_id=session_id,
            )
        if not raw.get("session_id"):
            raise InvalidSnapshot(f"the document says version {version} but has no session_id")
        return self._steps[version - _FIRST :]


def _run(step: MigrationStep, document: Raw) -> Raw:
    session_id = session_id_of(document)
    try:
        return {**step.run(document), "version": step.from_version + 1}
    except InvalidSnapshot as error:
        raise InvalidSnapshot(
            f"session {session_id!r} is not a valid version {step.from_version} document: {error.message}",
            session_id=session_id,
            hint=error.hint,
        ) from error
