"""The protocol methods of the scripted agent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.acp_agent.options import Options, exists
from tests.acp_agent.sessions import ScriptedTurn, Session, Sessions, read
from tests.acp_agent.stdio import Peer, die
from tests.acp_agent.turn import Failed, RunningTurn

__all__ = ["Agent"]

Params = dict[str, Any]
_INVALID_REQUEST, _METHOD_NOT_FOUND, _INVALID_PARAMS, _INTERNAL, _NOT_FOUND = -32600, -32601, -32602, -32603, -32002
_LOGIN, _NOT_TODAY, _UNSUPPORTED_VERSION = -32000, -32099, -32022
_NEEDS_LOGIN = ("session/new", "session/load", "session/resume", "session/fork")
_PAGE = 10
_LATE = 0.05
_SLOW = 0.3
_MODES = [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]
_MODELS = [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]


class RefusedRequest(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, text: str, data: Any = None) -> None:
        super().__init__(text)
        self.code, self.text, self.data = code, text, data


class Live:
    """A session that is open on this connection."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.mode, self.model, self.unstable_model = "ask", "small", "fast"
        self.turn: RunningTurn | None = None

    def state(self) -> Params:
        """The common part of the answers to new, load, resume and fork."""
        modes = {"currentModeId": self.mode, "availableModes": _MODES}
        models = {
            "currentModelId": self.unstable_model,
            "availableModels": [{"modelId": "fast"}, {"modelId": "deep"}],
        }
        return {"modes": modes, "models": models, "configOptions": self.options()}

    def options(self) -> list[Params]:
        """The configuration options."""
        model = {"id": "model", "name": "Model", "category": "model", "type": "select"}
        return [{**model, "currentValue": self.model, "options": _MODELS}]


class Agent:
    """The agent on one connection."""

    def __init__(self, peer: Peer, options: Options) -> None:
        self._peer, self._options = peer, options
        self._restarted = exists(options.state)
        self._sessions = Sessions(options.state, options.misbehaves)
        self._live: dict[str, Live] = {}
        self._logged_in = options.login is None
        self._loads = 0
        self._methods: dict[str, Callable[[Any, Params], None]] = {
            "initialize": self._initialize,
            "session/new": self._new,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/set_model": self._set_model,
            "authenticate": self._authenticate,
        }
        offered = {
            "load": self._load, "resume": self._resume, "list": self._list,
            "fork": self._fork, "close": self._close, "delete": self._delete,
        }  # fmt: skip
        self._methods |= {f"session/{name}": offered[name] for name in options.can}
        if "fake-load" in options.misbehaves:
            self._methods["session/load"] = lambda request_id, _params: peer.answer(request_id, {})

    def run(self) -> None:
        """Serve the client until it hangs up."""
        wrong = self._options.misbehaves
        for message in self._peer.messages():
            if message.get("method") == "session/cancel":
                self._cancel((message.get("params") or {}).get("sessionId"))
            elif "id" in message:
                self._serve(message)
            if message.get("method") == "session/prompt" and "stops-reading" in wrong and not self._restarted:
                os.close(0)
                break
        while wrong & {"outlives-stdin", "stops-reading"}:
            time.sleep(1)

    def _serve(self, message: Params) -> None:
        method = self._methods.get(message["method"], self._no_such_method)
        try:
            self._check_admission(message["method"])
            method(message["id"], message.get("params") or {})
        except KeyError as missing:
            self._refuse(message["id"], RefusedRequest(_INVALID_PARAMS, f"{missing} is missing"))
        except RefusedRequest as refused:
            self._refuse(message["id"], refused)

    def _refuse(self, request_id: Any, refused: RefusedRequest) -> None:
        if "string-errors" in self._options.misbehaves:
            self._peer.send({"id": request_id, "error": refused.text})
        elif "shapeless-errors" in self._options.misbehaves:
            self._peer.send({"id": request_id, "error": {"message": [refused.text]}})
        elif "empty-errors" in self._options.misbehaves:
            self._peer.send({"id": request_id, "error": None})
        else:
            self._peer.refuse(request_id, refused.code, refused.text, refused.data)

    def _check_admission(self, method: str) -> None:
        if method not in _NEEDS_LOGIN:
            return
        self._hold()
        if not self._logged_in:
            raise RefusedRequest(_LOGIN, "log in first")
        if exists(self._options.refuse):
            raise RefusedRequest(_NOT_TODAY, "not today")

    def _hold(self) -> None:
        while exists(self._options.hold):
            time.sleep(_LATE)

    def _authenticate(self, request_id: Any, params: Params) -> None:
        if self._options.login and params["methodId"] != read(self._options.login).strip():
            raise RefusedRequest(_LOGIN, "that login is not valid")
        self._logged_in = True
        self._peer.answer(request_id, {})

    def _no_such_method(self, request_id: Any, _params: Params) -> None:
        self._peer.refuse(request_id, _METHOD_NOT_FOUND, "no such method")

    def _initialize(self, request_id: Any, params: Params) -> None:
        can = self._options.can
        if "floods-stdout" in self._options.misbehaves:
            self._peer.write(b"npm WARN deprecated\n" * 20_000)
        if not self._restarted and "dies-at-first" in self._options.misbehaves:
            self._sessions.save()
            die()
        if self._restarted and "dies-when-restarted" in self._options.misbehaves:
            die()
        if self._restarted and "refuses-when-restarted" in self._options.misbehaves:
            self._peer.refuse(request_id, _INTERNAL, "not again")
            return
        self._hold()
        capabilities = {
            "loadSession": "load" in can,
            "promptCapabilities": {"image": True, "embeddedContext": True},
            "sessionCapabilities": {name: {} for name in sorted(can - {"load"})},
        }
        info = {"name": self._options.name, "title": "Scripted agent", "version": "1.0"}
        result: Params = {"agentCapabilities": capabilities, "agentInfo": info, "authMethods": []}
        result["protocolVersion"] = self._version(params.get("protocolVersion"))
        if self._options.login:
            result["authMethods"] = [{"id": "key-1", "name": "First key"}, {"id": "key-2", "name": "Second key"}]
        self._peer.answer(request_id, result)

    def _version(self, asked: Any) -> int:
        """The version of the protocol to speak. Sessions are the same in each."""
        wrong = self._options.misbehaves
        if "refuses-version-1" in wrong and asked == 1:
            raise RefusedRequest(_UNSUPPORTED_VERSION, "version 1 is not supported")
        return 2 if wrong & {"version-2", "refuses-version-1"} or (asked == 2 and "both-versions" in wrong) else 1

    # Sessions ---------------------------------------------------------------------------------------------

    def _new(self, request_id: Any, params: Params) -> None:
        session = self._sessions.new(params["cwd"])
        live = self._live.get(session.id) or self._open(session)
        self._peer.answer(request_id, {"sessionId": live.session.id, **live.state()})
        self._greet(live.session.id)

    def _load(self, request_id: Any, params: Params) -> None:
        wrong = self._options.misbehaves
        is_first = params["sessionId"] == next(iter(self._sessions.known), None)
        if "crash-on-load" in wrong or ("crash-on-load-of-the-first" in wrong and is_first):
            die()
        if "load-hangs" in wrong:
            return
        self._loads += 1
        if "session-active" in wrong and self._loads == 1:
            raise RefusedRequest(_INTERNAL, "Session is active in another process")
        session = self._stored(params["sessionId"])
        if "asks-on-load" in wrong:
            self._peer.begin("fs/read_text_file", {"sessionId": session.id, "path": "/notes.txt"})
        if "blank-load" in wrong:
            session.turns = []
        if "foreign-turns" in wrong:
            session.turns = [*session.turns, _foreign_turn()]
        if "partial-load" in wrong:
            session.turns = _without_newest_answer(session.turns)
        if "late-replay" in wrong or "slow-replay" in wrong:
            self._peer.answer(request_id, self._open(session).state())
            time.sleep(_LATE)
            self._replay(session)
        else:
            self._replay(session)
            self._finish_on_load(session)
            self._peer.answer(request_id, self._open(session).state())
        self._greet(session.id)

    def _finish_on_load(self, session: Session) -> None:
        turn = session.turns[-1] if session.turns else None
        if turn is None or turn.stop is not None or "finishes-on-load" not in self._options.misbehaves:
            return
        update = {
            "sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "Finished by itself."},
        }
        turn.updates.append(update)
        turn.stop = "end_turn"
        self._sessions.save()
        self._update(session.id, update)

    def _resume(self, request_id: Any, params: Params) -> None:
        session = self._stored(params["sessionId"])
        if "resume-replays" in self._options.misbehaves:
            self._replay(session)
        self._peer.answer(request_id, self._open(session).state())
        self._greet(session.id)

    def _fork(self, request_id: Any, params: Params) -> None:
        parent = self._stored(params["sessionId"])
        live = self._open(self._sessions.new(params["cwd"], parent.copied_turns()))
        self._peer.answer(request_id, {"sessionId": live.session.id, **live.state()})

    def _list(self, request_id: Any, params: Params) -> None:
        cwd = params.get("cwd")
        infos = [{"sessionId": s.id, "cwd": s.cwd} for s in self._sessions.known.values() if cwd in (None, s.cwd)]
        start = int(params.get("cursor") or 0)
        more = {"nextCursor": str(start + _PAGE)} if start + _PAGE < len(infos) else {}
        self._peer.answer(request_id, {"sessions": infos[start : start + _PAGE], **more})

    def _close(self, request_id: Any, params: Params) -> None:
        self._cancel(params["sessionId"])
        if self._live.pop(params["sessionId"], None) is None:
            raise _unknown(params["sessionId"])
        self._peer.answer(request_id, {})

    def _delete(self, request_id: Any, params: Params) -> None:
        self._cancel(params["sessionId"])
        self._live.pop(params["sessionId"], None)
        self._sessions.known.pop(params["sessionId"], None)
        self._sessions.save()
        self._peer.answer(request_id, {})

    def _set_mode(self, request_id: Any, params: Params) -> None:
        self._at(params["sessionId"]).mode = params["modeId"]
        self._peer.answer(request_id, self._nothing)
        if "goes-on" in self._options.misbehaves:
            for text in ("one", " and", " more"):
                update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
                self._update(params["sessionId"], update)
            call = {"sessionUpdate": "tool_call", "toolCallId": "more", "title": "Edit notes.txt"}
            self._update(params["sessionId"], call)

    def _set_option(self, request_id: Any, params: Params) -> None:
        live = self._at(params["sessionId"])
        if params["configId"] != "model":
            raise RefusedRequest(_INVALID_PARAMS, f"no option {params['configId']}")
        live.model = params["value"]
        self._peer.answer(request_id, {"configOptions": live.options()})

    def _set_model(self, request_id: Any, params: Params) -> None:
        self._at(params["sessionId"]).unstable_model = params["modelId"]
        self._peer.answer(request_id, self._nothing)

    @property
    def _nothing(self) -> Params | None:
        return None if "null-results" in self._options.misbehaves else {}

    # Turns ------------------------------------------------------------------------------------------------

    def _prompt(self, request_id: Any, params: Params) -> None:
        live = self._at(params["sessionId"])
        if live.turn is not None:
            raise RefusedRequest(_INVALID_REQUEST, "a turn is under way")
        live.turn = RunningTurn(self._peer, live.session, self._sessions, self._options.misbehaves)
        arguments = (request_id, live, live.turn, params["prompt"])
        threading.Thread(target=self._perform, args=arguments, daemon=True).start()

    def _perform(self, request_id: Any, live: Live, turn: RunningTurn, prompt: list[Any]) -> None:
        try:
            stop = turn.run(prompt)
        except Failed as failed:
            live.turn = None
            self._refuse(request_id, RefusedRequest(_INTERNAL, str(failed)))
        else:
            live.turn = None
            self._peer.answer(request_id, {"stopReason": stop, **turn.beside_stop})

    def _cancel(self, session_id: Any) -> None:
        live = self._live.get(session_id)
        if live and live.turn:
            live.turn.cancelled.set()

    # ------------------------------------------------------------------------------------------------------

    def _open(self, session: Session) -> Live:
        live = self._live[session.id] = Live(session)
        return live

    def _at(self, session_id: str) -> Live:
        if session_id not in self._live:
            raise _unknown(session_id)
        return self._live[session_id]

    def _stored(self, session_id: str) -> Session:
        if session_id not in self._sessions.known:
            raise _unknown(session_id)
        return self._sessions.known[session_id]

    def _greet(self, session_id: str) -> None:
        """Send the available commands after the answer, as real agents do."""
        commands = [{"name": "help", "description": "What the scripted agent understands"}]
        self._update(session_id, {"sessionUpdate": "available_commands_update", "availableCommands": commands})

    def _replay(self, session: Session) -> None:
        for update in session.replay():
            if update["sessionUpdate"] == "user_message_chunk" and "slow-replay" in self._options.misbehaves:
                time.sleep(_SLOW)
            self._update(session.id, self._as_replayed(update))

    def _as_replayed(self, update: Params) -> Params:
        if "toolCallId" in update and "changed-tool-ids" in self._options.misbehaves:
            update = {**update, "toolCallId": f"again:{update['toolCallId']}"}
        if "toolCallId" in update and "false-completed" in self._options.misbehaves:
            update = {**update, "status": "completed"}
        return update

    def _update(self, session_id: str, update: Params) -> None:
        self._peer.send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})


def _unknown(session_id: Any) -> RefusedRequest:
    return RefusedRequest(_NOT_FOUND, "no such session", {"sessionId": session_id})


def _foreign_turn() -> ScriptedTurn:
    said = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "An answer about cooking."}}
    return ScriptedTurn([{"type": "text", "text": "A question about cooking?"}], [said], "end_turn")


def _without_newest_answer(turns: list[ScriptedTurn]) -> list[ScriptedTurn]:
    """The turns before the newest finished one."""
    finished = [at for at, turn in enumerate(turns) if turn.stop is not None]
    return turns[: finished[-1]] if finished else turns
