"""The result of saving a session, or of saving all of them."""

from __future__ import annotations

import logging
import traceback
from pathlib import PurePath
from typing import Any, Literal, Self

from snapshot_plugin.errors import SnapshotError
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.model.meta import SnapshotRef
from snapshot_plugin.model.value import Value

__all__ = ["Outcome", "SnapshotAllReport", "describe", "log_failure", "loggable"]

_log = logging.getLogger(__name__)
Status = Literal["saved", "failed", "timeout", "not_reachable", "not_asked", "not_live"]


def describe(error: BaseException) -> dict[str, Any]:
    """An error as fields: code, message, hint, retryable."""
    if isinstance(error, SnapshotError):
        return {"code": error.code, "message": error.message, "hint": error.hint, "retryable": error.retryable}
    return {"code": SnapshotError.code, "message": f"{type(error).__name__}: {error}"}


def loggable(error: BaseException) -> str:
    """An error for a log: our own message; for others only type and place, as their text may quote content."""
    if isinstance(error, SnapshotError):
        cause = error.__cause__
        is_ours = cause is None or isinstance(cause, OSError | SnapshotError) or not str(cause)
        return error.message if is_ours else error.message.replace(str(cause), "…")
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def log_failure(what: str, error: BaseException) -> None:
    """Log that *what* failed. The error's own text is logged at DEBUG only."""
    _log.error("%s: %s", what, loggable(error))
    _log.debug("%s", what, exc_info=error)


class Outcome(Value):
    """The outcome of saving or finishing one session.

    ``saved``: the session as it was is durable, under `seq`. ``failed`` and ``timeout``: it is not, see `problem`.
    ``not_reachable``: another process owns it and did not answer. ``not_asked``: the settings say not to save.
    ``not_live``: no process runs it. With ``failed``, records that the spool took stay there for recovery.
    """

    session_id: str
    status: Status
    seq: int | None = None
    code: str = ""
    problem: str = ""
    owner: Owner | None = None

    @classmethod
    def saved(cls, ref: SnapshotRef) -> Self:
        """The session is durable."""
        return cls(session_id=ref.session_id, status="saved", seq=ref.seq)

    @classmethod
    def failed(cls, session_id: str, error: Exception) -> Self:
        """The session is not durable, and why."""
        about = describe(error)
        return cls(session_id=session_id, status="failed", code=about["code"], problem=about["message"])

    @classmethod
    def timed_out(cls, session_id: str, seconds: float) -> Self:
        """No answer came in time, so the session counts as not saved."""
        problem = f"not finished within {seconds:g} s"
        return cls(session_id=session_id, status="timeout", code=SnapshotError.code, problem=problem)

    def __str__(self) -> str:
        detail = f"snapshot {self.seq}" if self.seq is not None else self.problem
        owner = f" (process {self.owner.pid} on {self.owner.host})" if self.owner else ""
        return f"{self.session_id}: {self.status.replace('_', ' ')}{owner}{': ' if detail else ''}{detail}"


class SnapshotAllReport(Value):
    """What `SnapshotManager.snapshot_all` did, one outcome per live session, in order of their ids."""

    tag: str
    outcomes: tuple[Outcome, ...] = ()

    @property
    def ok(self) -> bool:
        """True only if every live session is saved."""
        return not self.not_saved

    @property
    def not_saved(self) -> tuple[Outcome, ...]:
        """The sessions a deploy would cost."""
        return tuple(outcome for outcome in self.outcomes if outcome.status != "saved")

    def __str__(self) -> str:
        saved = len(self.outcomes) - len(self.not_saved)
        return "\n".join(
            [f"{saved} of {len(self.outcomes)} live sessions saved as {self.tag!r}", *map(str, self.outcomes)]
        )
