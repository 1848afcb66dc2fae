"""The protocols of the manager: a session that returns its snapshot, a provider that starts and stops sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from snapshot_plugin.errors import InvalidInput, InvalidSessionId
from snapshot_plugin.live.ports import LocalPlace
from snapshot_plugin.model.ids import check_session_id, is_companion
from snapshot_plugin.model.snapshot import SessionSnapshot
from snapshot_plugin.model.times import utc_now

__all__ = [
    "Adapted",
    "Clock",
    "ContextProvider",
    "Grade",
    "LocalPlace",
    "Provider",
    "RestoredAs",
    "RestoringProvider",
    "ResumableProvider",
    "Snapshottable",
    "adapt",
    "check_session",
    "is_failure",
    "utc_now",
]

Clock = Callable[[], datetime]
"""Returns the current time in UTC. It is used for timestamps only, never for scheduling, so it may jump."""

Grade = Literal["native-load", "native-resume", "context", "fresh"]
"""How faithfully a session was restored."""

SourceT = TypeVar("SourceT")
SessionT = TypeVar("SessionT", bound="Snapshottable")


@runtime_checkable
class Snapshottable(Protocol):
    """A live session that can return its current snapshot.

    A plain `snapshot` is called in the event loop, because it reads live state: it must return quickly and must not
    block. An ``async def`` one may wait, up to ``config.snapshot_timeout``. Return the same object while nothing
    changed: the manager then saves nothing, at no cost.
    """

    @property
    def session_id(self) -> str:
        """Our id of the session; it never changes."""

    def snapshot(self) -> SessionSnapshot | Awaitable[SessionSnapshot]:
        """The current snapshot. Its ``session_id`` is this session's."""


def check_session(session: Snapshottable, tags: object = ()) -> None:
    """Raise `InvalidInput` unless *session* can be saved with these *tags*.

    The id of a part of another session is refused, because lists would hide it: see `model.ids`.
    """
    if not hasattr(session, "session_id") or not hasattr(session, "snapshot"):
        raise InvalidInput(
            f"a {type(session).__name__} is not a session", hint="pass an object with session_id and snapshot()"
        )
    if is_companion(check_session_id(session.session_id)) and not getattr(session, "is_part", False):
        raise InvalidSessionId(
            f"the session id {session.session_id!r} cannot be used: it names a part of another session",
            session_id=session.session_id,
            hint="use another id",
        )
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidInput(f"tags={tags!r} is not a list of tags", hint="as tags=['name']")


def is_failure(error: BaseException) -> bool:
    """Whether a callback that raised *error* failed: any exception, or a cancellation of something it awaited.

    asyncio raises the same error if an awaited task was cancelled and if the task that awaits is cancelled. Only
    the second must be passed on.
    """
    import asyncio  # noqa: PLC0415 — only after a failure; lists do without

    if not isinstance(error, asyncio.CancelledError):
        return isinstance(error, Exception)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # not on asyncio
        task = None
    return task is None or not task.cancelling()


@dataclass(frozen=True, eq=False)
class Adapted(Generic[SourceT]):
    """A `Snapshottable` made from any object and one function; see `adapt`."""

    source: SourceT
    session_id: str
    take: Callable[[SourceT], SessionSnapshot | Awaitable[SessionSnapshot]]

    def snapshot(self) -> SessionSnapshot | Awaitable[SessionSnapshot]:
        """Call the function on the object."""
        return self.take(self.source)


def adapt(
    source: SourceT,
    take: Callable[[SourceT], SessionSnapshot | Awaitable[SessionSnapshot]],
    *,
    session_id: str | None = None,
) -> Adapted[SourceT]:
    """Make a dataclass, a pydantic model or any other object snapshottable with one function.

    Args:
        source: the session object.
        take: returns a `SessionSnapshot` of it; plain or async.
        session_id: needed only if *source* has no ``session_id``.
    """
    name = session_id if session_id is not None else getattr(source, "session_id", None)
    if not isinstance(name, str):
        raise InvalidInput(f"a {type(source).__name__} has no session_id", hint="pass adapt(…, session_id=…)")
    return Adapted(source=source, session_id=name, take=take)


class Provider(Protocol[SessionT]):
    """Starts and stops sessions of one kind."""

    async def create_session(self, session_id: str, config: Any, /) -> SessionT:
        """Start a new session. *config* is the caller's own, passed through unchanged."""

    async def stop_session(self, session: SessionT, /) -> None:
        """End a session this provider started."""


@runtime_checkable
class ResumableProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider that can load sessions."""

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> SessionT:
        """Load the session from *snapshot*. Raises `AgentNoLoadSupport` if the agent cannot load sessions."""


@runtime_checkable
class ContextProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider that can give a new session the transcript of the old one."""

    async def continue_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> SessionT:
        """Start a new session, and give it the conversation in *snapshot*."""


class RestoredAs(NamedTuple, Generic[SessionT]):
    """A restored session, its grade, and why the grade is not better."""

    session: SessionT
    grade: Grade
    fell_back: str | None = None


@runtime_checkable
class RestoringProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider that starts the agent once, and learns only then what the agent can do."""

    async def restore_session(
        self, session_id: str, config: Any, snapshot: SessionSnapshot, /, *, require_load: bool
    ) -> RestoredAs[SessionT]:
        """Restore *snapshot* as well as the agent can: by loading it, or from its transcript.

        Raises:
            AgentNoLoadSupport: it cannot be loaded, and *require_load* is set. Nothing is left running.
        """
