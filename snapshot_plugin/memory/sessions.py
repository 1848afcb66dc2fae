"""The sessions of a project: which one writes, how many there were, and when the last one was."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from snapshot_plugin.memory.files import MemoryFiles, encoded
from snapshot_plugin.memory.project import DIRECTORY, ignore_in_git
from snapshot_plugin.memory.standing import Standing
from snapshot_plugin.memory.tenure import Tenure
from snapshot_plugin.errors import Damaged, MemoryReadOnly, NotFound, SnapshotCorrupted, StoreUnavailable
from snapshot_plugin.model.value import Timestamp, Value

__all__ = ["META", "ProjectMeta", "Sessions"]

META: Final = "meta.json"


class ProjectMeta(Value):
    """The file ``meta.json``: the project, its sessions, and when baselines were last read."""

    project: str
    created_at: Timestamp
    last_session: Timestamp | None = None
    session_count: int = 0
    used: dict[str, Timestamp] = Field(default_factory=dict)


class Sessions:
    """This session's place among those of the project."""

    def __init__(
        self, project: Path, files: MemoryFiles, standing: Standing, *, clock: Callable[[], datetime]
    ) -> None:
        self.project = project
        self.previous: datetime | None = None
        """When the session before this one was."""
        self.meta = ProjectMeta(project=str(project), created_at=clock(), session_count=1)
        self._files = files
        self._standing = standing
        self._clock = clock
        self._tenure: Tenure | None = None
        self._counted = False

    @property
    def writes(self) -> bool:
        """Whether this process is the writer."""
        return self._tenure is not None

    def become_writer(self) -> bool:
        """Make sure that this process may write; True if it could not before.

        The first time, the session is counted, durably.

        Raises:
            MemoryReadOnly: another process writes.
            StoreUnavailable: the disk refuses.
        """
        if self._tenure is not None and self._tenure.holds:
            return False
        try:
            self._take_over()
        except MemoryReadOnly as error:
            self._standing.reading_only(error)
            raise
        except StoreUnavailable as error:
            self._standing.refused(error)
            raise
        self._standing.well()
        return True

    def look(self) -> None:
        """Read the project's notes without being its writer, as far as they can be read."""
        try:
            meta = self._read()
        except (Damaged, StoreUnavailable):
            return
        if meta is not None:
            self.meta, self.previous = meta, meta.last_session

    def note(self, **changes: object) -> None:
        """Change the project's notes, durably."""
        self.meta = self.meta.evolve(**changes)
        self._files.write(META, encoded(self.meta.model_dump(mode="json"))[0])

    def start_over(self) -> None:
        """This session is the project's first again."""
        now = self._clock()
        self.previous = None
        self.meta = ProjectMeta(project=str(self.project), created_at=now)
        self.note(last_session=now, session_count=1)

    def end(self) -> None:
        """Let the next one write."""
        if self._tenure is not None:
            self._tenure.end()
            self._tenure = None

    def _take_over(self) -> None:
        self.end()
        self._files.prepare()
        tenure = Tenure.begin(self._files.directory, self._clock())
        try:
            self._files.sweep()
            self._count()
        except BaseException:
            tenure.end()
            raise
        self._tenure = tenure

    def _count(self) -> None:
        before = self._stored()
        if self._counted:  # somebody removed the directory meanwhile; it is still the same session
            self.note()
            return
        if before is None:  # before the first note: killed in between, the next session does it again
            self._ignore_in_git()
        self.previous = before.last_session if before else None
        self.meta = before or self.meta.evolve(session_count=0)
        self.note(project=str(self.project), session_count=self.meta.session_count + 1, last_session=self._clock())
        self._counted = True

    def _stored(self) -> ProjectMeta | None:
        try:
            return self._read()
        except SnapshotCorrupted as error:
            where = self._files.set_aside(META)
            self._standing.report(f"{error.message}; it is kept as {DIRECTORY}/{where}; sessions are counted anew")
            return None

    def _read(self) -> ProjectMeta | None:
        try:
            return ProjectMeta.model_validate(self._files.read(META))
        except NotFound:
            return None
        except ValidationError as error:
            raise SnapshotCorrupted(f"{META} is damaged: {error.error_count()} fields do not fit") from None

    def _ignore_in_git(self) -> None:
        try:
            ignore_in_git(self.project)
        except OSError as error:
            self._standing.report(f"{DIRECTORY}/ could not be added to .gitignore: {error.strerror}")
