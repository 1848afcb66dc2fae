"""Restore a session in an agent: natively if that works and is verified, otherwise as context.

=================  ===================================================  =========================================
grade              when                                                 how
=================  ===================================================  =========================================
``native-load``    the agent loads (or forks) it, and its replay has    its replay is compared and withheld; the
                   the conversation (`compare`)                         next prompt tells what it lacks
``native-resume``  the agent resumes it                                 there is no replay to compare
``context``        neither; or the load is blank, foreign, failed, or   a new session; the next prompt has the
                   lacks more at its end than fits into a note          conversation, truncated to a limit
=================  ===================================================  =========================================

The report lists every strategy that was tried. No tool or prompt is run again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

from snapshot_plugin.acp.actions import AgentGone, AgentRefused, Ask, Do, RecordEvent, Steps, Wait
from snapshot_plugin.acp.compare import Verdict, compare, finished_calls
from snapshot_plugin.acp.core import Core
from snapshot_plugin.acp.messages import Message, as_object
from snapshot_plugin.acp.notes import fits, lost_note, note_about
from snapshot_plugin.acp.replay import LateReplay, show_state
from snapshot_plugin.acp.state import (
    acp_metadata,
    note_pending,
    settled_tools,
    setup_in,
    turns,
    was_interrupted,
)
from snapshot_plugin.errors import FidelityNotMet
from snapshot_plugin.inert import several
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import Message as TranscriptMessage
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Grade", "RestoreRequest", "Restored", "meets", "restore"]

_T = TypeVar("_T")
Grade = Literal["native-load", "native-resume", "context"]
_MEETS = {
    "exact": ("native-load",),
    "history": ("native-load", "native-resume"),
    "context": ("native-load", "native-resume", "context"),
}
_QUIET_FOR, _LOOK_EVERY = 1.0, 0.25
_BUSY = re.compile(r"\b(active|in use|busy|locked|already open|another process)\b", re.IGNORECASE)
_BUSY_PAUSE, _BUSY_TRIES = 0.5, 6


class RestoreRequest(NamedTuple):
    """How to restore a session."""

    session_id: str
    setup: Message
    """``cwd``, ``mcpServers`` and ``additionalDirectories``, as the client sent them for this restore."""
    require: str = "context"
    fork_of: str | None = None
    """The agent's id of the session that the agent should fork."""


class Restored(NamedTuple):
    """How a session was restored."""

    session_id: str
    grade: Grade
    agent_session_id: str
    result: Message
    note: str | None
    tried: tuple[str, ...]
    record: SessionSnapshot
    differences: tuple[str, ...] = ()
    news: str = ""

    @property
    def fell_back(self) -> str | None:
        """Why the agent does not remember the session itself; None if it does."""
        return "; ".join(self.tried) if self.grade == "context" else None

    def report(self) -> Message:
        """Return the report for ``_meta`` and the record."""
        _, notices = repair(self.record.evolve(messages=settled_tools(self.record.messages)))
        return {
            "grade": self.grade,
            "messages": len(self.record.messages),
            "tried": list(self.tried),
            "notices": [notice.detail for notice in notices],
            "differences": list(self.differences),
        }

    def answer(self) -> Message:
        """Return the result of ``session/load`` and the like."""
        result = {key: value for key, value in self.result.items() if key != "sessionId"}
        return {**result, "_meta": {**as_object(result.get("_meta")), "asnap": {"restored": self.report()}}}


def meets(grade: str, require: str) -> bool:
    """Whether a grade satisfies *require*: ``exact``, ``history`` or ``context``."""
    return grade in _MEETS[require]


def restore(core: Core, request: RestoreRequest) -> Steps[Restored]:
    """Restore a session that is live here by the best step that works, and apply its settings again.

    The note for the model is left in the session's state for the next prompt.

    Raises:
        FidelityNotMet: no step meets the required grade.
        AgentRefused: not even a new session could be created, or the agent requires a login.
    """
    session_id = request.session_id
    record: SessionSnapshot = yield Do(lambda sessions: sessions.open[session_id].snapshot())
    request = request._replace(setup={"cwd": record.config.cwd or "/", **request.setup})
    state = core.sessions[session_id]
    state.late = LateReplay(record)
    with core.withheld.making_sessions():
        restored = yield from _try_strategies(core, record, request)
        core.sessions.claim(restored.agent_session_id, session_id)
        yield RecordEvent(session_id, core.agent_event(restored.agent_session_id), durable=True)
        # Only state updates are kept: the agent's greeting for a new session does not belong to this one.
        yield from show_state(session_id, core.bind(session_id, restored.agent_session_id))
    restored = yield from _reapplied(restored)
    state.note, state.setup = restored.note, setup_in(request.setup)
    yield RecordEvent(session_id, {"config": restored.result, "restored": restored.report()})
    return restored


def _try_strategies(core: Core, record: SessionSnapshot, request: RestoreRequest) -> Steps[Restored]:
    tried: list[str] = []
    if core.restore_strategy is not None:
        given: Restored = yield from core.restore_strategy(record, request)
        return given
    for strategy in _strategies(core, record, request, tried):
        restored = yield from strategy(core, record, request, tried)
        if restored is not None and not core.sessions.is_anothers(restored.agent_session_id, record.session_id):
            return _demanded(restored, request.require)
    if request.require != "context":
        why = "; ".join(tried) or "another agent had it"
        raise FidelityNotMet(
            f"session {record.session_id} cannot be restored as {request.require}: {why}",
            session_id=record.session_id,
        )
    result = yield Ask("session/new", {"mcpServers": [], **request.setup})
    note = note_about(record)
    return Restored(
        record.session_id, "context", str(result.get("sessionId", "")), result, note, tuple(tried), record
    )


def _strategies(core: Core, record: SessionSnapshot, request: RestoreRequest, tried: list[str]) -> Iterator[Any]:
    if record.agent is None or record.agent.name != core.agent.name:
        return
    if request.fork_of is not None:
        yield _forked
    for strategy in (_loaded, _resumed) if request.fork_of is None and record.agent_session_id else ():
        if core.sessions.is_anothers(record.agent_session_id or "", record.session_id):
            tried.append("load: the agent has another session under this id now")
            return
        # the agent may send requests while it loads
        core.sessions.expect(record.session_id, record.agent_session_id or "")
        yield strategy


def _demanded(restored: Restored, require: str) -> Restored:
    if not meets(restored.grade, require):
        what = f"session {restored.session_id} came back only with grade {restored.grade}"
        raise FidelityNotMet(what, session_id=restored.session_id)
    return restored


# The strategies -------------------------------------------------------------------------------------------


def _loaded(
    core: Core, record: SessionSnapshot, request: RestoreRequest, tried: list[str]
) -> Steps[Restored | None]:
    if not core.can("load"):
        tried.append("load: not advertised")
        return None
    if core.sessions[record.session_id].died_of_load:
        tried.append("load: the agent died of it before")
        return None
    return (yield from _attempt(core, "load", _load(core, record, request, tried), tried))


def _load(core: Core, record: SessionSnapshot, request: RestoreRequest, tried: list[str]) -> Steps[Restored | None]:
    """Load the session. If the agent dies while it also does something else, load it once more, alone."""
    for is_last in (False, True):
        try:
            return (yield from _verified(core, record, request, record.agent_session_id or "", tried))
        except AgentGone as gone:
            if gone.alone or is_last:
                core.sessions[record.session_id].died_of_load = True
                raise
        yield from _until_up(core)
        yield Wait(lambda _now: core.is_up and not core.jobs.asks and not core.withheld.held, core.timeout)
    raise AssertionError  # the last attempt returns or raises


def _verified(
    core: Core, record: SessionSnapshot, request: RestoreRequest, agent_id: str, tried: list[str]
) -> Steps[Restored | None]:
    """Have the agent load *agent_id*, and compare what it replays with the record."""
    with core.withheld.of(agent_id) as held:
        result = yield from _load_when_free(agent_id, request)
        process = core.sessions.restarts
        yield _until_quiet(core, record, held)
        if core.sessions.restarts != process:
            raise AgentGone("the agent ended while it replayed the session")
        verdict = compare(record, held)
    if (late := core.sessions[record.session_id].late) is not None:
        late.replayed(held)
    yield from show_state(record.session_id, held)
    if not _is_kept(verdict, tried):
        return None
    for outcome in finished_calls(record, held):
        yield RecordEvent(record.session_id, {"update": outcome})
    note = lost_note(verdict.missing) if verdict.missing else None
    steps = tuple(tried)
    return Restored(record.session_id, "native-load", agent_id, result, note, steps, record, news=verdict.news)


def _is_kept(verdict: Verdict, tried: list[str]) -> bool:
    """Whether the agent's memory is kept."""
    missing = several(len(verdict.missing), "message")
    if not verdict.is_native or (verdict.end and not fits(verdict.end)):
        tried.append(f"load: came back {verdict.kind}, {missing} missing")
        return False
    lacks = f", {missing} told" if verdict.missing else ""
    tried.append(f"load: {verdict.kind}{lacks}")
    return True


def _attempt(core: Core, name: str, steps: Steps[_T], tried: list[str]) -> Steps[_T | None]:
    """Run *steps*; None if they failed. If the agent died, it is up again on return."""
    try:
        return (yield from steps)
    except AgentGone:
        tried.append(f"{name}: the agent died of it")
        yield from _until_up(core)
    except AgentRefused as refused:
        if refused.wants_login:
            raise
        tried.append(f"{name}: failed ({refused})")
    return None


def _until_up(core: Core) -> Steps[None]:
    """Wait until a restarted agent is ready. Raises `AgentGone` after a timeout."""
    is_up = yield Wait(lambda _now: core.is_up or core.is_over, core.timeout)
    if not is_up or core.is_over:
        raise AgentGone("the agent ended and did not come back")


def _asked(method: str, agent_id: str, request: RestoreRequest) -> Steps[Message]:
    result: Message = yield Ask(method, {"mcpServers": [], **request.setup, "sessionId": agent_id})
    return result


def _load_when_free(agent_id: str, request: RestoreRequest) -> Steps[Message]:
    """Load the session. Retry if the agent says that it is in use: its last process may still be exiting."""
    for _ in range(_BUSY_TRIES - 1):
        try:
            return (yield from _asked("session/load", agent_id, request))
        except AgentRefused as refused:
            if not _BUSY.search(str(refused)):
                raise
            yield Wait(lambda _now: False, _BUSY_PAUSE)
    return (yield from _asked("session/load", agent_id, request))


def _until_quiet(core: Core, record: SessionSnapshot, held: list[Message]) -> Wait:
    """Wait until the replay is whole, or has not progressed for a while: some agents replay after their answer.

    A comparison is slow for a long session, so it is not repeated for each update.
    """
    size, compared, lacking = -1, -1, -1
    looked, since = -_LOOK_EVERY, core.now()

    def ready(now: float) -> bool:
        nonlocal size, compared, lacking, looked, since
        is_growing, size = len(held) != size, len(held)
        if size != compared and (not is_growing or now - looked >= _LOOK_EVERY):
            compared, looked = size, now
            verdict = compare(record, held)
            if verdict.kind == "whole":
                return True
            if len(verdict.missing) != lacking:
                lacking, since = len(verdict.missing), now
        return now - since > _QUIET_FOR

    return Wait(ready, core.timeout)


def _resumed(
    core: Core, record: SessionSnapshot, request: RestoreRequest, tried: list[str]
) -> Steps[Restored | None]:
    if not core.can("resume"):
        tried.append("resume: not advertised")
        return None
    if note_pending(record) or any(step.startswith("load: came back") for step in tried):
        tried.append("resume: not tried, the agent has lost the conversation")
        return None
    agent_id = record.agent_session_id or ""
    with core.withheld.of(agent_id) as held:
        result = yield from _attempt(core, "resume", _asked("session/resume", agent_id, request), tried)
        if result is None:
            return None
    yield from show_state(record.session_id, held)
    tried.append("resume: accepted")
    cut_off = _cut_off(record)
    note = lost_note(cut_off) if cut_off else None
    return Restored(record.session_id, "native-resume", agent_id, result, note, tuple(tried), record)


def _cut_off(record: SessionSnapshot) -> tuple[TranscriptMessage, ...]:
    last = list(turns(record.messages))[-1:]
    return last[0].messages if last and any(map(was_interrupted, last[0].messages)) else ()


def _forked(
    core: Core, record: SessionSnapshot, request: RestoreRequest, tried: list[str]
) -> Steps[Restored | None]:
    """Have the agent fork the session; verify it like a load if the agent can load."""
    result = yield from _attempt(core, "fork", _asked("session/fork", request.fork_of or "", request), tried)
    if result is None:
        return None
    agent_id = str(result.get("sessionId", ""))
    if core.sessions.is_anothers(agent_id, record.session_id):
        tried.append("fork: the agent gave it the id of another session")
        return None
    core.sessions.claim(agent_id, record.session_id)
    if core.can("load"):
        restored = yield from _attempt(core, "load", _verified(core, record, request, agent_id, tried), tried)
        if restored is None and core.can("delete"):
            with suppress(AgentRefused):
                yield Ask("session/delete", {"sessionId": agent_id})
        return restored
    tried.append("fork: accepted")
    return Restored(record.session_id, "native-resume", agent_id, result, None, tuple(tried), record)


# Settings -------------------------------------------------------------------------------------------------


def _reapplied(restored: Restored) -> Steps[Restored]:
    """Set mode, model and options as recorded. Settings that the agent refuses are listed as differences."""
    result, differences = restored.result, []
    for method, params in missing_settings(restored.record, result):
        try:
            answer = yield Ask(method, {"sessionId": restored.agent_session_id, **params})
            result = with_setting(result, params, answer)
        except AgentGone:
            raise
        except AgentRefused as refused:
            differences.append(f"{method} {params}: {refused}")
    return restored._replace(result=result, differences=tuple(differences))


def missing_settings(record: SessionSnapshot, result: Message) -> Iterator[tuple[str, Message]]:
    """Yield the requests (method, params without session) that set the agent as recorded.

    Args:
        record: the recorded session.
        result: the agent's answer to the restore. Settings that it does not offer are skipped.
    """
    modes, models, options = (result.get(name) for name in ("modes", "models", "configOptions"))
    if record.config.mode and isinstance(modes, dict) and modes.get("currentModeId") != record.config.mode:
        yield "session/set_mode", {"modeId": record.config.mode}
    wanted_model = as_object(acp_metadata(record).get("models")).get("currentModelId")
    if wanted_model and isinstance(models, dict) and models.get("currentModelId") != wanted_model:
        yield "session/set_model", {"modelId": wanted_model}
    for option in options if isinstance(options, list) else ():
        wanted = record.config.options.get(str(option.get("id"))) if isinstance(option, dict) else None
        if wanted is not None and wanted != option.get("currentValue"):
            typed = {"type": "boolean"} if isinstance(wanted, bool) else {}
            yield "session/set_config_option", {"configId": option["id"], "value": wanted, **typed}


def with_setting(result: Message, params: Message, answer: Message) -> Message:
    """Return *result* updated with the agent's answer to a request of `missing_settings`."""
    if "modeId" in params:
        return {**result, "modes": {**result["modes"], "currentModeId": params["modeId"]}}
    if "modelId" in params:
        return {**result, "models": {**result["models"], "currentModelId": params["modelId"]}}
    options = answer.get("configOptions")
    return {**result, "configOptions": options} if isinstance(options, list) else result
