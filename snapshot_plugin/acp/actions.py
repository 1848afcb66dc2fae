"""What the core asks its host to do, and what work in several steps asks of the core.

Hosts carry actions out in order. Work in several steps (a restore, a fork) is a generator: it yields these too,
and is sent the result of an `Ask`, a `Do` or a `Wait`. Threads and event loops drive it alike, and so does a test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from snapshot_plugin.acp.messages import AUTH_REQUIRED, Message

if TYPE_CHECKING:
    from snapshot_plugin.live.sessions import LiveSessions

__all__ = [
    "PASS",
    "Action",
    "Actions",
    "AgentGone",
    "AgentRefused",
    "Ask",
    "Checkpoint",
    "Do",
    "EarlyAnswer",
    "GiveUp",
    "RecordEvent",
    "Restart",
    "RunBlocking",
    "Say",
    "Steps",
    "ToAgent",
    "ToClient",
    "Wait",
]

_T = TypeVar("_T")


class _Pass(NamedTuple):
    """Pass the message on to the other side, byte for byte."""


PASS = _Pass()


class ToClient(NamedTuple):
    """Send the client a message."""

    message: Message


class ToAgent(NamedTuple):
    """Send the agent a message."""

    message: Message


class RecordEvent(NamedTuple):
    """Record an event of a live session before anything after it is sent; on disk if *durable*."""

    session_id: str
    event: dict[str, Any]
    durable: bool = False


class Checkpoint(NamedTuple):
    """Have a snapshot of the session made soon."""

    session_id: str


class Say(NamedTuple):
    """Tell the person who watches: one line, never on the protocol's stream."""

    text: str
    words: str = ""
    """What the agent said about it: for a person, not for a log."""


class Restart(NamedTuple):
    """End the agent if it still runs, wait *delay* seconds, start it, and call ``core.agent_started``."""

    delay: float


class GiveUp(NamedTuple):
    """The agent keeps dying: end."""

    text: str


class RunBlocking(NamedTuple):
    """Run *run* with the live sessions where it may block, then call ``core.done(number, result or error)``."""

    number: int
    run: Callable[[LiveSessions], Any]


class Ask(NamedTuple):
    """Step: a request of our own to the agent. Sent its result; raises `AgentRefused` or `AgentGone`."""

    method: str
    params: Message


class Do(NamedTuple):
    """Step: *run*, which may block, with the live sessions. Sent what it returns; raises what it raises."""

    run: Callable[[LiveSessions], Any]


class Wait(NamedTuple):
    """Step: wait until *ready* (given the time) or *at_most* seconds. Sent whether it is ready."""

    ready: Callable[[float], bool]
    at_most: float


class EarlyAnswer(NamedTuple):
    """Step: answer the client's request now; the work continues."""

    result: Message


Action = _Pass | ToClient | ToAgent | RecordEvent | Checkpoint | Say | Restart | GiveUp | RunBlocking
Actions = list[Action]
Step = ToClient | ToAgent | RecordEvent | Checkpoint | Say | Restart | Ask | Do | Wait | EarlyAnswer
Steps = Generator[Step, Any, _T]


class AgentRefused(Exception):
    """The agent answered a request of ours with an error, or not in time."""

    def __init__(self, text: str, error: Any = None, *, code: int | None = None) -> None:
        super().__init__(text)
        self.error: Message = error if isinstance(error, dict) else {}
        self._code = code

    @property
    def code(self) -> int | None:
        """The code the client is given; the agent's own unless another was named. None if there is none."""
        code = self.error.get("code") if self._code is None else self._code
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @property
    def wants_login(self) -> bool:
        """Whether the client must authenticate first."""
        return self.code == AUTH_REQUIRED


class AgentGone(AgentRefused):
    """The agent ended before it answered."""
