"""What the core asks its host to do, what work in several steps asks of the core, and that work (`Jobs`). No I/O.

Hosts carry actions out in order. Work in several steps (a restore, a fork) is a generator: it yields these too,
and is sent the result of an `Ask`, a `Do` or a `Wait`. Threads and event loops drive it alike, and so does a test.
It is driven until it waits for something, answered exactly once, and bounded in time.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from snapshot_plugin.acp.messages import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    RESOURCE_NOT_FOUND,
    Message,
    Pending,
    failure,
    notification,
    request,
    success,
)
from snapshot_plugin.errors import InvalidInput, InvalidSessionId, SnapshotError, SnapshotNotFound
from snapshot_plugin.live.outcome import log_failure, loggable

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
    "Job",
    "Jobs",
    "PassAs",
    "RecordEvent",
    "Restart",
    "RunBlocking",
    "Say",
    "Steps",
    "ToAgent",
    "ToClient",
    "Wait",
    "chunk",
    "refusal",
    "shown",
]

_T = TypeVar("_T")


class _Pass(NamedTuple):
    """Pass the message on to the other side, byte for byte."""


PASS = _Pass()


class PassAs(NamedTuple):
    """Pass the message on to the client under our id of its session."""

    session_id: str


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


Action = _Pass | PassAs | ToClient | ToAgent | RecordEvent | Checkpoint | Say | Restart | GiveUp | RunBlocking
Actions = list[Action]
Step = ToClient | ToAgent | RecordEvent | Checkpoint | Say | Restart | Ask | Do | Wait | EarlyAnswer
Steps = Generator[Step, Any, _T]


def shown(session_id: str, update: Message) -> ToClient:
    """Show the client one update."""
    return ToClient(notification("session/update", {"sessionId": session_id, "update": update}))


def chunk(text: str) -> Message:
    """The update with which an agent says *text*."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


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


_TICK = 0.02
log = logging.getLogger("snapshot_plugin.acp")


class Job:
    """Work in several steps, for a request of the client (*pending*) or of our own accord."""

    def __init__(self, steps: Steps[Any], pending: Pending | None = None, session_id: str | None = None) -> None:
        self.steps, self.pending = steps, pending
        self.session_id = session_id if session_id is not None else pending.session_id if pending else None
        self.followers: list[Message] = []
        """Messages of the client that wait for it."""
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
    """The work that is under way on one connection.

    Args:
        now: a monotonic clock.
        patience: seconds the agent may take over a request of ours.
        is_over: whether the agent will not answer any more.
        again: takes in a message of the client that had to wait.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        patience: float,
        is_over: Callable[[], bool],
        again: Callable[[Message], Actions],
    ) -> None:
        self._now, self._patience, self._is_over, self._again = now, patience, is_over, again
        self._numbers = itertools.count(1)
        self.asks: dict[str, _Asked] = {}
        """What the agent was asked by us and has not answered, by request id."""
        self._works: dict[int, Job] = {}
        self.waits: list[_Waiting] = []
        """What waits for something else to happen."""
        self._busy: dict[str, Job] = {}

    def at_work_on(self, session_id: str | None) -> Job | None:
        """The job that has the session to itself now."""
        return self._busy.get(session_id) if session_id is not None else None

    def answered(self, number: Any, message: Message) -> Actions | None:
        """Take the agent's answer to a request of ours; None if it is not one."""
        asked = self.asks.pop(number, None) if isinstance(number, str) else None
        return self._advance(asked.job, *_outcome(message)) if asked is not None else None

    def agent_gone(self) -> Actions:
        """Nobody will answer what was asked of the agent."""
        asked, self.asks = self.asks, {}
        actions: Actions = []
        for each in asked.values():
            actions += self._advance(each.job, None, AgentGone("the agent ended"))
        return actions

    def start(self, job: Job) -> Actions:
        """Begin work in several steps. Messages about its session wait until it is done."""
        if job.session_id is not None:
            self._busy[job.session_id] = job
        return self._advance(job, None, None)

    def done(self, number: int, result: Any = None, error: BaseException | None = None) -> Actions:
        """Take the result of a `RunBlocking`."""
        job = self._works.pop(number, None)
        return self._advance(job, result, error) if job else []

    def tick(self, now: float) -> Actions:
        """End what has waited long enough. Call it again after `next_tick` seconds."""
        actions: Actions = []
        for number in [number for number, asked in self.asks.items() if now >= asked.deadline]:
            asked = self.asks.pop(number)
            late = AgentRefused(f"no answer to {asked.method} in {self._patience:g} s")
            actions += self._advance(asked.job, None, late)
        return actions + self.checked_waits()

    def next_tick(self) -> float | None:
        """Seconds until `tick` is due; None while nothing waits."""
        if self.waits:
            return _TICK
        if not self.asks:
            return None
        return max(_TICK, min(asked.deadline for asked in self.asks.values()) - self._now())

    def checked_waits(self) -> Actions:
        """Continue what waited for something that has happened."""
        actions: Actions = []
        now = self._now()
        for waiting in list(self.waits):
            is_ready, problem = False, None
            try:
                is_ready = waiting.wait.ready(now)
            except Exception as error:  # noqa: BLE001 — the job is told
                problem = error
            if (is_ready or problem or now >= waiting.deadline) and waiting in self.waits:
                self.waits.remove(waiting)
                actions += self._advance(waiting.job, is_ready, problem)
        return actions

    def _advance(self, job: Job, value: Any, error: BaseException | None) -> Actions:
        """Drive a job until it waits for something, or is done."""
        actions: Actions = []
        try:
            while True:
                step = job.steps.throw(error) if error is not None else job.steps.send(value)
                value = error = None
                if isinstance(step, Ask):
                    if self._is_over():
                        error = AgentGone("the agent ended")
                        continue
                    actions.append(ToAgent(self._ask(job, step)))
                    return actions
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

    def _ask(self, job: Job, step: Ask) -> Message:
        number = f"asnap-{next(self._numbers)}"
        self.asks[number] = _Asked(job, step.method, self._now() + self._patience)
        return request(number, step.method, step.params)

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
        actions: Actions = []
        for message in job.followers:
            if problem is not None and job.pending is None:  # it was to bring the session back for them
                actions.append(ToClient(refusal(Pending.of(message), problem)))
            else:
                actions += self._again(message)
        return actions


def _outcome(message: Message) -> tuple[Message | None, AgentRefused | None]:
    error = message.get("error")
    if error is not None:
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error)
        return None, AgentRefused(text, error)
    result = message.get("result")
    return (result if isinstance(result, dict) else {}), None


def refusal(pending: Pending, problem: BaseException) -> Message:
    """The answer to a request that could not be met."""
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
