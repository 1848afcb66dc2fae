"""Replays: ours, which ``session/load`` shows the client, and the agent's, which is withheld. Pure.

The client is shown the record. What the agent replays is collected while a session is loaded (`Withheld`), and
recognized if it comes late (`LateReplay`).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from snapshot_plugin.acp.actions import Actions, RecordEvent, ToClient, shown
from snapshot_plugin.acp.messages import Message as Raw
from snapshot_plugin.acp.messages import text_in
from snapshot_plugin.acp.state import STATE_UPDATES, acp_metadata, settled_tools, turns
from snapshot_plugin.model.content import Block, TextBlock, ThoughtBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.repair import repair
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = [
    "NOTE_BEGINS",
    "NOTE_ENDS",
    "TOOL_BYTES",
    "LateReplay",
    "Withheld",
    "is_note",
    "is_withheld",
    "replay",
    "show",
    "show_state",
    "split_notes",
    "squeezed",
]

NOTE_BEGINS = '<restoration-note from="asnap">'
NOTE_ENDS = "</restoration-note>"
_NOTE = re.compile(f"({re.escape(NOTE_BEGINS)}.*?(?:{re.escape(NOTE_ENDS)}|$))", re.DOTALL)

_NEEDS = {"compaction_update": "compaction", "compaction_summary_chunk": "compaction"}
_NOTHING = ({"type": "text", "text": ""}, {"type": "thought"})
_SHORT = 200
TOOL_BYTES = 1 << 20
"""Default limit in bytes for each replayed payload of a tool."""


def replay(
    snapshot: SessionSnapshot, client: Mapping[str, Any], *, tool_bytes: int = TOOL_BYTES, is_running: bool = False
) -> Iterator[dict[str, Any]]:
    """Yield every update of the conversation in order, then the last plan, commands, title and usage.

    Open tool calls are shown as completed if their turn ended normally, else as failed with a note; but those of
    the last turn as they are, if it *is_running*. Terminals are replaced by the
    text they showed. Each payload of a tool (content, input, output) is truncated to *tool_bytes*, with a marker
    that the record has more. Updates that need a capability the *client* lacks are left out.
    """
    mended = _mended(snapshot, is_running=is_running)
    for number, message in enumerate(mended.messages, 1):
        for block in message.content:
            if isinstance(block, ToolCallBlock):
                yield _tool_call(block, tool_bytes)
            elif _is_update(raw := thaw(block.raw())):
                yield from _kept(raw["update"], client)
            elif raw not in _NOTHING:
                # without an id, a client would join two messages of one role
                yield {**_chunk(message, block, raw), "messageId": message.id or f"asnap-{number}"}
    yield from _state(mended)


def _mended(snapshot: SessionSnapshot, *, is_running: bool) -> SessionSnapshot:
    if not is_running:
        return repair(snapshot.evolve(messages=settled_tools(snapshot.messages)))[0]
    running = list(turns(snapshot.messages))[-1:]
    kept = running[0].messages if running else ()
    before = snapshot.messages[: len(snapshot.messages) - len(kept)]
    return snapshot.evolve(messages=(*settled_tools(before), *kept))


def _chunk(message: Message, block: Block, raw: dict[str, Any]) -> dict[str, Any]:
    if isinstance(block, ThoughtBlock):
        content = _text(block.text) if block.content is None else _content(block.content)
        return {"sessionUpdate": "agent_thought_chunk", "content": content}
    kind = "user_message_chunk" if message.role == "user" else "agent_message_chunk"
    return {"sessionUpdate": kind, "content": _content(raw)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _content(raw: Any) -> dict[str, Any]:
    """Return a content block as the client saw it; content that is not a block is shown as JSON text."""
    raw = thaw(raw)
    inner = (
        raw["content"] if isinstance(raw, dict) and raw.get("type") == "acp_content" and "content" in raw else raw
    )
    return inner if isinstance(inner, dict) else _text(json.dumps(inner))


def _is_update(raw: dict[str, Any]) -> bool:
    return raw.get("type") == "acp_update" and isinstance(raw.get("update"), dict)


def _kept(update: dict[str, Any], client: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = update.get("sessionUpdate")
    abilities = client.get("session")
    if not isinstance(kind, str):
        return
    if kind not in _NEEDS or (isinstance(abilities, dict) and abilities.get(_NEEDS[kind]) is not None):
        yield update


# Tool calls -----------------------------------------------------------------------------------------------


def _tool_call(block: ToolCallBlock, tool_bytes: int) -> dict[str, Any]:
    raw = thaw(block.raw())
    terminals = raw.pop("terminals", {})
    raw.pop("permission", None)
    del raw["type"]
    content = raw.get("content")
    if isinstance(content, list) or terminals:
        items = content if isinstance(content, list) else []
        raw["content"] = [*(_inline(item, terminals) for item in items), *_unshown(items, terminals)]
    for name in ("content", "rawInput", "rawOutput"):
        if name in raw:
            raw[name] = _Budget(tool_bytes).cut(raw[name])
    return {"sessionUpdate": "tool_call", **raw, "title": raw.get("title", "")}


def _inline(item: Any, terminals: Mapping[str, Any]) -> Any:
    """Replace a terminal by its text: its id is invalid once the client that created it has exited."""
    if not isinstance(item, dict) or item.get("type") != "terminal":
        return item
    known = terminals.get(str(item.get("terminalId"))) or {}
    output = known.get("output")
    text = output if isinstance(output, str) else "(the output of this terminal was not captured)"
    return {"type": "content", "content": _text(text)}


def _unshown(items: list[Any], terminals: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the output of terminals that the agent reported only in ``_meta``."""
    shown = {str(item.get("terminalId")) for item in items if isinstance(item, dict)}
    for name, seen in terminals.items():
        if (
            name not in shown
            and isinstance(seen, dict)
            and seen.get("meta")
            and isinstance(seen.get("output"), str)
        ):
            yield {"type": "content", "content": _text(seen["output"])}


class _Budget:
    """Truncates the long strings of one payload. Short strings, such as names and kinds, are kept."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def cut(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.cut(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.cut(inner) for inner in value]
        return self._shortened(value) if isinstance(value, str) and len(value) > _SHORT else value

    def _shortened(self, text: str) -> str:
        room = self._left
        encoded = text if text.isascii() else text.encode(errors="surrogatepass")
        self._left = max(0, room - len(encoded))
        if len(encoded) <= room:
            return text
        kept = text[:room] if isinstance(encoded, str) else encoded[:room].decode(errors="ignore")
        return f"{kept}\n[… {len(text) - len(kept)} more characters are in the record]"


# State ----------------------------------------------------------------------------------------------------


def _state(snapshot: SessionSnapshot) -> Iterator[dict[str, Any]]:
    noted: dict[str, Any] = thaw(acp_metadata(snapshot))
    if snapshot.plan:
        entries = [{"priority": "medium", "status": "pending", **thaw(entry.raw())} for entry in snapshot.plan]
        yield {"sessionUpdate": "plan", "entries": entries}
    if isinstance(commands := noted.get("commands"), list):
        yield {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    if snapshot.title:
        yield {"sessionUpdate": "session_info_update", "title": snapshot.title}
    context = noted.get("context")
    if isinstance(context, dict) and {"used", "size"} <= context.keys():
        yield {"sessionUpdate": "usage_update", **context, **_cost(snapshot)}


def _cost(snapshot: SessionSnapshot) -> dict[str, Any]:
    cost = snapshot.metrics.cost
    return {} if cost is None else {"cost": {"amount": cost, "currency": snapshot.metrics.currency or "USD"}}


# The agent's own replay -----------------------------------------------------------------------------------


def show(session_id: str, updates: Iterable[Raw]) -> Iterator[RecordEvent | ToClient]:
    """Record updates and pass them on to the client; the start of a tool durably."""
    for update in updates:
        kind = update.get("sessionUpdate")
        if not is_withheld(kind, update):
            yield RecordEvent(session_id, {"update": update}, kind == "tool_call")
            yield shown(session_id, update)


def show_state(session_id: str, updates: Iterable[Raw]) -> Iterator[RecordEvent | ToClient]:
    """`show` the state updates, except plans; messages are dropped."""
    kinds = STATE_UPDATES.keys() - {"plan"}
    yield from show(session_id, [each for each in updates if each.get("sessionUpdate") in kinds])


class Withheld:
    """Updates that are kept from the client and the record for a while, by the agent's session id."""

    def __init__(self) -> None:
        self.held: dict[str, list[Raw]] = {}
        """Updates of sessions that are being loaded."""
        self.strays: dict[str, list[Raw]] = {}
        """Updates of unknown sessions, while a session is being created: they may belong to it."""
        self.making = 0
        """How many sessions are being created."""

    @contextmanager
    def of(self, agent_id: str) -> Iterator[list[Raw]]:
        """Collect the session's updates in the list."""
        held = self.held[agent_id] = []
        try:
            yield held
        finally:
            del self.held[agent_id]

    @contextmanager
    def making_sessions(self) -> Iterator[None]:
        """Hold updates of unknown sessions."""
        self.making += 1
        try:
            yield
        finally:
            self.making -= 1

    def take(self, agent_id: str, update: Raw, *, is_new: bool) -> bool:
        """Withhold *update* if its session is being loaded, or may be the one that is being created."""
        into = self.held.get(agent_id)
        if into is None and self.making and is_new:
            into = self.strays.setdefault(agent_id, [])
        if into is not None:
            into.append(update)
        return into is not None

    def released(self, is_known: Callable[[str], bool]) -> Actions:
        """Show the updates of sessions that are not known yet, once no session is being created."""
        if self.making:
            return []
        strays, self.strays = self.strays, {}
        unknown = [(agent_id, strays[agent_id]) for agent_id in strays if not is_known(agent_id)]
        return [shown(agent_id, update) for agent_id, updates in unknown for update in updates]


_LONG, _LONG_RUN = 12, 1000
"""So much text at the end of a recorded text is a repetition; a shorter one must be a whole text. After so much
repeated text, the record is not searched for another place that has it.
"""


class LateReplay:
    """Recognizes what an agent replays of *record* after it was restored, until the next prompt.

    Text that is also in the record is held until it differs: an agent that continues unprompted may begin with the
    same words, and none of them may be lost. Tool calls are recognized by id or title. Plans are dropped: a replay
    has old ones.
    """

    def __init__(self, record: SessionSnapshot) -> None:
        texts = [message.text for message in record.messages]
        blocks = [block for message in record.messages for block in message.content]
        texts += [block.text for block in blocks if isinstance(block, TextBlock | ThoughtBlock)]
        self._said = "\0".join(["", *map(squeezed, texts), ""])
        calls = [block for block in blocks if isinstance(block, ToolCallBlock)]
        self._calls = {call.tool_call_id: call.title or "" for call in calls}
        self._titles = Counter(call.title for call in calls if call.title)
        """How many calls of each title the agent may still repeat: a further one is new."""
        self._repeated: set[str] = set()
        self._held: list[Raw] = []
        self._run = (0, 0)
        """Where the record has the text of the held updates."""
        self._kind, self._is_news = "", False
        """The kind of the last update, and whether its text was new: then text that follows it is new, too."""

    def news(self, update: Raw) -> list[Raw]:
        """Return what to pass on now: *update*, after held ones that are no repetition; nothing if it repeats."""
        kind, text = str(update.get("sessionUpdate")), text_in(update)
        if kind in STATE_UPDATES:
            return [] if kind == "plan" else [update]
        before, self._kind = self._kind, kind
        if text is None:
            return [] if self._is_repeated_call(update) else [*self.rest(), update]
        if kind != before:
            return [*self.rest(), *self._held_or_news(update, text)]
        return [update] if self._is_news else self._held_or_news(update, text)

    def _held_or_news(self, update: Raw, text: str) -> list[Raw]:
        self._is_news = not self._continues(squeezed(text))
        if self._is_news:
            start, end = self._run
            short = self._held if end - start < _LONG else []  # "one" may well begin a new text, too
            released = self.rest()
            if not released and self._continues(squeezed(text)):  # after one repeated text, the next begins
                self._is_news = False
            else:
                return [*(released or short), update]
        self._held.append(update)
        return []

    def _continues(self, text: str) -> bool:
        """Whether the record has *text* after the held text. Its place is kept, so that many chunks are fast."""
        start, end = self._run
        if not self._said.startswith(text, end):
            held = self._said[start:end]
            start = self._said.find(held + text) if len(held) < _LONG_RUN else -1
            end = start + len(held)
        if start < 0:
            return False
        self._run = start, end + len(text)
        return True

    def rest(self) -> list[Raw]:
        """Remove and return the held updates, unless they repeat the record."""
        (start, end), held = self._run, self._held
        self._run, self._held = (0, 0), []
        text = self._said[start:end]
        whole = f"{text}\0" if len(text) >= _LONG else f"\0{text}\0"
        return [] if whole in self._said else held

    def _is_repeated_call(self, update: Raw) -> bool:
        call_id = str(update.get("toolCallId"))
        if self._kind == "tool_call" and call_id not in self._repeated:
            title = self._calls.get(call_id, str(update.get("title")))
            if self._titles[title] > 0:
                self._titles[title] -= 1
                self._repeated.add(call_id)
        is_known = call_id in self._repeated or call_id in self._calls
        return self._kind in ("tool_call", "tool_call_update") and is_known

    def replayed(self, updates: Iterable[Raw]) -> None:
        """The agent has already replayed these: their tool calls are not expected again."""
        for update in updates:
            self._kind = str(update.get("sessionUpdate"))
            self._is_repeated_call(update)


def squeezed(text: str) -> str:
    """*text* without white space, which agents change when they replay."""
    return "".join(text.split())


# Our notes, which the agent may show again ----------------------------------------------------------------


def is_withheld(kind: Any, update: Raw) -> bool:
    """Whether an update only repeats our note to the model, which is neither user text nor a title."""
    if kind == "user_message_chunk":
        text = text_in(update)
        return text is not None and is_note(text)
    title = update.get("title") if kind == "session_info_update" else None
    return isinstance(title, str) and is_note(title.strip())


def is_note(text: str) -> bool:
    """Whether *text* begins with one of our notes, or is the beginning of one."""
    return text.startswith(NOTE_BEGINS) or (len(text) > len("<restoration") and NOTE_BEGINS.startswith(text))


def split_notes(text: str) -> Iterator[tuple[bool, str]]:
    """Split *text* at notes; yield (is a note, piece)."""
    return ((is_note(piece), piece) for piece in _NOTE.split(text) if piece)
