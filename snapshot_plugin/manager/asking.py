"""Ask a session object for its snapshot, and detect whether it changed."""

from __future__ import annotations

import inspect
import operator

import anyio

from snapshot_plugin.errors import InvalidSnapshot, SnapshotError
from snapshot_plugin.manager.ports import Adapted, Snapshottable
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["ask", "is_same", "source_of"]


def source_of(session: Snapshottable) -> object:
    """The object the author made: two adaptations of it are the same session."""
    return session.source if isinstance(session, Adapted) else session


async def ask(session: Snapshottable, *, timeout: float) -> SessionSnapshot:  # noqa: ASYNC109 — part of the promise
    """Ask the session for its current snapshot.

    Raises:
        InvalidSnapshot: it returned no snapshot, or the snapshot of another session.
        SnapshotError: its method raised, or did not answer in time.
    """
    session_id = session.session_id
    with anyio.move_on_after(timeout):
        try:
            taken = session.snapshot()
            taken = await taken if inspect.isawaitable(taken) else taken
        except SnapshotError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SnapshotError(f"session {session_id!r} gave an error: {reason}", session_id=session_id) from error
        return _checked(taken, session_id)
    raise SnapshotError(
        f"session {session_id!r} did not give its snapshot within {timeout:g} s",
        session_id=session_id,
        hint="make its snapshot() quicker, or raise snapshot_timeout",
    )


def _checked(taken: object, session_id: str) -> SessionSnapshot:
    if not isinstance(taken, SessionSnapshot):
        kind = type(taken).__name__
        raise InvalidSnapshot(f"session {session_id!r} gave a {kind}, not a SessionSnapshot", session_id=session_id)
    if taken.session_id != session_id:
        raise InvalidSnapshot(
            f"session {session_id!r} gave the snapshot of session {taken.session_id!r}; it was not saved",
            session_id=session_id,
            hint="set SessionSnapshot.session_id to the session's own id",
        )
    return taken


def is_same(old: SessionSnapshot, new: SessionSnapshot) -> bool:
    """Whether *new* is made of the very objects of *old*, apart from its time. False only means: compare them."""
    if old is new:
        return True
    before, after = old.__dict__, new.__dict__
    return (
        (old.model_extra or {}) == {} == (new.model_extra or {})
        and all(before[name] is after[name] for name in before if name not in ("messages", "updated_at"))
        and len(old.messages) == len(new.messages)
        and all(map(operator.is_, old.messages, new.messages))
    )
