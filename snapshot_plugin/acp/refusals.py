"""From an exception to the error answer a client can act on."""

from __future__ import annotations

import logging

from snapshot_plugin.acp.actions import Actions, AgentRefused, ToClient
from snapshot_plugin.acp.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    RESOURCE_NOT_FOUND,
    Message,
    Pending,
    failure,
)
from snapshot_plugin.errors import InvalidInput, InvalidSessionId, SnapshotError, SnapshotNotFound

__all__ = ["no_method", "refusal"]

log = logging.getLogger("snapshot_plugin.acp")


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
    log.error("%s failed", pending.method, exc_info=problem)
    return failure(pending.id, INTERNAL_ERROR, f"{type(problem).__name__}: {problem}", about)


def no_method(message: Message) -> Actions:
    """The answer to a message whose method is not text; a notification gets none."""
    if "id" not in message:
        return []
    return [ToClient(failure(message["id"], INVALID_REQUEST, "the method is not text"))]
