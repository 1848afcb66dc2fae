"""Save every live session, here and in other processes, and report those that were not saved.

Also answers the requests of other processes to save or label a session.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from pydantic import ValidationError

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.events import Reporter
from snapshot_plugin.live.lease import Owner
from snapshot_plugin.live.outcome import Outcome
from snapshot_plugin.live.place import place_of
from snapshot_plugin.live.ports import LivePlace
from snapshot_plugin.manager.control import Answer, ask_elsewhere, ask_owner, serve_control
from snapshot_plugin.manager.labels import TRIGGER
from snapshot_plugin.model.ids import new_id
from snapshot_plugin.store.base import SnapshotStore

__all__ = ["ReachableSession", "answer_request", "ask_everyone", "save_everyone", "serve_sessions"]

_TRIGGER = "snapshot_all"


Job = Callable[[], Awaitable[Sequence[Outcome]]]
"""Saves one session, or several, in bounded time."""


async def save_everyone(
    own: Mapping[str, ReachableSession], place: LivePlace | None, *, tag: str, within: float
) -> list[Outcome]:
    """Save *own* sessions and those of other processes concurrently. Outcomes are in order of session ids.

    A session that is not finished *within* seconds counts as not saved.
    """
    saving = [
        functools.partial(
            _in_time,
            functools.partial(session.save_as, _TRIGGER, (tag,)),
            within,
            Outcome.timed_out(session_id, within),
        )
        for session_id, session in own.items()
    ]
    return await _all_at_once([*await _asking(place, tag, within, but=own), *saving])


async def ask_everyone(
    store: SnapshotStore, *, tag: str | None = None, within: float, only: Collection[str] | None = None
) -> list[Outcome]:
    """Like `save_everyone`, for a process without sessions of its own; with *only*, just these sessions.

    Without a *tag*, retention treats the snapshots like any other.
    """
    return await _all_at_once(await _asking(place_of(store), tag, within, only=only))


async def _asking(
    place: LivePlace | None,
    tag: str | None,
    within: float,
    *,
    only: Collection[str] | None = None,
    but: Collection[str] = (),
) -> list[Job]:
    """A job for each owner's session on this machine, and one for all that are elsewhere."""
    owners = {
        session_id: owner
        for session_id, owner in (await anyio.to_thread.run_sync(place.owners) if place else {}).items()
        if session_id not in but and (only is None or session_id in only)
    }
    elsewhere = {session_id: owner for session_id, owner in owners.items() if not owner.is_here}
    jobs: list[Job] = [
        functools.partial(
            _in_time,
            functools.partial(_ask, session_id, owner, tag, within, place),
            within,
            _silent(session_id, owner, within),
        )
        for session_id, owner in owners.items()
        if session_id not in elsewhere
    ]
    return [*jobs, functools.partial(_ask_elsewhere, elsewhere, tag, within, place)] if elsewhere else jobs


def _silent(session_id: str, owner: Owner, within: float) -> Outcome:
    """The outcome if the owner did not answer: it is unknown whether the session was saved."""
    problem = f"no answer within {within:g} s"
    return Outcome(session_id=session_id, status="not_reachable", owner=owner, problem=problem)


async def _in_time(save: Callable[[], Awaitable[Outcome]], within: float, too_late: Outcome) -> Sequence[Outcome]:
    with anyio.move_on_after(within):
        return [await save()]
    return [too_late]


async def _all_at_once(jobs: Sequence[Job]) -> list[Outcome]:
    outcomes: list[Outcome] = []

    async def run(job: Job) -> None:
        outcomes.extend(await job())

    async with anyio.create_task_group() as saving:
        for job in jobs:
            saving.start_soon(run, job)
    return sorted(outcomes, key=lambda outcome: outcome.session_id)


class ReachableSession(Protocol):
    """A live session of this process that other processes may ask to save or label."""

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Set the label in *request*. Raises `InvalidInput` if it is invalid."""

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """Save it now and return the outcome. Never raises."""


async def answer_request(find: Callable[[str], ReachableSession | None], request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request of another process for the session that *find* returns, and return the outcome.

    ``{"op": "snapshot", "session_id"}`` saves it, under the ``tag`` if it has one. ``{"op": "label"}`` with the
    session_id and title, tags, pinned or note labels it permanently (see `live.label`).
    """
    op, session_id, tag = request.get("op"), request.get("session_id"), request.get("tag")
    if not isinstance(session_id, str) or (op != "label" and (op != "snapshot" or not isinstance(tag, str | None))):
        raise InvalidInput("this process answers to op snapshot and op label, with a session_id and a tag or label")
    session = find(session_id)
    if session is None:
        return Outcome(session_id=session_id, status="not_live").raw()
    if op == "label":
        session.relabel(request)
        return (await session.save_as(TRIGGER)).raw()
    return (await session.save_as(_TRIGGER, () if tag is None else (tag,))).raw()


async def serve_sessions(
    find: Callable[[str], ReachableSession | None],
    report: Reporter,
    *,
    task_status: TaskStatus[Path | None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Answer requests of other processes, until cancelled. Reports the path of its socket when it has started.

    If no socket can be created, the failure is reported and the process continues.
    """
    try:
        await serve_control(functools.partial(answer_request, find), name=new_id(), task_status=task_status)
    except Exception as error:  # noqa: BLE001 — reported, and the process continues
        report.failed("*", "control", error)
        with suppress(RuntimeError):  # it had started
            task_status.started(None)


def _request(session_id: str, tag: str | None) -> dict[str, Any]:
    return {"op": "snapshot", "session_id": session_id, "tag": tag}


async def _ask(session_id: str, owner: Owner, tag: str | None, within: float, place: LivePlace | None) -> Outcome:
    answer = await ask_owner(owner, _request(session_id, tag), timeout=within, place=place)
    return _outcome(session_id, owner, answer)


async def _ask_elsewhere(
    owners: Mapping[str, Owner], tag: str | None, within: float, place: LivePlace | None
) -> Sequence[Outcome]:
    requests = {session_id: _request(session_id, tag) for session_id in owners}
    answers = await ask_elsewhere(owners, requests, timeout=within, place=place)
    return [_outcome(session_id, owner, answers[session_id]) for session_id, owner in owners.items()]


def _outcome(session_id: str, owner: Owner, answer: Answer) -> Outcome:
    told: dict[str, Any] = {"code": answer.code or "", "problem": answer.reason or ""}
    if answer.outcome == "done":
        try:
            return Outcome.model_validate(dict(answer.result)).evolve(owner=owner)
        except ValidationError:
            told["problem"] = "its answer could not be understood"
    status = "failed" if answer.outcome == "refused" else "not_reachable"
    return Outcome(session_id=session_id, owner=owner, status=status, **told)
