"""From ACP messages to the session model: a reducer without I/O, fed by the hosts and again by recovery.

An event is what is spooled: one JSON object with one or more of the keys below, and ``t`` (when) and
``n`` (which permission request). Applying the same events to the same snapshot always gives the same snapshot, and
a snapshot may be taken anywhere between two events: recording resumed from it ends with the same session.

====================  =====================================================================================
``new``               the session began: cwd, servers by name
``agent``             which agent has it, and under which id
``prompt``            the user's prompt, as sent
``update``            one ``session/update``, as received
``stop``              the prompt's answer: stop reason, usage
``interrupted``       the turn ended without an answer: why
``unsent``            the prompt did not reach the agent: why
``permission``        what was asked before a tool ran; ``outcome`` is what was answered
``terminal``          the output of a terminal that a tool call shows: its id dies with the client
``config``            modes and options that a response brought
``restored``          how the session was brought back: the report the client gets too
``label``             title, tags, pin or note that somebody gave the session meanwhile
``history``           what an agent that is asked for it remembers, after all that came before
====================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from snapshot_plugin.acp.messages import Pending
from snapshot_plugin.acp.notes import is_note
from snapshot_plugin.acp.state import (
    STATE_UPDATES,
    noted,
    with_agent,
    with_config,
    with_history,
    with_restored,
    with_setup,
    with_usage,
)
from snapshot_plugin.acp.transcript import Transcript, foreign_block, plain, without_terminals
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.label import apply_label
from snapshot_plugin.live.spool import Record
from snapshot_plugin.model.content import Block, TextBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.model.times import as_utc

__all__ = [
    "AcpReducer",
    "RecordedEvent",
    "answered_by_agent",
    "answered_by_client",
    "asked_by_agent",
    "never_sent",
    "prompted",
    "reduce_events",
    "reduce_spool",
]

Raw = dict[str, Any]

_OF_A_TERMINAL = ("command", "args", "cwd", "output", "truncated", "exitStatus", "exitCode", "signal")
"""What is kept of a terminal; its environment is not."""


# Which message becomes which event: None if there is nothing to record -----------------------------------------


class RecordedEvent(NamedTuple):
    """An event for the record. A durable one must be on disk before the message it is of is passed on."""

    event: dict[str, Any]
    durable: bool = False


def prompted(params: Raw, t: str) -> RecordedEvent:
    """The user's prompt, before the agent gets it."""
    return RecordedEvent({"prompt": params.get("prompt") or [], "t": t}, durable=True)


def never_sent(why: str, t: str) -> RecordedEvent:
    """The prompt that was recorded last did not reach the agent."""
    return RecordedEvent({"unsent": why, "t": t}, durable=True)


def asked_by_agent(asked: Pending) -> RecordedEvent | None:
    """A request of the agent, before the client gets it: only what asks for permission is kept."""
    if asked.method != "session/request_permission":
        return None
    return RecordedEvent({"permission": asked.params, "n": str(asked.id)}, durable=True)


def answered_by_client(asked: Pending, answer: Raw) -> RecordedEvent | None:
    """The client's answer to a request of the agent: what was permitted, what a terminal showed."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return None
    if asked.method == "session/request_permission":
        return RecordedEvent({"outcome": result.get("outcome"), "n": str(asked.id)}, durable=True)
    if asked.method.startswith("terminal/"):
        shown = {**{key: asked.params[key] for key in ("command", "args") if key in asked.params}, **result}
        return RecordedEvent({"terminal": {"terminalId": asked.params.get("terminalId"), **shown}})
    return None


def answered_by_agent(asked: Pending, answer: Raw, t: str) -> RecordedEvent | None:
    """The agent's answer to a request about a session that is recorded: the end of a turn, a changed setting."""
    result = answer.get("result")
    if asked.method == "session/prompt":
        stop = result if isinstance(result, dict) else {"error": answer.get("error")}
        return RecordedEvent({"stop": stop, "t": t}, durable=True)
    if not isinstance(result, dict):
        return None
    if asked.method == "session/set_mode":
        return RecordedEvent({"config": {"modes": {"currentModeId": asked.params.get("modeId")}}})
    if asked.method == "session/set_model":
        return RecordedEvent({"config": {"models": {"currentModelId": asked.params.get("modelId")}}})
    return RecordedEvent({"config": result}) if result.keys() & {"configOptions", "modes", "models"} else None


# Events to snapshot ---------------------------------------------------------------------------------------


class AcpReducer:
    """A session as it is being recorded. Applying an event costs the event; `snapshot` costs the open message."""

    def __init__(self, base: SessionSnapshot) -> None:
        acp = base.metadata.get("acp")
        unfinished = acp.get("open") if isinstance(acp, dict) else None
        self._base = base if unfinished is None else noted(base, "open", None)
        self._transcript = Transcript(base.messages)
        self._prompt: Message | None = None
        self._prompt_text = ""
        self._echoed: int | None = None
        self._asked: dict[str, str] = {}
        self.running = False
        """Whether a prompt waits for its answer."""
        self.is_long = False
        """Whether a part of a long message was finished since the last snapshot."""
        if isinstance(unfinished, dict) and unfinished.get("messages") == len(base.messages):
            self._reopen(unfinished)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Take one event in. A malformed event is kept verbatim or skipped; this never raises."""
        for kind, value in event.items():
            if kind == "update":  # the most frequent event, so only values stored whole are checked
                self._on_update(value)
            elif value is not None and (handler := getattr(self, f"_on_{kind}", None)):
                handler(plain(value), event)

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """The session as it is now."""
        self.is_long = False
        messages = self._transcript.messages()
        snapshot = self._base.evolve(messages=messages, updated_at=now)
        unfinished = self._unfinished()
        return noted(snapshot, "open", {"messages": len(messages), **unfinished}) if unfinished else snapshot

    # A turn that is under way when a snapshot is taken ----------------------------------------------------

    def _unfinished(self) -> dict[str, Any]:
        """The state that resumed recording needs and that is not in the messages."""
        draft = self._transcript.drafting
        state: dict[str, Any] = {}
        if self.running:
            state["turn"] = {"echoed": self._echoed}
        if self._asked:
            state["asked"] = dict(self._asked)
        if draft:
            state["draft"] = {"messageId": plain(draft.message_id)}
        if terminals := self._transcript.unshown_terminals():
            state["terminals"] = terminals
        return state

    def _reopen(self, unfinished: dict[str, Any]) -> None:
        self._asked = dict(unfinished.get("asked", {}))
        for terminal_id, seen in unfinished.get("terminals", {}).items():
            self._transcript.terminal(terminal_id, dict(seen))
        if "turn" in unfinished:
            self.running = True
            self._echoed = unfinished["turn"]["echoed"]
            self._expect_echo(next(m for m in reversed(self._base.messages) if m.role == "user"))
        if "draft" in unfinished:
            self._transcript.reopen(unfinished["draft"]["messageId"])

    def _expect_echo(self, prompt: Message) -> None:
        self._prompt, self._prompt_text = prompt, prompt.text

    def _on_label(self, value: Any, _event: Mapping[str, Any]) -> None:
        with suppress(InvalidInput):  # checked where it came in; one that got here otherwise means nothing
            self._base = apply_label(self._base, value if isinstance(value, dict) else {})

    # What the client sends --------------------------------------------------------------------------------

    def _on_new(self, value: Any, _event: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            self._base = with_setup(self._base, value)

    def _on_prompt(self, value: Any, event: Mapping[str, Any]) -> None:
        blocks = tuple(foreign_block(block) for block in (value if isinstance(value, list) else [value]))
        prompt = Message(role="user", content=blocks, timestamp=_moment(event.get("t")))
        self._transcript.add(prompt)
        self._expect_echo(prompt)
        self._echoed, self.running = 0, True
        metrics = self._base.metrics
        self._base = self._base.evolve(metrics=metrics.evolve(turns=metrics.turns + 1))

    # What the agent sends ---------------------------------------------------------------------------------

    def _on_agent(self, value: Any, _event: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            self._base = with_agent(self._base, value)

    def _on_config(self, value: Any, _event: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            self._base = with_config(self._base, value)

    def _on_restored(self, value: Any, _event: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            self._base = with_restored(self._base, value, len(self._transcript.messages()))

    def _on_history(self, value: Any, _event: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            self._base = with_history(self._base, value, len(self._transcript.messages()))

    def _on_update(self, update: Any) -> None:
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if kind == "agent_message_chunk":
            self._echoed = None
            self._agent_chunk("text", update)
        elif kind == "agent_thought_chunk":
            self._agent_chunk("thought", update)
        elif isinstance(update, dict) and kind != "notice":  # notices are for the moment and not to be replayed
            self._other_update(kind, plain(update))

    def _agent_chunk(self, kind: str, update: dict[str, Any]) -> None:
        """A message is stored whole, so a very long one is recorded in parts, each a message of its own."""
        draft = self._transcript.draft("assistant")
        if draft.is_long:
            self._transcript.finish()
            self.is_long = True
            draft = self._transcript.draft("assistant")
        draft.chunk(kind, update.get("content"), update.get("messageId"))

    def _other_update(self, kind: Any, update: dict[str, Any]) -> None:
        if kind == "user_message_chunk":
            self._user_chunk(update)
        elif isinstance(kind, str) and kind in STATE_UPDATES:
            self._base = STATE_UPDATES[kind](self._base, update)
        elif kind in ("tool_call", "tool_call_update") and isinstance(update.get("toolCallId"), str):
            begins = kind == "tool_call"
            update, terminals = without_terminals(update)
            (self._transcript.begin_call if begins else self._transcript.update_call)(update)
            for terminal_id, seen in terminals.items():
                self._transcript.terminal_of(update["toolCallId"], terminal_id, seen)
        else:
            self._transcript.draft("assistant").keep(update)

    def _user_chunk(self, update: dict[str, Any]) -> None:
        """The user's words from the agent: an echo of the prompt, which we have, or a conversation we never saw."""
        block = foreign_block(update.get("content"))
        if isinstance(block, TextBlock) and is_note(block.text):
            return
        if self.running:
            if not self._is_echo(block):
                self._transcript.draft("assistant").keep(update)
            return
        draft = self._transcript.drafting
        if draft and draft.role == "user" and draft.message_id != update.get("messageId"):
            self._transcript.finish()
        self._transcript.draft("user").chunk("text", update.get("content"), update.get("messageId"))

    def _is_echo(self, block: Block) -> bool:
        if self._prompt is None or self._echoed is None:
            return False
        if isinstance(block, TextBlock):
            if not self._prompt_text.startswith(block.text, self._echoed):
                return False
            self._echoed += len(block.text)
            return True
        return block in self._prompt.content

    def _on_stop(self, value: Any, event: Mapping[str, Any]) -> None:
        answer = value if isinstance(value, dict) else {}
        self._base = with_usage(self._base, answer.get("usage"))
        self._end({key: answer[key] for key in ("stopReason", "error", "usage") if key in answer}, event)

    def _on_interrupted(self, value: Any, event: Mapping[str, Any]) -> None:
        self._end({"interrupted": value}, event)

    def _on_unsent(self, value: Any, event: Mapping[str, Any]) -> None:
        self._end({"unsent": value}, event)

    def _end(self, note: dict[str, Any], event: Mapping[str, Any]) -> None:
        """End the turn. Its outcome is stored on the assistant's message, even if that is empty."""
        if self.running:
            self._transcript.draft("assistant")
        fields = {"timestamp": _moment(event.get("t")), "metadata": {"acp": note} if note else {}}
        draft = self._transcript.drafting
        self._transcript.finish(**(fields if draft and draft.role == "assistant" else {}))
        self.running, self._prompt, self._echoed = False, None, None
        self._asked.clear()

    # What both say about a tool ---------------------------------------------------------------------------

    def _on_permission(self, value: Any, event: Mapping[str, Any]) -> None:
        call = value.get("toolCall") if isinstance(value, dict) else None
        call_id = call.get("toolCallId") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(call_id, str):
            return
        self._transcript.update_call(call)
        self._asked[str(event.get("n"))] = call_id
        self._transcript.mark_permission(call_id, {"asked": value.get("options")})

    def _on_outcome(self, value: Any, event: Mapping[str, Any]) -> None:
        call_id = self._asked.pop(str(event.get("n")), None)
        if call_id is not None:
            self._transcript.mark_permission(call_id, {"outcome": value})

    def _on_terminal(self, value: Any, _event: Mapping[str, Any]) -> None:
        terminal_id = value.get("terminalId") if isinstance(value, dict) else None
        if isinstance(terminal_id, str):
            self._transcript.terminal(terminal_id, {key: value[key] for key in _OF_A_TERMINAL if key in value})


def _moment(value: Any) -> datetime | None:
    try:
        return as_utc(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return None


def reduce_events(base: SessionSnapshot, events: Iterable[Mapping[str, Any]], now: datetime) -> SessionSnapshot:
    """The snapshot after *events*; what recovery makes of a spool."""
    recording = AcpReducer(base)
    for event in events:
        recording.apply(event)
    return recording.snapshot(now)


def reduce_spool(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    """The snapshot after the records of a killed process, for recovery. A turn without its answer was cut off."""
    events = [record.data for record in records]
    cut = {"interrupted": "the recorder was killed"}
    return reduce_events(snapshot.evolve(provider_type="acp"), [*events, cut], snapshot.updated_at)
