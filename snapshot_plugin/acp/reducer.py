"""Reduces events to a snapshot, without I/O, for the hosts and for recovery.

`events` lists the events. Applying the same events to the same snapshot always gives the same snapshot. A snapshot
may be taken between any two events: recording that resumes from it ends with the same session.

`AcpReducer` applies events, `Transcript` holds the messages, `draft.Draft` is the unfinished message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from snapshot_plugin.acp.draft import Draft, Terminals, foreign_block, merged_call, to_json_safe, without_terminals
from snapshot_plugin.acp.messages import notification
from snapshot_plugin.acp.replay import is_note
from snapshot_plugin.acp.state import (
    PROVIDER,
    STATE_EVENTS,
    STATE_UPDATES,
    acp_metadata,
    with_acp_metadata,
    with_history,
    with_restored,
    with_usage,
)
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.live.outcome import log_failure
from snapshot_plugin.live.ports import Record
from snapshot_plugin.model.content import Block, TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import Message, Role, SessionSnapshot
from snapshot_plugin.model.times import as_utc

if TYPE_CHECKING:
    from snapshot_plugin.live.session import LiveSession

__all__ = ["AcpReducer", "record_events", "recording_update", "reduce_events", "reduce_spool"]


class AcpReducer:
    """A session that is being recorded. `apply` is linear in the event, `snapshot` in the open message."""

    def __init__(self, base: SessionSnapshot) -> None:
        unfinished = acp_metadata(base).get("open")
        self._base = base if unfinished is None else with_acp_metadata(base, "open", None)
        self._transcript = Transcript(base.messages)
        self._prompt: Message | None = None
        self._prompt_text = ""
        self._echoed: int | None = None
        self._asked: dict[str, str] = {}
        self._turns = 0
        """Turns not yet in the metrics of `_base`: evolving it at every prompt would be slow."""
        self.running = False
        """Whether a prompt waits for its answer."""
        self.is_long = False
        """Whether a part of a long message was finished since the last snapshot."""
        if isinstance(unfinished, dict) and unfinished.get("messages") == len(base.messages):
            self._reopen(unfinished)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply one event. A malformed event is kept verbatim or skipped; this never raises."""
        for kind, value in event.items():
            if kind == "update":  # the most frequent event: its handler checks only what is stored whole
                self._on_update(value)
            elif value is not None and kind in STATE_EVENTS:
                if isinstance(value, dict):
                    self._base = STATE_EVENTS[kind](self._base, to_json_safe(value))
            elif value is not None and (handler := getattr(self, f"_on_{kind}", None)):
                handler(to_json_safe(value), event)

    def snapshot(self, now: datetime) -> SessionSnapshot:
        """Return the session as it is now."""
        self.is_long = False
        messages = self._transcript.messages()
        if self._turns:
            metrics = self._base.metrics
            self._base = self._base.evolve(metrics=metrics.evolve(turns=metrics.turns + self._turns))
            self._turns = 0
        snapshot = self._base.evolve(messages=messages, updated_at=now)
        unfinished = self._unfinished()
        return (
            with_acp_metadata(snapshot, "open", {"messages": len(messages), **unfinished})
            if unfinished
            else snapshot
        )

    # A turn that is running when a snapshot is taken ------------------------------------------------------

    def _unfinished(self) -> dict[str, Any]:
        """Return the state that resumed recording needs and that is not in the messages."""
        draft = self._transcript.drafting
        state: dict[str, Any] = {}
        if self.running:
            state["turn"] = {"echoed": self._echoed}
        if self._asked:
            state["asked"] = dict(self._asked)
        if draft:
            state["draft"] = {"messageId": to_json_safe(draft.message_id)}
        if terminals := self._transcript.terminals.unshown():
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

    # What the client sends --------------------------------------------------------------------------------

    def _on_prompt(self, value: Any, event: Mapping[str, Any]) -> None:
        blocks = tuple(foreign_block(block) for block in (value if isinstance(value, list) else [value]))
        prompt = Message(role="user", content=blocks, timestamp=_moment(event.get("t")))
        self._transcript.add(prompt)
        self._expect_echo(prompt)
        self._echoed, self.running = 0, True
        self._turns += 1

    # What the agent sends ---------------------------------------------------------------------------------

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
        elif isinstance(update, dict) and kind != "notice":  # notices are transient and must not be replayed
            self._other_update(kind, to_json_safe(update))

    def _agent_chunk(self, kind: str, update: dict[str, Any]) -> None:
        """Add a chunk. A very long message is split into several, because each message is stored whole."""
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
        """Handle user text from the agent: an echo of the recorded prompt, or a replay of an unrecorded session."""
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
        if "usage" in answer:
            self._base = with_usage(self._base, answer["usage"])
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

    # What both send about a tool --------------------------------------------------------------------------

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
            self._transcript.terminal(terminal_id, value)


def _moment(value: Any) -> datetime | None:
    try:
        return as_utc(datetime.fromisoformat(value))
    except (TypeError, ValueError):
        return None


class Transcript:
    """Messages in order. A tool call in any message may change until the session ends."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._finished: list[Message] = []
        self._draft: Draft | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self.terminals = Terminals()
        for message in messages:
            self.add(message)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages so far, including the unfinished one."""
        return (*self._finished, self._draft.message()) if self._draft else tuple(self._finished)

    def add(self, message: Message) -> None:
        """Finish the unfinished message, then append a complete one."""
        self.finish()
        self._finished.append(message)
        for at, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                self._places[block.tool_call_id] = (len(self._finished) - 1, at)
                self.terminals.reload(block)

    def finish(self, **fields: Any) -> None:
        """Finish the unfinished message, with *fields* that are known only at its end."""
        draft, self._draft = self._draft, None
        if draft:
            self.add(draft.message(**fields))

    def draft(self, role: Role) -> Draft:
        """Return the unfinished message of *role*; one of another role is finished first."""
        if self._draft is None or self._draft.role != role:
            self.finish()
            self._draft = Draft(role)
        return self._draft

    @property
    def drafting(self) -> Draft | None:
        """The unfinished message, or None."""
        return self._draft

    def reopen(self, message_id: Any) -> None:
        """Make the last message the unfinished one again."""
        last = self._finished.pop()
        self._places = {call: at for call, at in self._places.items() if at[0] < len(self._finished)}
        self._draft = Draft.reopened(last, message_id)

    # Tool calls -------------------------------------------------------------------------------------------

    def begin_call(self, update: dict[str, Any]) -> None:
        """Start a tool call. Agents reuse ids in later turns, so only calls in the unfinished message match."""
        draft = self.draft("assistant")
        call_id = update["toolCallId"]
        call = draft.call(call_id) or ToolCallBlock(tool_call_id=call_id)
        draft.put(self.terminals.shown_in(merged_call(call, update)))

    def update_call(self, update: dict[str, Any]) -> None:
        """Update a tool call in any message; an unknown call is started."""
        call = self._call(update["toolCallId"])
        if call is None:
            self.begin_call(update)
        else:
            self._replace(merged_call(call, update))

    def mark_permission(self, call_id: str, note: dict[str, Any]) -> None:
        """Store a permission request or its outcome on the tool call."""
        if call := self._call(call_id):
            before = (call.model_extra or {}).get("permission") or {}
            self._replace(call.evolve(permission={**before, **note}))

    def terminal(self, terminal_id: str, seen: Mapping[str, Any]) -> None:
        """Store terminal data on every call that shows the terminal, now or later."""
        for call_id in self.terminals.learn(terminal_id, seen):
            if call := self._call(call_id):
                self._replace(call)

    def terminal_of(self, call_id: str, terminal_id: str, seen: dict[str, Any]) -> None:
        """Store the data of a terminal of the agent that an update of the call reported."""
        if call := self._call(call_id):
            self._replace(self.terminals.told_by(call, terminal_id, seen))

    def _call(self, call_id: str) -> ToolCallBlock | None:
        if self._draft and (call := self._draft.call(call_id)):
            return call
        if call_id not in self._places:
            return None
        message, at = self._places[call_id]
        block = self._finished[message].content[at]
        return block if isinstance(block, ToolCallBlock) else None

    def _replace(self, call: ToolCallBlock) -> None:
        if self._draft and self._draft.call(call.tool_call_id):
            self._draft.put(self.terminals.shown_in(call))
            return
        message, at = self._places[call.tool_call_id]
        blocks = self._finished[message].content
        changed = (*blocks[:at], self.terminals.shown_in(call), *blocks[at + 1 :])
        self._finished[message] = self._finished[message].evolve(content=changed)


def record_events(live: LiveSession, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Record *events*. Returns what to tell the client if that began to fail, or works again; else None.

    Never raises: a connection does not end because something is not recorded.
    """
    failed: Exception | None = None
    try:
        try:
            live.record_all(events)
        except InvalidInput:  # a number that JSON cannot represent
            live.record_all([to_json_safe(event) for event in events])
        if not live.trouble_changed():
            return None
        failed = live.trouble
    except Exception as error:  # noqa: BLE001 — the client is told
        log_failure(f"session {live.session_id}: something was not recorded", error)
        failed = error
    return recording_update(live, (str(failed) or type(failed).__name__) if failed else "")


def recording_update(live: LiveSession, problem: str) -> dict[str, Any]:
    """What to tell the client: the session is recorded, or it is not because of *problem*."""
    meta = {"asnap": {"recorded": not problem, **({"problem": problem} if problem else {})}}
    update = {"sessionUpdate": "session_info_update", "_meta": meta}
    return notification("session/update", {"sessionId": live.session_id, "update": update})


def reduce_events(base: SessionSnapshot, events: Iterable[Mapping[str, Any]], now: datetime) -> SessionSnapshot:
    """Return the snapshot after *events*. Recovery uses it for a spool."""
    recording = AcpReducer(base)
    for event in events:
        recording.apply(event)
    return recording.snapshot(now)


def reduce_spool(snapshot: SessionSnapshot, records: Sequence[Record]) -> SessionSnapshot:
    """Return the snapshot after the spool of a killed process. An unanswered turn is marked as interrupted."""
    events = [record.data for record in records]
    cut = {"interrupted": "the recorder was killed"}
    return reduce_events(snapshot.evolve(provider_type=PROVIDER), [*events, cut], snapshot.updated_at)
