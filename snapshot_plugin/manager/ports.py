"""What the manager needs: a session that returns its snapshot, a provider that starts and stops sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.ports import LocalPlace
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
    "utc_now",
]

Clock = Callable[[], datetime]
"""Tells the time of day, in UTC. Only stamped on things: nothing is scheduled by it, so it may jump."""

Grade = Literal["native-load", "native-resume", "context", "fresh"]
"""How much of a session came back."""

SourceT = TypeVar("SourceT")
SessionT = TypeVar("SessionT", bound="Snapshottable")


@runtime_checkable
class Snapshottable(Protocol):
    """A live session that can return its current snapshot.

    A plain `snapshot` is called in the event loop, because it reads live state: it must be quick and must not
    wait for anything. An ``async def`` one may wait, and times out after ``config.snapshot_timeout``.
    Returning the same object as last time tells the manager, for free, that nothing changed.
    """

    @property
    def session_id(self) -> str:
        """Ours, stable for ever."""

    def snapshot(self) -> SessionSnapshot | Awaitable[SessionSnapshot]:
        """The current snapshot. Its ``session_id`` is this session's."""


@dataclass(frozen=True, eq=False)
class Adapted(Generic[SourceT]):
    """Any object made `Snapshottable` by one function. Made by `adapt`."""

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
    """Make a dataclass, a pydantic model or anything else snapshottable with one function.

    Args:
        source: the session as its author wrote it.
        take: makes a `SessionSnapshot` of it; plain or async.
        session_id: needed only where *source* has no ``session_id`` of its own.
    """
    name = session_id if session_id is not None else getattr(source, "session_id", None)
    if not isinstance(name, str):
        raise InvalidInput(f"a {type(source).__name__} has no session_id", hint="pass adapt(…, session_id=…)")
    return Adapted(source=source, session_id=name, take=take)


class Provider(Protocol[SessionT]):
    """Starts and stops sessions of one kind."""

    async def create_session(self, session_id: str, config: Any, /) -> SessionT:
        """Start a new session. *config* is the caller's own and is passed through."""

    async def stop_session(self, session: SessionT, /) -> None:
        """End a session this provider started."""


@runtime_checkable
class ResumableProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider whose sessions can be brought back."""

    async def load_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> SessionT:
        """Bring *snapshot* back to life. Raises `AgentNoLoadSupport` if it turns out that the agent cannot."""


@runtime_checkable
class ContextProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider that can give a new session the transcript of the old one."""

    async def continue_session(self, session_id: str, config: Any, snapshot: SessionSnapshot, /) -> SessionT:
        """Start a new session that is given *snapshot* as its past."""


class RestoredAs(NamedTuple, Generic[SessionT]):
    """A session that was brought back, with which grade, and why not with a better one."""

    session: SessionT
    grade: Grade
    fell_back: str | None = None


@runtime_checkable
class RestoringProvider(Provider[SessionT], Protocol[SessionT]):
    """A provider that finds out only after a start what its agent can do, and starts it once."""

    async def restore_session(
        self, session_id: str, config: Any, snapshot: SessionSnapshot, /, *, require_load: bool
    ) -> RestoredAs[SessionT]:
        """Restore *snapshot* as well as the agent can: by loading it, or from its transcript.

        Raises:
            AgentNoLoadSupport: it cannot be loaded, and *require_load*. Nothing is left running.
        """
