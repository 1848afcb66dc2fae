"""When the agent's process ends: answer pending requests, restart it, restore its sessions. No I/O."""

from __future__ import annotations

from collections import deque

from snapshot_plugin.acp.actions import (
    Actions,
    AgentGone,
    AgentRefused,
    Ask,
    Checkpoint,
    GiveUp,
    Job,
    RecordEvent,
    Restart,
    Say,
    Steps,
    ToClient,
    shown,
)
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.events import never_sent
from snapshot_plugin.acp.messages import INTERNAL_ERROR, Message, Pending, chunk, failure, notification
from snapshot_plugin.acp.methods import announce_restore
from snapshot_plugin.acp.restore import RestoreRequest, restore
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Supervision", "restore_lost_session"]

_DEATHS, _WITHIN = 5, 60.0
_PAUSES = (0.0, 0.2, 1.0, 3.0)


class Supervision:
    """Decides what happens when the agent ends.

    Args:
        core: the connection.
        restarts: whether the host can start the agent again.
    """

    def __init__(self, core: Core, *, restarts: bool) -> None:
        self._core, self.restarts = core, restarts
        self.stopped = ""
        """Why the agent was stopped permanently; set before it is killed, so that it is not restarted."""
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        core.restore_lost_session = restore_lost_session

    def agent_ended(self, how: str = "") -> Actions:
        """Handle the end of the agent. Pending requests are answered at once; only ``initialize`` is sent again."""
        core = self._core
        fate, again = self._fate()
        core.is_up = False
        if not again:
            core.is_over = True
        held = [action for state in core.sessions.opened() for action in core.late_news(state.id)]
        waiting, actions = core.cut_connection()
        actions = [*held, Say(f"the agent ended{how}{'; starting it again' if again else ''}"), *actions]
        for pending in waiting:
            if again and pending.method == "initialize":
                core.initialize_again(pending)
                continue
            if self.restarts:  # otherwise the closed connection tells the client
                actions.append(ToClient(_interrupted(pending, fate)))
            if pending.method == "session/prompt" and core.sessions.is_open(pending.session_id):
                actions += _cut_off(pending.session_id or "", core)
        if again:
            return [*actions, Restart(_PAUSES[min(len(self._deaths), len(_PAUSES)) - 1])]
        actions += core.tick(core.now()) + core.release_queue()
        return [*actions, GiveUp(fate)] if self.restarts else actions

    def unsent(self, message: Message) -> Actions:
        """Handle a message that could not be written to the agent. Notes to the model omit an unsent prompt.

        A request of the client is answered. One of ours is kept until the agent is back.
        """
        pending = self._core.unanswered(message.get("id")) if "method" in message else None
        if pending is None:
            if "method" in message:
                self._core.jobs.unsent(message)
            return []
        if self.restarts and pending.method == "initialize":
            self._core.initialize_again(pending)
            return []
        is_prompt = pending.method == "session/prompt"
        event = never_sent("the agent had ended", self._core.stamp()) if is_prompt else None
        text = f"{self.stopped or 'the agent had ended'}. {_request_name(pending)} did not reach it: send it again"
        data = {"sessionId": pending.session_id, "asnap": {"interrupted": True, "sent": False}}
        answer = ToClient(failure(pending.id, INTERNAL_ERROR, text, data))
        return [*self._core.recorded(pending.session_id, event), answer]

    def agent_started(self) -> Actions:
        """Initialize the restarted agent, log in, and restore its sessions."""
        return self._core.start(Job(self._revived()))

    def _fate(self) -> tuple[str, bool]:
        core = self._core
        if self.stopped or not self.restarts or core.unrecorded:
            return self.stopped or "the agent ended", False
        now = core.now()
        # Time in which the agent was never ready does not count: it may hang in each start.
        self._deaths.append(now if core.is_up or not self._deaths else self._deaths[-1])
        if len(self._deaths) < _DEATHS or self._deaths[-1] - self._deaths[0] >= _WITHIN:
            promised = " and the session will be restored" if core.sessions.opened() else ""
            return f"the agent ended; it is being restarted{promised}", True
        command = " ".join(core.agent.command)
        hints = [f"asnap run --session {as_reference(state.id)} -- {command}" for state in core.sessions.opened()]
        text = f"the agent died {_DEATHS} times within {_WITHIN:g} s. The sessions are safe."
        return f"{text} Resume with: {' | '.join(hints) or command}", False

    def _revived(self) -> Steps[None]:
        core = self._core
        if core.initialize_params is not None:
            try:
                yield from _introduced_again(core, core.initialize_params)
                yield from _logged_in(core)
            except AgentGone:
                return  # it ended again: `agent_ended` was called
            except AgentRefused as refused:
                yield Say("the restarted agent cannot be used", str(refused))
                yield from self.agent_ended(" (it was not usable)")
                return
        core.is_up = True
        for session_id in [state.id for state in core.sessions.opened() if state.status == "lost"]:
            if core.jobs.at_work_on(session_id) is None:
                yield from core.start(Job(restore_lost_session(core, session_id), session_id=session_id))
        yield from core.release_queue()


def _introduced_again(core: Core, params: Message) -> Steps[None]:
    if not core.introduced((yield Ask("initialize", params))):
        raise AgentRefused("it speaks another version of ACP now")


def _logged_in(core: Core) -> Steps[None]:
    """Repeat the client's login. If the agent refuses it, the client gets that error with its next request."""
    if core.login is None:
        return
    try:
        yield Ask("authenticate", core.login)
    except AgentGone:
        raise
    except AgentRefused as refused:
        yield Say("the login is not accepted any more", str(refused))


def restore_lost_session(core: Core, session_id: str) -> Steps[None]:
    """Restore a session in a restarted agent. A failed restore is retried at the next request about the session.

    A client whose capabilities have ``_meta.asnap.restored`` gets the report as ``_asnap/restored``.
    """
    try:
        restored = yield from restore(
            core, RestoreRequest(session_id, core.sessions[session_id].setup, core.require)
        )
    except Exception as error:
        core.sessions[session_id].status = "lost"
        yield Say(f"session {session_id} is not back", str(error))
        raise
    yield from announce_restore(core, restored)
    if restored.news:
        yield shown(session_id, chunk(restored.news))
    if core.client_shows_restores:
        yield ToClient(notification("_asnap/restored", {"sessionId": session_id, **restored.report()}))


def _cut_off(session_id: str, core: Core) -> Actions:
    """End the turn: show running tools as failed, and record that the turn was interrupted."""
    return [
        *(shown(session_id, update) for update in _closed_tools(core.view(session_id))),
        RecordEvent(session_id, {"interrupted": "the agent died", "t": core.stamp()}, durable=True),
        Checkpoint(session_id),
    ]


def _closed_tools(snapshot: SessionSnapshot) -> list[Message]:
    last = snapshot.evolve(messages=snapshot.messages[-1:])
    mended, _ = repair(last)
    return [
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": new.tool_call_id,
            "status": "failed",
            "content": new.raw()["content"],
        }
        for before, after in zip(last.messages, mended.messages, strict=False)
        for old, new in zip(before.content, after.content, strict=True)
        if old is not new and isinstance(new, ToolCallBlock)
    ]


def _request_name(pending: Pending) -> str:
    """What a person calls the request."""
    return "The prompt" if pending.method == "session/prompt" else pending.method


def _interrupted(pending: Pending, fate: str) -> Message:
    named = _request_name(pending)
    text = f"{fate}. {named} was not finished, and nothing was re-run: send it again if you want it."
    data = {"sessionId": pending.session_id, "asnap": {"interrupted": True}}
    return failure(pending.id, INTERNAL_ERROR, text, data)
