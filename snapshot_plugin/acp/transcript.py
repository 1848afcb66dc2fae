"""The conversation while it is recorded: finished messages, the one in the making, and where each tool call is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from snapshot_plugin.acp.parts import Draft, merged
from snapshot_plugin.model.content import ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, Role

__all__ = ["Transcript", "without_terminals"]

_TOLD = ("terminal_info", "terminal_output", "terminal_output_delta", "terminal_exit")
_OUTPUT_LIMIT = 1 << 20


class Transcript:
    """Messages in order. A tool call may change for as long as the session lives, in whichever message it is."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._finished: list[Message] = []
        self._draft: Draft | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._terminals: dict[str, dict[str, Any]] = {}
        self._shown_by: dict[str, list[str]] = {}
        self._shows: dict[str, set[str]] = {}
        for message in messages:
            self.add(message)

    def messages(self) -> tuple[Message, ...]:
        """Everything said so far."""
        return (*self._finished, self._draft.message()) if self._draft else tuple(self._finished)

    def add(self, message: Message) -> None:
        """Add a whole message behind the one in the making, which is finished by that."""
        self.finish()
        self._finished.append(message)
        for at, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                self._places[block.tool_call_id] = (len(self._finished) - 1, at)
                self._note_terminals(block)

    def finish(self, **fields: Any) -> None:
        """The message in the making is complete; *fields* are what only its end could tell."""
        draft, self._draft = self._draft, None
        if draft:
            self.add(draft.message(**fields))

    def draft(self, role: Role) -> Draft:
        """The message *role* is making; that of another role is finished first."""
        if self._draft is None or self._draft.role != role:
            self.finish()
            self._draft = Draft(role)
        return self._draft

    @property
    def drafting(self) -> Draft | None:
        """The message in the making."""
        return self._draft

    def reopen(self, message_id: Any) -> None:
        """Go on with the last message instead of beginning a new one."""
        last = self._finished.pop()
        self._places = {call: at for call, at in self._places.items() if at[0] < len(self._finished)}
        self._draft = Draft.reopened(last, message_id)

    # Tool calls -------------------------------------------------------------------------------------------

    def begin_call(self, update: dict[str, Any]) -> None:
        """A tool call. Agents count anew in each turn, so only one of this message can be meant."""
        draft = self.draft("assistant")
        call_id = update["toolCallId"]
        self._put(draft, merged(draft.call(call_id) or ToolCallBlock(tool_call_id=call_id), update))

    def update_call(self, update: dict[str, Any]) -> None:
        """A change to a tool call, however long ago it was made; to one nobody has seen, it is its beginning."""
        call = self._call(update["toolCallId"])
        if call is None:
            self.begin_call(update)
        else:
            self._replace(merged(call, update))

    def mark_permission(self, call_id: str, note: dict[str, Any]) -> None:
        """Note at a tool call what was asked or answered before it ran."""
        if call := self._call(call_id):
            before = (call.model_extra or {}).get("permission") or {}
            self._replace(call.evolve(permission={**before, **note}))

    def terminal(self, terminal_id: str, seen: dict[str, Any]) -> None:
        """What is known of a terminal goes to every call that shows it, now or later."""
        self._terminals[terminal_id] = {**self._terminals.get(terminal_id, {}), **seen}
        for call_id in self._shown_by.get(terminal_id, ()):
            if call := self._call(call_id):
                self._replace(call)

    def terminal_of(self, call_id: str, terminal_id: str, seen: dict[str, Any]) -> None:
        """What an update of a call tells of a terminal of the agent's own; output is added to what there is."""
        before = self._terminals.get(terminal_id, {})
        output = str(before.get("output", "")) + seen.pop("output", "")
        self._terminals[terminal_id] = {**before, **seen, "meta": True, "output": output[-_OUTPUT_LIMIT:]}
        if call := self._call(call_id):
            told = {**_terminals_told(call), terminal_id: self._terminals[terminal_id]}
            self._replace(call.evolve(terminals=told))

    def unshown_terminals(self) -> dict[str, Any]:
        """Terminals that no tool call shows or tells of, and what is known of them."""
        return {name: seen for name, seen in self._terminals.items() if name not in self._shown_by}

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
            self._put(self._draft, call)
            return
        message, at = self._places[call.tool_call_id]
        blocks = self._finished[message].content
        changed = (*blocks[:at], self._with_terminals(call), *blocks[at + 1 :])
        self._finished[message] = self._finished[message].evolve(content=changed)

    def _put(self, draft: Draft, call: ToolCallBlock) -> None:
        draft.put(self._with_terminals(call))

    # Terminals --------------------------------------------------------------------------------------------

    def _with_terminals(self, call: ToolCallBlock) -> ToolCallBlock:
        told = _terminals_told(call)
        shown = dict.fromkeys([*told, *_terminals_in(call)])
        self._note_shown(call.tool_call_id, set(shown))
        known = {name: self._terminals[name] for name in shown if name in self._terminals}
        return call.evolve(terminals={**told, **known}) if known else call

    def _note_shown(self, call_id: str, names: set[str]) -> None:
        before = self._shows.get(call_id, set())
        for name in before - names:
            self._shown_by[name].remove(call_id)
            if not self._shown_by[name]:
                del self._shown_by[name]
        for name in names - before:
            self._shown_by.setdefault(name, []).append(call_id)
        self._shows[call_id] = names

    def _note_terminals(self, call: ToolCallBlock) -> None:
        """What a stored call knows of terminals, known again."""
        for name, seen in _terminals_told(call).items():
            self._terminals[name] = {**self._terminals.get(name, {}), **thaw(seen)}
        self._with_terminals(call)


def _terminals_told(call: ToolCallBlock) -> dict[str, Any]:
    """What the call itself tells of terminals, those it does not show any more included."""
    return (call.model_extra or {}).get("terminals") or {}


def _terminals_in(call: ToolCallBlock) -> Iterator[str]:
    for item in call.content if isinstance(call.content, list) else ():
        if isinstance(item, dict) and item.get("type") == "terminal" and isinstance(item.get("terminalId"), str):
            yield item["terminalId"]


def without_terminals(update: dict[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The update of a call without what its ``_meta`` tells of terminals, and that, by terminal."""
    meta = update.get("_meta")
    told = (
        {name: meta[name] for name in _TOLD if isinstance(meta.get(name), dict)} if isinstance(meta, dict) else {}
    )
    if not told or not isinstance(meta, dict):
        return update, {}
    terminals: dict[str, dict[str, Any]] = {}
    for name, value in told.items():
        seen = terminals.setdefault(str(value.get("terminal_id", update["toolCallId"])), {})
        if isinstance(value.get("data"), str) and "output" in name:
            seen["output"] = seen.get("output", "") + value["data"]
        if name == "terminal_exit":
            seen["exitStatus"] = {"exitCode": value.get("exit_code"), "signal": value.get("signal")}
    rest = {key: value for key, value in meta.items() if key not in told}
    kept = {key: value for key, value in update.items() if key != "_meta"}
    return ({**kept, "_meta": rest} if rest else kept), terminals
