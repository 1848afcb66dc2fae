"""Actions that the core returns to its host, steps that jobs yield to the core, and `Jobs`, the runner. No I/O.

Hosts carry actions out in order. A job (a restore, a fork) is a generator: it yields actions and steps, and is sent
the result of an `Ask`, a `Do` or a `Wait`. Threads, event loops and tests drive it the same way. A job runs until
it waits for something; its request gets exactly one answer; every wait for the agent has a timeout.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, final

from snapshot_plugin.acp.messages import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Message,
    Pending,
    as_object,
    failure,
    notification,
    request,
    success,
    with_whole_error,
)
from snapshot_plugin.errors import InvalidInput, InvalidSessionId, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.outcome import log_failure, loggable
from snapshot_plugin.model.ids import new_id

if TYPE_CHECKING:
    from snapshot_plugin.acp.core import Core
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
    "HostAction",
    "Job",
    "Jobs",
    "Pass",
    "PassAs",
    "RecordEvent",
    "Restart",
    "RunBlocking",
    "Say",
    "Steps",
    "ToAgent",
    "ToClient",
    "Wait",
    "refusal",
    "shown",
]

_T = TypeVar("_T")


@final
class Pass(NamedTuple):
    """Pass the message on to the other side, byte for byte."""


PASS = Pass()


@final
class PassAs(NamedTuple):
    """Pass the message on to the client with our session id."""

    session_id: str


@final
class ToClient(NamedTuple):
    """Send the client a message."""

    message: Message


@final
class ToAgent(NamedTuple):
    """Send the agent a message."""

    message: Message


@final
class RecordEvent(NamedTuple):
    """Record an event of a live session before any later message is sent; on disk if *durable*."""

    session_id: str
    event: dict[str, Any]
    durable: bool = False


@final
class Checkpoint(NamedTuple):
    """Request a snapshot of the session soon."""

    session_id: str


@final
class Say(NamedTuple):
    """Show the user one line, never on the protocol's stream."""

    text: str
    words: str = ""
    """The agent's own text about it: shown to the user, not logged at INFO."""
    is_warning: bool = False
    """Whether a host that logs it must log it as a warning: something is not recorded."""


@final
class Restart(NamedTuple):
    """End the agent if it still runs, wait *delay* seconds, start it, and call ``core.agent_started``."""

    delay: float


@final
class GiveUp(NamedTuple):
    """Shut down: the agent cannot be kept running."""

    text: str


@final
class RunBlocking(NamedTuple):
    """Call *run* with the live sessions where it may block, then ``core.done(number, result or error)``."""

    number: int
    run: Callable[[LiveSessions], Any]


@final
class Ask(NamedTuple):
    """Step: send the agent a request of our own. Returns its result; raises `AgentRefused` or `AgentGone`."""

    method: str
    params: Message


@final
class Do(NamedTuple):
    """Step: call *run*, which may block, with the live sessions. Returns or raises what it does."""

    run: Callable[[LiveSessions], Any]


@final
class Wait(NamedTuple):
    """Step: wait until *ready* (given the time), *at_most* so many seconds. Returns whether it is ready."""

    ready: Callable[[float], bool]
    at_most: float


@final
class EarlyAnswer(NamedTuple):
    """Step: answer the client's request now; the job continues."""

    result: Message


HostAction = Checkpoint | Say | Restart | GiveUp | RunBlocking
"""Actions that do not pass messages on: a host carries them out after those that do."""
Action = Pass | PassAs | ToClient | ToAgent | RecordEvent | HostAction
Actions = list[Action]
Steps = Generator[Action | Ask | Do | Wait | EarlyAnswer, Any, _T]
"""A job: it yields actions, and the four steps that only the core carries out."""


def shown(session_id: str, update: Message) -> ToClient:
    """Show the client one update."""
    return ToClient(notification("session/update", {"sessionId": session_id, "update": update}))


class AgentRefused(Exception):
    """The agent answered our request with an error, or did not answer in time."""

    def __init__(self, text: str, error: Any = None, *, code: int | None = None) -> None:
        super().__init__(text)
        self.error = as_object(error)
        self._code = code

    @property
    def code(self) -> int | None:
        """The error code for the client: *code* if given, else the agent's. None if neither is an integer."""
        code = self.error.get("code") if self._code is None else self._code
        return code if isinstance(code, int) and not isinstance(code, bool) else None

    @property
    def wants_login(self) -> bool:
        """Whether the client must authenticate first."""
        return self.code == AUTH_REQUIRED


class AgentGone(AgentRefused):
    """The agent ended before it answered. *alone*: no other request was in flight, so it died of this one."""

    def __init__(self, text: str, *, alone: bool = False) -> None:
        super().__init__(text)
        self.alone = alone


_TICK = 0.02
_AT_START = ("initialize", "authenticate")  # a restarted agent gets these before it is ready
log = logging.getLogger("snapshot_plugin.acp")


class Job:
    """Work in several steps, for a request of the client (*pending*) or started by us."""

    def __init__(self, steps: Steps[Any], pending: Pending | None = None, session_id: str | None = None) -> None:
        self.steps, self.pending = steps, pending
        self.session_id = session_id if session_id is not None else pending.session_id if pending else None
        self.followers: list[Message] = []
        """Messages of the client that wait for this job."""
        self.answered = pending is None


class _Asked(NamedTuple):
    job: Job
    method: str
    deadline: float


class _Waiting(NamedTuple):
    job: Job
    wait: Wait
    deadline: float


class Jobs:
    """Runs the jobs of one connection.

    Args:
        core: handles messages of the client that had to wait.
        now: a monotonic clock.
        timeout: for our requests to the agent, in seconds.
    """

    def __init__(self, core: Core, *, now: Callable[[], float], timeout: float) -> None:
        self._core, self._now, self._timeout = core, now, timeout
        self._numbers = itertools.count(1)
        self._prefix = f"asnap-{new_id()[-8:]}-"  # unique: the client may be another asnap with its own ids
        self.asks: dict[str, _Asked] = {}
        """Our requests that the agent has not answered, by request id."""
        self._unsent: list[tuple[Job, Ask]] = []
        self._works: dict[int, Job] = {}
        self.waits: list[_Waiting] = []
        """Jobs that wait for a condition."""
        self._busy: dict[str, Job] = {}

    def at_work_on(self, session_id: str | None) -> Job | None:
        """Return the job that has the session exclusively now."""
        return self._busy.get(session_id) if session_id is not None else None

    def answered(self, number: Any, message: Message) -> Actions | None:
        """Handle the agent's answer to a request of ours; None if it is not one."""
        asked = self.asks.pop(number, None) if isinstance(number, str) else None
        return self._advance(asked.job, *_outcome(message)) if asked is not None else None

    def agent_gone(self, *, is_busy: bool) -> Actions:
        """Fail all our pending requests: the agent ended. *is_busy*: it was also working for the client."""
        asked, self.asks = self.asks, {}
        alone = len(asked) == 1 and not is_busy
        gone = [(each.job, AgentGone("the agent ended", alone=alone)) for each in asked.values()]
        return [action for job, problem in gone for action in self._advance(job, None, problem)]

    def start(self, job: Job) -> Actions:
        """Start a job. Messages about its session wait until it is done."""
        if job.session_id is not None:
            self._busy[job.session_id] = job
        return self._advance(job, None, None)

    def done(self, number: int, result: Any = None, error: BaseException | None = None) -> Actions:
        """Handle the result of a `RunBlocking`."""
        job = self._works.pop(number, None)
        return self._advance(job, result, error) if job else []

    def tick(self, now: float) -> Actions:
        """Time out requests and waits that are due. Call it again after `next_tick` seconds."""
        actions: Actions = []
        for number in [number for number, asked in self.asks.items() if now >= asked.deadline]:
            asked = self.asks.pop(number)
            late = AgentRefused(f"no answer to {asked.method} in {self._timeout:g} s")
            actions += self._advance(asked.job, None, late)
        return actions + self.checked_waits()

    def next_tick(self) -> float | None:
        """Return the seconds until `tick` is due; None while nothing waits."""
        if self.waits:
            return _TICK
        if not self.asks:
            return None
        return max(_TICK, min(asked.deadline for asked in self.asks.values()) - self._now())

    def checked_waits(self) -> Actions:
        """Resume jobs whose condition holds, fails, or has timed out."""
        actions: Actions = []
        now = self._now()
        for waiting in list(self.waits):
            is_ready, problem = False, None
            try:
                is_ready = waiting.wait.ready(now)
            except Exception as error:  # noqa: BLE001 — it is raised in the job
                problem = error
            if (is_ready or problem or now >= waiting.deadline) and waiting in self.waits:
                self.waits.remove(waiting)
                actions += self._advance(waiting.job, is_ready, problem)
        return actions

    def _advance(self, job: Job, value: Any, error: BaseException | None) -> Actions:
        """Run a job until it waits for something, or is done."""
        actions: Actions = []
        try:
            while True:
                step = job.steps.throw(error) if error is not None else job.steps.send(value)
                value = error = None
                if isinstance(step, Ask):
                    return actions + self._asked(job, step)
                if isinstance(step, Do):
                    number = next(self._numbers)
                    self._works[number] = job
                    actions.append(RunBlocking(number, step.run))
                    return actions
                if isinstance(step, Wait):
                    self.waits.append(_Waiting(job, step, self._now() + step.at_most))
                    return actions
                if isinstance(step, EarlyAnswer):
                    actions += self._answer(job, step.result)
                else:
                    actions.append(step)
        except StopIteration as end:
            return actions + self._answer(job, end.value) + self._finished(job, None)
        except Exception as problem:  # noqa: BLE001 — the client is told
            return actions + self._failed(job, problem)

    def _asked(self, job: Job, step: Ask) -> Actions:
        """Send a request of ours; one that meets a restart of the agent is kept until the agent is ready."""
        if self._core.is_over:
            return self._advance(job, None, AgentGone("the agent ended"))
        if not self._core.is_up and step.method not in _AT_START:
            self._unsent.append((job, step))
            return []
        number = f"{self._prefix}{next(self._numbers)}"
        self.asks[number] = _Asked(job, step.method, self._now() + self._timeout)
        return [ToAgent(request(number, step.method, step.params))]

    def unsent(self, message: Message) -> None:
        """Keep a request of ours that could not be written to the agent."""
        number, method = message.get("id"), message["method"]
        if isinstance(number, str) and number in self.asks and method not in _AT_START:
            self._unsent.append((self.asks.pop(number).job, Ask(method, message["params"])))

    def released(self) -> Actions:
        """Send the requests that were kept. They fail if the agent has ended for good."""
        kept, self._unsent = self._unsent, []
        return [action for job, step in kept for action in self._asked(job, step)]

    def _answer(self, job: Job, result: Any) -> Actions:
        if job.answered or job.pending is None:
            return []
        job.answered = True
        return [ToClient(success(job.pending.id, result))]

    def _failed(self, job: Job, problem: Exception) -> Actions:
        actions: Actions = []
        if not job.answered and job.pending is not None:
            job.answered = True
            actions.append(ToClient(refusal(job.pending, problem)))
        elif not isinstance(problem, AgentRefused):
            log.warning("session %s: %s", job.session_id, loggable(problem))
        return actions + self._finished(job, problem)

    def _finished(self, job: Job, problem: Exception | None) -> Actions:
        if job.session_id is not None and self._busy.get(job.session_id) is job:
            del self._busy[job.session_id]
        sessions = self._core.sessions
        actions = self._core.withheld.released(lambda name: sessions.is_open(name) or sessions.is_closed(name))
        for message in job.followers:
            actions += self._core.again(message, problem if job.pending is None else None)
        return actions


def _outcome(message: Message) -> tuple[Message | None, AgentRefused | None]:
    if message.get("error") is None and "result" in message:
        return as_object(message["result"]), None
    error = with_whole_error(message)["error"]
    return None, AgentRefused(error["message"], error)


def refusal(pending: Pending, problem: BaseException) -> Message:
    """Build the error answer to a request that failed."""
    about: Message = {"sessionId": pending.session_id}
    if isinstance(problem, AgentRefused):
        if problem.error:
            about["error"] = problem.error
        code = INTERNAL_ERROR if problem.code is None else problem.code
        return failure(pending.id, code, f"the agent refused: {problem}", about)
    if isinstance(problem, SnapshotNotFound | InvalidSessionId):
        return failure(pending.id, RESOURCE_NOT_FOUND, f"there is no session {pending.session_id}", about)
    if isinstance(problem, InvalidInput):
        return failure(pending.id, INVALID_PARAMS, problem.message, about)
    if isinstance(problem, SnapshotError):
        return failure(pending.id, INTERNAL_ERROR, str(problem), {**about, "reason": problem.code})
    log_failure(f"{pending.method} failed", problem)
    return failure(pending.id, INTERNAL_ERROR, f"{type(problem).__name__}: {problem}", about)
