"""Saving every live session at once, here and in other processes, and saying plainly which were not saved.

Also the owner's side of what other processes ask: to save a session, or to label it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import anyio
import anyio.to_thread
from pydantic import ValidationError

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.manager.attached import AttachedSessions
from snapshot_plugin.manager.control import Answer, ask_owner
from snapshot_plugin.manager.labels import TRIGGER
from snapshot_plugin.manager.lease import Owner, owner_of
from snapshot_plugin.manager.live import LiveSession
from snapshot_plugin.manager.outcome import Outcome
from snapshot_plugin.manager.presence import sessions_of
from snapshot_plugin.manager.recovery import LocalStore

__all__ = ["Asked", "answer_request", "ask_everyone", "attached_session", "save_everyone"]

_TRIGGER = "snapshot_all"
_Work = Callable[[], Awaitable[Outcome]]


async def save_everyone(
    attached: AttachedSessions, place: LocalStore | None, *, tag: str, within: float
) -> list[Outcome]:
    """Save all at once. Whatever is not finished *within* seconds counts as not saved. In order of session ids."""
    own = {live.session_id: live for live in attached}
    others = await anyio.to_thread.run_sync(_owned_elsewhere, place, frozenset(own)) if place else {}
    saving: dict[str, _Work] = {
        session_id: functools.partial(_Own(attached, live).save_as, _TRIGGER, (tag,))
        for session_id, live in own.items()
    }
    return await _all_at_once(saving | _asking(others, tag, within), within)


async def ask_everyone(
    place: LocalStore, *, tag: str, within: float, only: Collection[str] | None = None
) -> list[Outcome]:
    """The same for a process that has no sessions itself; with *only*, for those of them that are live."""
    owners = await anyio.to_thread.run_sync(_owned_elsewhere, place, frozenset())
    asked = {session_id: owner for session_id, owner in owners.items() if only is None or session_id in only}
    return await _all_at_once(_asking(asked, tag, within), within)


def _asking(owners: Mapping[str, Owner], tag: str, within: float) -> dict[str, _Work]:
    return {
        session_id: functools.partial(_ask, session_id, owner, tag, within) for session_id, owner in owners.items()
    }


async def _all_at_once(works: Mapping[str, _Work], within: float) -> list[Outcome]:
    outcomes: dict[str, Outcome] = {}

    async def run(session_id: str, work: _Work) -> None:
        outcomes[session_id] = Outcome.timed_out(session_id, within)
        with anyio.move_on_after(within):
            outcomes[session_id] = await work()

    async with anyio.create_task_group() as saving:
        for session_id, work in works.items():
            saving.start_soon(run, session_id, work)
    return [outcomes[session_id] for session_id in sorted(outcomes)]


class Asked(Protocol):
    """A live session of this process, as others may ask about it."""

    def relabel(self, request: Mapping[str, Any]) -> None:
        """Carry the label *request* names from now on. `InvalidInput` if it is none."""

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        """Save it now, and say what became of it. Never raises."""


async def answer_request(find: Callable[[str], Asked | None], request: dict[str, Any]) -> dict[str, Any]:
    """The owner's side: does what is asked with a session it *finds*, saves it and tells its outcome.

    ``{"op": "snapshot", "session_id", "tag"}`` just saves it, under the tag; ``{"op": "label", "session_id"}`` with
    title, tags, pinned or note gives it that label for the rest of its life (see `labels.apply_label`).
    """
    op, session_id, tag = request.get("op"), request.get("session_id"), request.get("tag")
    if not isinstance(session_id, str) or (op != "label" and (op != "snapshot" or not isinstance(tag, str))):
        raise InvalidInput("this process answers to op snapshot with a session_id and a tag, and to op label")
    session = find(session_id)
    if session is None:
        return Outcome(session_id=session_id, status="not_live").raw()
    if op == "label":
        session.relabel(request)
        return (await session.save_as(TRIGGER)).raw()
    return (await session.save_as(_TRIGGER, (str(tag),))).raw()


def attached_session(attached: AttachedSessions, session_id: str) -> Asked | None:
    """The session of a manager that has this id, to be asked."""
    auto = attached.get(session_id)
    return _Own(attached, auto.live) if auto else None


class _Own(NamedTuple):
    attached: AttachedSessions
    live: LiveSession

    def relabel(self, request: Mapping[str, Any]) -> None:
        self.live.relabel(request)

    async def save_as(self, trigger: str, tags: Sequence[str] = ()) -> Outcome:
        return await self.attached.try_save(self.live, trigger, tags)


async def _ask(session_id: str, owner: Owner, tag: str, within: float) -> Outcome:
    request = {"op": "snapshot", "session_id": session_id, "tag": tag}
    return _outcome(session_id, owner, await ask_owner(owner, request, timeout=within))


def _outcome(session_id: str, owner: Owner, answer: Answer) -> Outcome:
    told: dict[str, Any] = {"code": answer.code or "", "problem": answer.reason or ""}
    if answer.outcome == "done":
        try:
            return Outcome.model_validate(dict(answer.result)).evolve(owner=owner)
        except ValidationError:
            told["problem"] = "its answer could not be understood"
    status = "failed" if answer.outcome == "refused" else "not_reachable"
    return Outcome(session_id=session_id, owner=owner, status=status, **told)


def _owned_elsewhere(place: LocalStore, own: frozenset[str]) -> dict[str, Owner]:
    sessions: Sequence[str] = [name for name in sessions_of(place.path) if name not in own]
    owners = {session_id: owner_of(place.session_dir(session_id)) for session_id in sessions}
    return {session_id: owner for session_id, owner in owners.items() if owner is not None}
