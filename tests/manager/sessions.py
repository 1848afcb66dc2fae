"""Live sessions to test the manager with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from snapshot_plugin import SnapshotConfig, SnapshotManager
from snapshot_plugin.manager.events import Event
from snapshot_plugin.model import SessionSnapshot
from snapshot_plugin.testing import make_message, make_snapshot

PATIENCE = 60.0
EventT = TypeVar("EventT", bound=Event)


def quick(**settings: Any) -> SnapshotConfig:
    """Settings for tests that must not wait: everything happens within a hundredth of a second."""
    fast = {
        "snapshot_interval": 0.01,
        "event_debounce": 0.005,
        "retry_first": 0.005,
        "retry_max": 0.02,
        "enable_persistence": True,
        "snapshot_on_signal": False,
    }
    return SnapshotConfig(**{**fast, **settings})


class Chat:
    """A session that says things. Gives the same snapshot object until something is said."""

    def __init__(self, session_id: str = "chat", *said: str, snapshot: SessionSnapshot | None = None) -> None:
        self.session_id = session_id
        self.state = snapshot or make_snapshot(*said, session_id=session_id)
        self.asked = 0

    def say(self, text: str) -> None:
        self.state = self.state.append(make_message(text))

    @property
    def said(self) -> list[str]:
        return [message.text for message in self.state.messages]

    def snapshot(self) -> SessionSnapshot:
        self.asked += 1
        return self.state


class AsyncChat:
    """A session whose snapshot takes a while: until it is let, if it is held."""

    def __init__(self, session_id: str = "chat") -> None:
        self.session_id = session_id
        self.state = make_snapshot("hello", session_id=session_id)
        self.asked = 0
        self.hold: anyio.Event | None = None

    async def snapshot(self) -> SessionSnapshot:
        self.asked += 1
        if self.hold is not None:
            await self.hold.wait()
        await anyio.lowlevel.checkpoint()
        return self.state


class Diary:
    """Keeps every event, and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._news = anyio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()
        self._news = anyio.Event()

    def of(self, kind: type[EventT]) -> list[EventT]:
        return [event for event in self.events if isinstance(event, kind)]

    async def wait_for(
        self, kind: type[EventT], count: int = 1, *, where: Callable[[EventT], bool] = lambda _event: True
    ) -> list[EventT]:
        """Wait until *count* events of *kind* that fit have happened."""
        with anyio.fail_after(PATIENCE):
            while len(found := [event for event in self.of(kind) if where(event)]) < count:
                await self._news.wait()
        return found


@asynccontextmanager
async def managing(store: Any, **settings: Any) -> AsyncIterator[tuple[SnapshotManager, Diary]]:
    """An open, quick manager and the diary of its events."""
    manager, diary = SnapshotManager(store, quick(**settings)), Diary()
    manager.events.subscribe(diary)
    async with manager:
        yield manager, diary
