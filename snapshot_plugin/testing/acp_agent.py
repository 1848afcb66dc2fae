"""A scripted ACP agent: no model, no key, no network. Each line of a prompt tells it what to do.

Run it with ``python -m snapshot_plugin.testing.acp_agent [--state FILE]``. It speaks ACP on stdin and stdout, and
ends when stdin closes. With ``--state`` it keeps its sessions in that file, and offers ``session/load``.

=====================  ========================================================
``say <words>``        says the words
``stream <n> [ms]``    sends the n chunks ``part-000.`` ``part-001.`` …, *ms* apart
``think <words>``      thinks the words
``plan``               shows a plan of two steps
``tool``               runs a tool that changes a file
``ask``                the same, if the client permits it
``remember``           says how many earlier turns it knows, and the last prompt
``blocks``             says, as JSON, the blocks of this prompt
=====================  ========================================================

Anything else is answered with ``You said: …``.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["main"]

Json = dict[str, Any]
_NOT_FOUND, _NO_METHOD, _BAD_PARAMS, _BUSY = -32002, -32601, -32602, -32600
_PLAN = [("Look", "completed"), ("Leap", "in_progress")]
_OPTIONS = [("allow", "Allow", "allow_once"), ("reject", "Reject", "reject_once")]
_DIFF = {"type": "diff", "path": "notes.txt", "oldText": "old", "newText": "new"}


class RefusedRequest(Exception):
    """A request that is answered with this error."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Agent:
    """The agent on one connection. Each turn runs in a thread of its own."""

    def __init__(self, state: str | None) -> None:
        self._state = state
        self._sessions: dict[str, list[Json]] = {}
        """The turns of each session: the prompt's blocks, and the updates that followed."""
        if state and os.path.exists(state):  # noqa: PTH110 — `pathlib` would double the time to start
            with open(state) as file:  # noqa: PTH123 — as above
                self._sessions = json.load(file)
        self._cancelled: dict[str, threading.Event] = {}
        self._answers: dict[str, queue.SimpleQueue[Json]] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Serve the client until it closes our stdin."""
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "session/cancel":
                self._cancelled.get(message["params"]["sessionId"], threading.Event()).set()
            elif "method" in message and "id" in message:
                self._serve(message["id"], message["method"], message.get("params"))
            elif message.get("id") in self._answers:
                self._answers[message["id"]].put(message)

    def _serve(self, request_id: Any, method: str, params: Any) -> None:
        try:
            result = self._result(request_id, method, params)
        except RefusedRequest as refused:
            self._send({"id": request_id, "error": {"code": refused.code, "message": str(refused)}})
        except (KeyError, TypeError) as error:
            self._send({"id": request_id, "error": {"code": _BAD_PARAMS, "message": f"missing or wrong: {error}"}})
        else:
            if result is not None:
                self._send({"id": request_id, "result": result})

    def _result(self, request_id: Any, method: str, params: Json) -> Json | None:
        """What to answer at once; a prompt is answered when its turn ends."""
        if method == "initialize":
            info = {"name": "scripted-agent", "title": "Scripted agent", "version": "1.0"}
            return {
                "protocolVersion": 1, "agentInfo": info, "agentCapabilities": {"loadSession": bool(self._state)}
            }  # fmt: skip
        if method == "session/new":
            session_id = os.urandom(16).hex()
            self._sessions[session_id] = []
            return {"sessionId": session_id}
        if method not in {"session/prompt", "session/load"} or (method == "session/load" and not self._state):
            raise RefusedRequest(_NO_METHOD, f"no method {method}")
        session_id = params["sessionId"]
        if session_id not in self._sessions:
            raise RefusedRequest(_NOT_FOUND, f"no session {session_id}")
        if method == "session/load":
            for turn in self._sessions[session_id]:
                for block in turn["prompt"]:
                    self._update(session_id, {"sessionUpdate": "user_message_chunk", "content": block})
                for update in turn["updates"]:
                    self._update(session_id, update)
            return {}
        if session_id in self._cancelled:
            raise RefusedRequest(_BUSY, "a turn is under way")
        self._cancelled[session_id] = threading.Event()
        threading.Thread(target=self._turn, args=(request_id, session_id, params["prompt"]), daemon=True).start()
        return None

    def _turn(self, request_id: Any, session_id: str, prompt: list[Json]) -> None:
        turn: Json = {"prompt": prompt, "updates": []}
        stop = "end_turn"
        for update in self._script(session_id, prompt):
            if self._cancelled[session_id].is_set():
                stop = "cancelled"
                break
            turn["updates"].append(update)
            self._update(session_id, update)
        self._sessions[session_id].append(turn)
        self._save()
        del self._cancelled[session_id]
        self._send({"id": request_id, "result": {"stopReason": stop}})

    def _script(self, session_id: str, prompt: list[Json]) -> Iterator[Json]:
        for line in str(prompt[-1].get("text", "")).splitlines() if prompt else ():
            command, _, rest = line.strip().partition(" ")
            if command == "stream":
                count, _, pause = rest.partition(" ")
                for number in range(int(count)):
                    self._cancelled[session_id].wait(float(pause or 0) / 1000)
                    yield _said(f"part-{number:03}.")
            elif command in {"tool", "ask"}:
                yield from self._tool(session_id, must_ask=command == "ask")
            elif command == "plan":
                entries = [{"content": text, "status": status, "priority": "medium"} for text, status in _PLAN]
                yield {"sessionUpdate": "plan", "entries": entries}
            elif command == "think":
                yield _said(rest, "agent_thought_chunk")
            elif command == "remember":
                earlier = self._sessions[session_id]
                last = earlier[-1]["prompt"][-1].get("text") if earlier else "nothing"
                yield _said(f"earlier turns: {len(earlier)}; last prompt: {last}")
            else:
                yield _said({"say": rest, "blocks": json.dumps(prompt)}.get(command, f"You said: {line}"))

    def _tool(self, session_id: str, *, must_ask: bool) -> Iterator[Json]:
        call = {"toolCallId": f"call-{os.urandom(4).hex()}", "title": "Edit notes.txt", "kind": "edit"}
        yield {"sessionUpdate": "tool_call", **call, "status": "pending", "rawInput": {"path": "notes.txt"}}
        if must_ask and not self._may(session_id, call):
            yield {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": "failed"}
            return
        done = {"toolCallId": call["toolCallId"], "status": "completed", "content": [_DIFF]}
        yield {"sessionUpdate": "tool_call_update", **done, "rawOutput": {"written": 3}}

    def _may(self, session_id: str, call: Json) -> bool:
        request_id, answer = os.urandom(4).hex(), queue.SimpleQueue[Json]()
        self._answers[request_id] = answer
        options = [{"optionId": name, "name": label, "kind": kind} for name, label, kind in _OPTIONS]
        params = {"sessionId": session_id, "toolCall": call, "options": options}
        self._send({"id": request_id, "method": "session/request_permission", "params": params})
        while not self._cancelled[session_id].wait(0.02):
            if not answer.empty():
                outcome = answer.get().get("result", {}).get("outcome", {})
                return bool(outcome.get("optionId") == "allow")
        return False

    def _update(self, session_id: str, update: Json) -> None:
        self._send({"method": "session/update", "params": {"sessionId": session_id, "update": update}})

    def _send(self, message: Json) -> None:
        with self._lock:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def _save(self) -> None:
        if self._state is None:
            return
        with self._lock:
            draft = f"{self._state}.new"
            with open(draft, "w") as file:  # noqa: PTH123 — as above
                json.dump(self._sessions, file)
            os.replace(draft, self._state)  # noqa: PTH105 — as above


def _said(text: str, kind: str = "agent_message_chunk") -> Json:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def main() -> None:
    """Run the agent on stdin and stdout."""
    match sys.argv[1:]:
        case []:
            state = None
        case ["--state", path]:
            state = path
        case _:
            sys.exit(f"{__doc__}\nusage: python -m snapshot_plugin.testing.acp_agent [--state FILE]")
    Agent(state).run()
    os._exit(0)  # turns under way end with the connection


if __name__ == "__main__":
    main()
