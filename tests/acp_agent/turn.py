"""One turn of the scripted agent: runs the commands of the prompt in order."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.acp_agent.sessions import ScriptedTurn, Session, Sessions
from tests.acp_agent.stdio import ClientRefused, Peer, die

__all__ = ["Failed", "RunningTurn"]

_TOGETHER = 100
_LONG = 1 << 20
_GARBAGE = b'Debugger attached.\n\xff\xfe not even text\n["json", "but no message"]\n'
_ALLOW = [
    {"optionId": "allow", "name": "Allow", "kind": "allow_once"},
    {"optionId": "reject", "name": "Reject", "kind": "reject_once"},
]
_INPUT = {"path": "notes.txt", "text": "new"}
_DIFF = {"type": "diff", "path": "notes.txt", "oldText": "old", "newText": "new"}


class Failed(Exception):
    """The prompt must be answered with an error."""


class Stopped(Exception):
    """The turn ends here with the given stop reason."""


class RunningTurn:
    """A running turn, in its own thread."""

    def __init__(self, peer: Peer, session: Session, sessions: Sessions, misbehaves: frozenset[str]) -> None:
        self._peer, self._session, self._sessions = peer, session, sessions
        self._misbehaves = misbehaves
        self._turn = ScriptedTurn([])
        self.cancelled = threading.Event()
        self.beside_stop: dict[str, Any] = {}
        """What else the answer to the prompt has."""

    def run(self, prompt: list[Any]) -> str:
        """Run the commands of the prompt and return the stop reason.

        Raises:
            Failed: the prompt asks for a failure, or cannot be parsed.
        """
        self._turn = ScriptedTurn(prompt)
        self._session.turns.append(self._turn)
        self._sessions.save()
        self._misbehave_at_the_start()
        try:
            for line in _script(prompt).splitlines():
                self._carry_out(line)
            stop = "end_turn"
        except ValueError as error:
            raise Failed(f"the script does not make sense: {error}") from error
        except (Stopped, ClientRefused) as ended:
            stop = "cancelled" if self.cancelled.is_set() else str(ended)
        self._turn.stop = stop
        self._forget_commands(_script(prompt))
        self._sessions.save()
        return stop

    def _forget_commands(self, script: str) -> None:
        """Remove slash commands, and what a compaction replaced, from the history, as real agents do."""
        if not script.startswith("/"):
            return
        self._session.turns.remove(self._turn)
        if script.startswith("/compact"):
            words = {"type": "text", "text": "A summary of the conversation so far."}
            self._session.turns[:] = [ScriptedTurn([words], [], "end_turn")]

    def _carry_out(self, line: str) -> None:
        name, _, rest = line.strip().partition(" ")
        command = _COMMANDS.get(name)
        if command is None:
            self.say(f"You said: {line}")
        else:
            command(self, rest.strip())
        if self.cancelled.is_set():
            raise Stopped("cancelled")

    def _misbehave_at_the_start(self) -> None:
        if "garbage-stdout" in self._misbehaves:
            self._peer.write(_GARBAGE)
        if "titles-from-prompt" in self._misbehaves:
            first = next((block["text"] for block in self._turn.prompt if block.get("type") == "text"), "")
            self._notify([{"sessionUpdate": "session_info_update", "title": first[:60]}])
        if "echo-prompts" in self._misbehaves:
            self._notify({"sessionUpdate": "user_message_chunk", "content": block} for block in self._turn.prompt)
        if "long-line-no-newline" in self._misbehaves:
            update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * _LONG}}
            self._turn.updates.append(update)
            params = {"sessionId": self._session.id, "update": update}
            self._peer.write(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode())
            self.pause(0.05)
            self._peer.write(b"\n")

    # Parts of commands ------------------------------------------------------------------------------------

    def pause(self, seconds: float) -> None:
        """Wait, unless the turn is cancelled."""
        if self.cancelled.wait(seconds):
            raise Stopped("cancelled")

    def say(self, text: str, kind: str = "agent_message_chunk") -> None:
        """Send one chunk."""
        self._tell({"sessionUpdate": kind, "content": {"type": "text", "text": text}})

    def stream(self, texts: list[str], seconds: float) -> None:
        """Stream chunks with a pause between them; without a pause, many are written together."""
        step = 1 if seconds else _TOGETHER
        for start in range(0, len(texts), step):
            chunks = [{"type": "text", "text": text} for text in texts[start : start + step]]
            updates = [{"sessionUpdate": "agent_message_chunk", "content": chunk} for chunk in chunks]
            self._turn.updates += updates
            if "shows-cut-off" in self._misbehaves:
                self._sessions.save()
            self._notify(updates)
            self.pause(seconds)

    def tool(self, change: dict[str, Any], *, is_shown: bool = True) -> None:
        """Send a new or changed tool call; it is on disk before the client sees it."""
        updates = self._turn.updates
        ids = [update.get("toolCallId") for update in updates]
        if change["toolCallId"] in ids:
            at = ids.index(change["toolCallId"])
            updates[at] = {**updates[at], **change}
            kind = "tool_call_update"
        else:
            updates.append({"sessionUpdate": "tool_call", **change})
            kind = "tool_call"
        self._sessions.save()
        if is_shown:
            self._notify([{"sessionUpdate": kind, **change}])

    def notice(self, text: str) -> None:
        """Send text that the agent does not store."""
        content = {"type": "text", "text": f"{text}\n\n"}
        self._notify([{"sessionUpdate": "agent_message_chunk", "content": content}])

    @property
    def misbehaves(self) -> frozenset[str]:
        """The faults of the agent, as flags."""
        return self._misbehaves

    def show(self, update: dict[str, Any]) -> None:
        """Send an update."""
        self._tell(update)

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Send a request to the client and return its answer."""
        request_id = self._peer.begin(method, {"sessionId": self._session.id, **params})
        if method == "session/request_permission" and "dies-during-permission" in self._misbehaves:
            die()
        return self._peer.result(request_id, self.cancelled)

    def new_call_id(self) -> str:
        """A new id, unique among the tool calls of the session."""
        calls = sum("toolCallId" in update for turn in self._session.turns for update in turn.updates)
        return f"call-{calls + 1}"

    @property
    def prompt(self) -> list[Any]:
        """The blocks of the prompt."""
        return self._turn.prompt

    @property
    def earlier(self) -> list[ScriptedTurn]:
        """The turns before this one."""
        return self._session.turns[:-1]

    def _tell(self, update: dict[str, Any]) -> None:
        self._turn.updates.append(update)
        self._notify([update])

    def _notify(self, updates: Iterable[dict[str, Any]]) -> None:
        session_id = self._session.id
        self._peer.send(
            *(
                {"method": "session/update", "params": {"sessionId": session_id, "update": update}}
                for update in updates
            )
        )


def _script(prompt: list[Any]) -> str:
    texts = [block.get("text", "") for block in prompt if isinstance(block, dict) and block.get("type") == "text"]
    commands = [text for text in texts if not text.lstrip().startswith("<")]
    return commands[-1] if commands else ""


# The commands ---------------------------------------------------------------------------------------------


def _stream(act: RunningTurn, rest: str) -> None:
    count, _, milliseconds = rest.partition(" ")
    act.stream([f"part-{n:03}." for n in range(int(count))], float(milliseconds or 0) / 1000)


def _long_answer(act: RunningTurn, rest: str) -> None:
    act.beside_stop = {"_meta": {"long": "x" * int(rest)}}


def _crash(act: RunningTurn, rest: str) -> None:
    _stream(act, rest or "0")
    die()


def _leave_child(_act: RunningTurn, _rest: str) -> None:
    os.posix_spawnp("sleep", ["sleep", "120"], os.environ)  # it ends with the agent's process group


def _plan(act: RunningTurn, _rest: str) -> None:
    steps = [("Look", "completed"), ("Leap", "in_progress")]
    entries = [{"content": content, "priority": "medium", "status": status} for content, status in steps]
    act.show({"sessionUpdate": "plan", "entries": entries})


def _tool(act: RunningTurn, _rest: str, seconds: float = 0.0) -> None:
    call_id = act.new_call_id()
    _begin(act, call_id)
    _run(act, call_id, seconds)


def _slow_tool(act: RunningTurn, rest: str) -> None:
    _tool(act, rest, float(rest or 1))


def _ask(act: RunningTurn, _rest: str) -> None:
    call_id = act.new_call_id()
    _begin(act, call_id)
    answer = act.ask("session/request_permission", {"toolCall": {"toolCallId": call_id}, "options": _ALLOW})
    outcome = (answer or {}).get("outcome", {})
    if outcome.get("optionId") == "allow":
        _run(act, call_id, 0.0)
        return
    act.tool({"toolCallId": call_id, "status": "failed"}, is_shown="hides-outcomes" not in act.misbehaves)
    act.say("It was not permitted.")


def _begin(act: RunningTurn, call_id: str) -> None:
    call = {"toolCallId": call_id, "title": "Edit notes.txt", "kind": "edit", "status": "pending"}
    act.tool({**call, "locations": [{"path": "notes.txt", "line": 1}], "rawInput": _INPUT})


def _run(act: RunningTurn, call_id: str, seconds: float) -> None:
    act.tool({"toolCallId": call_id, "status": "in_progress"})
    try:
        act.pause(seconds)
    except Stopped:
        act.tool({"toolCallId": call_id, "status": "failed"})
        raise
    done = {"content": [_DIFF], "rawOutput": {"written": 3}}
    if "hides-outcomes" in act.misbehaves:
        act.tool({"toolCallId": call_id, "status": "completed", **done}, is_shown=False)
    elif "leaves-tools-pending" in act.misbehaves:
        act.tool({"toolCallId": call_id, **done})
    else:
        act.tool({"toolCallId": call_id, "status": "completed", **done})


def _terminal(act: RunningTurn, rest: str) -> None:
    call_id = act.new_call_id()
    call = {"toolCallId": call_id, "title": rest or "true", "kind": "execute", "status": "pending"}
    act.tool(call)
    terminal = act.ask("terminal/create", {"command": rest or "true", "args": []})
    which = {"terminalId": terminal["terminalId"]}
    act.tool({"toolCallId": call_id, "status": "in_progress", "content": [{"type": "terminal", **which}]})
    act.ask("terminal/wait_for_exit", which)
    output = act.ask("terminal/output", which)
    act.tool({"toolCallId": call_id, "status": "completed", "rawOutput": output})
    act.ask("terminal/release", which)


def _call(act: RunningTurn, rest: str) -> None:
    method, _, params = rest.partition(" ")
    try:
        answer = act.ask(method, json.loads(params or "{}"))
    except ClientRefused as refused:
        act.say(f"refused: {refused}")
    else:
        act.say(json.dumps(answer))


def _remember(act: RunningTurn, _rest: str) -> None:
    last = _script(act.earlier[-1].prompt) if act.earlier else "nothing"
    act.say(f"earlier turns: {len(act.earlier)}; last prompt: {last}")


def _stop(_act: RunningTurn, rest: str) -> None:
    raise Stopped(rest)


def _fail(_act: RunningTurn, rest: str) -> None:
    raise Failed(rest or "told to fail")


_COMMANDS: dict[str, Callable[[RunningTurn, str], None]] = {
    "say": lambda act, rest: act.say(rest),
    "long": lambda act, rest: act.say("x" * int(rest)),
    "long-answer": _long_answer,
    "long-request": lambda act, rest: _call(act, f'fs/write_text_file {{"content":"{"x" * int(rest)}"}}'),
    "stream": _stream,
    "think": lambda act, rest: act.say(rest or "Let me think.", "agent_thought_chunk"),
    "plan": _plan,
    "tool": _tool,
    "ask": _ask,
    "slow-tool": _slow_tool,
    "terminal": _terminal,
    "call": _call,
    "update": lambda act, rest: act.show(json.loads(rest)),
    "remember": _remember,
    "echo-blocks": lambda act, _rest: act.say(json.dumps(act.prompt)),
    "crash": _crash,
    "leave-child": _leave_child,
    "notice": lambda act, rest: act.notice(rest),
    "stop": _stop,
    "fail": _fail,
}
