"""The events of the record, and which ACP message becomes which event. No I/O.

An event is one JSON object in the spool, with one or more of the keys below, and ``t`` (time) and
``n`` (id of the permission request). `reducer` turns events into a snapshot.

====================  =====================================================================================
``new``               the session began: cwd, servers by name
``agent``             which agent has the session, and under which id
``prompt``            the user's prompt, as sent
``update``            one ``session/update``, as received
``stop``              the prompt's answer: stop reason, usage
``interrupted``       the turn ended without an answer: why
``unsent``            the prompt did not reach the agent: why
``permission``        a permission request before a tool runs; ``outcome`` is the answer to it
``terminal``          the output of a terminal that a tool call shows; its id is invalid after the client exits
``config``            modes and options from a response
``restored``          how the session was restored: the same report that the client gets
``label``             title, tags, pin or note that a user set during the session
``history``           the agent's own history, if it provides one; it covers all events before this one
====================  =====================================================================================
"""

from __future__ import annotations

from typing import Any

from snapshot_plugin.acp.messages import Pending, as_object

__all__ = ["DURABLE", "answered_by_agent", "answered_by_client", "asked_by_agent", "never_sent", "prompted"]

Raw = dict[str, Any]
DURABLE = frozenset({"prompt", "unsent", "permission", "outcome", "stop"})
"""An event with one of these must be on disk before its message is passed on."""


def prompted(params: Raw, t: str) -> Raw:
    """Build the event for a prompt, before the agent gets it."""
    return {"prompt": params.get("prompt") or [], "t": t}


def never_sent(why: str, t: str) -> Raw:
    """Build the event that the last recorded prompt did not reach the agent."""
    return {"unsent": why, "t": t}


def asked_by_agent(asked: Pending) -> Raw | None:
    """Build the event for a request of the agent, before the client gets it; only permission requests are kept."""
    if asked.method != "session/request_permission":
        return None
    return {"permission": asked.params, "n": str(asked.id)}


def answered_by_client(asked: Pending, answer: Raw) -> Raw | None:
    """Build the event for the client's answer to the agent: a permission outcome or a terminal's output."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return None
    if asked.method == "session/request_permission":
        return {"outcome": result.get("outcome"), "n": str(asked.id)}
    if asked.method.startswith("terminal/"):
        shown = {**{key: asked.params[key] for key in ("command", "args") if key in asked.params}, **result}
        return {"terminal": {"terminalId": asked.params.get("terminalId"), **shown}}
    return None


def answered_by_agent(asked: Pending, answer: Raw, t: str) -> Raw | None:
    """Build the event for the agent's answer about a recorded session: the end of a turn or a changed setting."""
    error, result = answer.get("error"), as_object(answer.get("result"))
    if asked.method == "session/prompt":
        return {"stop": result if error is None else {"error": error}, "t": t}
    if error is not None:
        return None
    if asked.method == "session/set_mode":
        return {"config": {"modes": {"currentModeId": asked.params.get("modeId")}}}
    if asked.method == "session/set_model":
        return {"config": {"models": {"currentModelId": asked.params.get("modelId")}}}
    return {"config": result} if result.keys() & {"configOptions", "modes", "models"} else None
