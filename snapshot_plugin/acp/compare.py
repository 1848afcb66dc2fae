"""Compare the agent's own replay with the record, to see whether the agent remembers the session.

`finished_calls` takes over what only the replay has: the outcome of tools that the agent never reported.

The rule (docs/explanation/fidelity.md): an agent keeps its memory unless its replay is blank or has turns that
are not ours. Missing parts of the conversation are told to the model. Notices, slash commands, messages that a
compaction replaced and refused turns do not count as missing. An interrupted turn is always told to the model,
because the agent may replay a turn that its model does not have.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from snapshot_plugin.acp.messages import text_in
from snapshot_plugin.acp.reducer import reduce_events
from snapshot_plugin.acp.replay import split_notes, squeezed
from snapshot_plugin.acp.state import Turn, messages_in_note, note_pending, turns, was_interrupted
from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.frozen import thaw
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Verdict", "compare", "finished_calls"]

_ROLES = {"user_message_chunk": "user", "agent_message_chunk": "assistant"}
_SEARCH_BUDGET = 1 << 28
_NOTICE = re.compile(r"^\W*(info|warning|warn|note|notice|error|tip|hint|debug)\b\W*[:!\]]", re.IGNORECASE)
_SHORTEST_NOTICE = 12
_COMMAND = re.compile(r"^/[a-z][\w:-]*(\s|$)", re.IGNORECASE)
_COMPACTION = re.compile(r"^/(compact|compress|summari[sz]e)\b", re.IGNORECASE)


class Verdict(NamedTuple):
    """What the agent's replay lacks.

    ``whole``: nothing is missing. ``partial``: the model must be told `missing`. ``blank``: the replay has nothing
    of the conversation. ``foreign``: the replay also has turns that are not ours.
    """

    kind: Literal["whole", "partial", "blank", "foreign"]
    missing: tuple[Message, ...] = ()
    """What the model must be told: messages that were not replayed, and the interrupted turn."""
    end: tuple[Message, ...] = ()
    """The messages of completed turns at the end of the record that were not replayed."""
    news: str = ""
    """Agent text for the interrupted turn that came with the load and is not in the record."""

    @property
    def is_native(self) -> bool:
        """Whether the agent's memory is worth keeping."""
        return self.kind in ("whole", "partial")


def compare(record: SessionSnapshot, updates: Iterable[dict[str, Any]]) -> Verdict:
    """Compare what the agent replayed with the record: by order and text, never by ids or chunk borders.

    Internal texts shown as user messages, renamed tools, renumbered calls and different white space are ignored.
    Messages that an earlier restoration note told the agent are not expected in its replay.
    """
    shown = _Shown(updates, _repeated_starts(record.messages))
    told = messages_in_note(record)
    if note_pending(record):
        return Verdict("blank", record.messages)
    recent = list(turns(record.messages[told:]))
    compacted = _last_compaction(recent)
    looked_for = [found for turn in recent[compacted:] for found in _look_for(turn, shown)]
    spoken = [found for found in looked_for if _pieces(found.message) and not found.turn.is_command]
    missing = tuple(found.message for found in looked_for if found.is_told(record))
    if not shown.text or (spoken and not compacted and not any(found.there for found in spoken)):
        return Verdict("blank" if spoken or compacted else "whole", missing)
    if shown.has_foreign_turn(record, skip_first=bool(compacted or told)):
        return Verdict("foreign", missing)
    lacks = any(found.required and not found.there for found in spoken)
    return Verdict("partial" if lacks else "whole", missing, _lost_end(spoken), shown.news(record))


def finished_calls(record: SessionSnapshot, updates: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return updates of the calls that completed turns of the record left open, with their outcome in the replay.

    Agents may renumber their calls: then those of one title are matched in order, if both have as many.
    """
    ours = [call for turn in turns(record.messages) for call in _calls(turn.messages)]
    ended = [turn for turn in turns(record.messages) if turn.settled and turn.has_ended]
    settled = [call for turn in ended for call in _calls(turn.messages)]
    newest = {call.tool_call_id: call for call in ours}  # agents reuse ids, and an update changes the newest
    unfinished = [call for call in settled if call.is_open and newest[call.tool_call_id] is call]
    if not unfinished:
        return []
    replayed = reduce_events(record.evolve(messages=()), ({"update": each} for each in updates), record.updated_at)
    theirs = _calls(replayed.messages)
    by_id = {call.tool_call_id: call for call in theirs}
    found = [(call, by_id.get(call.tool_call_id) or _same_in_order(call, ours, theirs)) for call in unfinished]
    return [_outcome(call, other) for call, other in found if other is not None and not other.is_open]


def _calls(messages: Iterable[Message]) -> list[ToolCallBlock]:
    return [block for message in messages for block in message.content if isinstance(block, ToolCallBlock)]


def _same_in_order(
    call: ToolCallBlock, ours: Sequence[ToolCallBlock], theirs: Sequence[ToolCallBlock]
) -> ToolCallBlock | None:
    mine, others = ([each for each in side if each.title == call.title] for side in (ours, theirs))
    at = next(index for index, each in enumerate(mine) if each is call)
    return others[at] if call.title and len(mine) == len(others) else None


def _outcome(call: ToolCallBlock, replayed: ToolCallBlock) -> dict[str, Any]:
    """Return the update that closes *call*. What was recorded stays where the replay has less."""
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call.tool_call_id, "status": replayed.status}
    for name, ours, theirs in (
        ("content", call.content, replayed.content),
        ("rawOutput", call.raw_output, replayed.raw_output),
    ):
        if theirs is not None and len(str(theirs)) > len(str(ours or "")):
            update[name] = thaw(theirs)
    return update


def _last_compaction(recent: Sequence[Turn]) -> int:
    """Return the index of the last compaction; the agent need not replay earlier turns. 0 if there is none."""
    at = [index for index, turn in enumerate(recent) if _is_compaction(turn)]
    return at[-1] if at else 0


def _is_compaction(turn: Turn) -> bool:
    if turn.messages[0].role == "user" and _COMPACTION.match(turn.messages[0].text.strip()):
        return True
    blocks = (block.raw() for message in turn.messages for block in message.content if block.type == "acp_update")
    return any(
        isinstance(update := raw.get("update"), dict)
        and update.get("sessionUpdate") == "compaction_update"
        and update.get("status") == "completed"
        for raw in blocks
    )


class _ReadTurn(NamedTuple):
    """A turn, and whether it was a slash command."""

    turn: Turn
    is_command: bool


class _Found(NamedTuple):
    message: Message
    turn: _ReadTurn
    required: bool
    there: bool

    def is_told(self, record: SessionSnapshot) -> bool:
        """Whether the model must be told this message."""
        turn = self.turn.turn
        if turn.refused:
            return False
        is_last = turn.messages[-1] is record.messages[-1]
        if is_last and (any(was_interrupted(message) for message in turn.messages) or self._runs_a_tool()):
            return True
        return not self.there and not self.turn.is_command

    def _runs_a_tool(self) -> bool:
        if self.turn.turn.settled or self.message is not self.turn.turn.messages[-1]:
            return False
        return any(isinstance(block, ToolCallBlock) and block.is_open for block in self.message.content)


def _look_for(turn: Turn, shown: _Shown) -> list[_Found]:
    """Search for each message of *turn*. Only required messages move the position of the next search."""
    read = _ReadTurn(turn, bool(turn.messages[0].role == "user" and _COMMAND.match(turn.messages[0].text.strip())))
    required = _answered(turn) if turn.settled and not read.is_command else ()
    founds = [_Found(message, read, required=True, there=shown.has(message)) for message in required]
    with shown.looking_ahead():
        rest = turn.messages[len(required) :]
        return founds + [_Found(message, read, required=False, there=shown.has(message)) for message in rest]


def _answered(turn: Turn) -> Sequence[Message]:
    """Return the prompt and its answer, without unprompted messages after it, which are optional."""
    answers = [at for at, message in enumerate(turn.messages) if message.role == "assistant"]
    return turn.messages[: answers[0] + 1]


def _lost_end(spoken: Sequence[_Found]) -> tuple[Message, ...]:
    required = [found for found in spoken if found.required]
    there = [at for at, found in enumerate(required) if found.there]
    return tuple(found.message for found in required[there[-1] + 1 if there else 0 :])


class _Shown:
    """The replayed text of each side, without white space; messages are searched in order."""

    def __init__(self, updates: Iterable[dict[str, Any]], repeated: Mapping[str, int]) -> None:
        self._runs = list(_runs(updates))
        self._repeated = repeated
        pieces = [(role, *piece) for role, text in self._runs for piece in split_notes(text)]
        # Text in a restoration note may come from either side.
        self._said = {
            side: "".join(squeezed(text) for role, is_note, text in pieces if is_note or role == side)
            for side in _ROLES.values()
        }
        self._behind = dict.fromkeys(self._said, 0)
        self._budget = _SEARCH_BUDGET

    @property
    def text(self) -> bool:
        """Whether any text was replayed."""
        return any(self._said.values())

    def has(self, message: Message) -> bool:
        """Whether the message is found after the last match of its side, ignoring notices."""
        pieces = _pieces(message)
        if not pieces or self._has_all(pieces, message.role):
            return True
        lines = _without_notices(message)
        if lines is not None and self._has_all(lines, message.role):
            return True
        return message.role == "assistant" and self._has_all(self._without_start(pieces), message.role)

    def _without_start(self, pieces: list[str]) -> list[str]:
        """Drop a notice from the first piece: text that also starts another answer and is never replayed."""
        said, first = self._said["assistant"], pieces[0]
        repeated = self._repeated.get(first, 0)
        if repeated < _SHORTEST_NOTICE or self._budget <= 0:
            return pieces
        ahead = said[self._behind["assistant"] :]
        self._budget -= len(ahead) * len(first).bit_length()
        cut = bisect_left(range(len(first)), True, key=lambda start: first[start:] in ahead)
        is_notice = _SHORTEST_NOTICE <= cut <= repeated and first[:cut] not in said
        return [first[cut:], *pieces[1:]] if is_notice else pieces

    def _has_all(self, pieces: Sequence[str], role: str) -> bool:
        at = self._behind.get(role, 0)
        for piece in pieces:
            place = self._find(piece, role, at)
            if place < 0:
                return False
            at = place + len(piece)
        self._behind[role] = at
        return True

    def _find(self, piece: str, role: str, at: int) -> int:
        """Search for *piece* from *at*. Failed searches are slow, so searching stops once a budget is used up."""
        place = self._said[role].find(piece, at) if self._budget > 0 else -1
        self._budget -= len(self._said[role]) - at if place < 0 else 0
        return place

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """Matches inside the block do not move the position where the next search begins."""
        before = dict(self._behind)
        yield
        self._behind = before

    def has_foreign_turn(self, record: SessionSnapshot, *, skip_first: bool) -> bool:
        """Whether the replay has a prompt and its answer that are both not in this session."""
        ours = {
            side: [piece for message in record.messages if message.role == side for piece in _pieces(message)]
            for side in _ROLES.values()
        }
        joined = {side: "\n".join(texts) for side, texts in ours.items()}
        candidates = list(_exchanges(self._runs))[1 if skip_first else 0 :]
        return any(
            _is_foreign(asked, "user", ours, joined) and _is_foreign(answered, "assistant", ours, joined)
            for asked, answered in candidates
        )

    def news(self, record: SessionSnapshot) -> str:
        """Return the agent's text for an interrupted last turn that is not in the record."""
        last = list(turns(record.messages))[-1:]
        if not last or last[0].settled or last[0].messages[0].role != "user" or not self._runs:
            return ""
        role, text = self._runs[-1]
        known = "".join(message.text for message in last[0].messages if message.role == "assistant")
        if role != "assistant" or squeezed(text) in squeezed(known):
            return ""
        if not any(
            squeezed(last[0].messages[0].text) in squeezed(said) for who, said in self._runs if who == "user"
        ):
            return ""
        return text.removeprefix(known)


def _runs(updates: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Join adjacent text of one role; yield (role, text) in order."""
    speaker, texts = "", list[str]()
    for update in updates:
        role = _ROLES.get(str(update.get("sessionUpdate")))
        text = text_in(update)
        if role is None or text is None:
            continue
        if role != speaker and texts:
            yield speaker, "".join(texts)
            texts = []
        speaker = role
        texts.append(text)
    if texts:
        yield speaker, "".join(texts)


def _exchanges(runs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each user run without notes, and the run that follows it, both without white space."""
    for (role, text), (_, answer) in itertools.pairwise(runs):
        if role == "user":
            asked = "".join(squeezed(piece) for is_note, piece in split_notes(text) if not is_note)
            yield asked, squeezed(answer)


def _is_foreign(said: str, side: str, ours: dict[str, list[str]], joined: dict[str, str]) -> bool:
    return bool(said) and said not in joined[side] and not any(text and text in said for text in ours[side])


def _pieces(message: Message) -> list[str]:
    """Return the texts of a message. Tool calls and attachments are left out: agents replay them differently."""
    if message.role not in _ROLES.values():
        return []
    texts = (squeezed(block.text) for block in message.content if isinstance(block, TextBlock))
    return [text for text in texts if text]


def _without_notices(message: Message) -> list[str] | None:
    """Return the lines of a message without notices; None if it has no notices."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    kept = [squeezed(line) for line in lines if not _NOTICE.match(line)]
    return kept if len(kept) < len(lines) else None


def _repeated_starts(messages: Sequence[Message]) -> dict[str, int]:
    """Return, for each answer, how many characters of its start also start another answer."""
    firsts = {pieces[0] for message in messages if message.role == "assistant" and (pieces := _pieces(message))}
    starts = dict.fromkeys(firsts, 0)
    for one, other in itertools.pairwise(sorted(firsts)):
        same = itertools.takewhile(lambda letters: letters[0] == letters[1], zip(one, other, strict=False))
        length = sum(1 for _ in same)
        starts[one], starts[other] = max(starts[one], length), max(starts[other], length)
    return starts
