"""Does the agent remember? Its own replay, compared with the record.

The rule (docs/explanation/fidelity.md): an agent keeps its memory unless its replay is blank or holds turns that
are not ours. What it lacks of the conversation is told to the model. Not part of the conversation: notices, slash
commands, what a compaction replaced, refused turns. An interrupted turn is always told to the model, because a
replayed turn may not be in its memory.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from snapshot_plugin.acp.notes import split_notes
from snapshot_plugin.acp.state import Turn, told_messages, turns, was_interrupted
from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Verdict", "compare", "is_late_replay"]

_REPEATED = ("tool_call", "tool_call_update", "plan")
_ROLES = {"user_message_chunk": "user", "agent_message_chunk": "assistant"}
_PATIENCE = 1 << 28
_NOTICE = re.compile(r"^\W*(info|warning|warn|note|notice|error|tip|hint|debug)\b\W*[:!\]]", re.IGNORECASE)
_SHORTEST_NOTICE = 12
_COMMAND = re.compile(r"^/[a-z][\w:-]*(\s|$)", re.IGNORECASE)
_COMPACTION = re.compile(r"^/(compact|compress|summari[sz]e)\b", re.IGNORECASE)


class Verdict(NamedTuple):
    """What the agent's replay lacks.

    ``whole``: nothing of the conversation. ``partial``: `missing` has to be told. ``blank``: it shows nothing of
    what was said. ``foreign``: it also shows turns that are not ours.
    """

    kind: Literal["whole", "partial", "blank", "foreign"]
    missing: tuple[Message, ...] = ()
    """What the model must be told: what was not shown, and the turn that was cut off."""
    end: tuple[Message, ...] = ()
    """The acknowledged turns at the end of the record of which nothing was shown."""
    news: str = ""
    """What the agent said by itself while it loaded, about the turn that was cut off."""

    @property
    def is_native(self) -> bool:
        """Whether the agent's memory is worth keeping."""
        return self.kind in ("whole", "partial")


def compare(record: SessionSnapshot, updates: Iterable[dict[str, Any]]) -> Verdict:
    """Compare what the agent replayed with the record: by order and by words, never by ids or chunk borders.

    Agents show internal texts as user messages, rename tools, number calls anew and space words differently. That
    does not matter. Messages that an earlier restoration note told the agent are not expected in its replay.
    """
    shown = _Shown(updates, _repeated_starts(record.messages))
    told = told_messages(record)
    if told and told >= len(record.messages):
        return Verdict("blank", record.messages)  # the note was never sent: the agent's session is empty
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


def is_late_replay(record: SessionSnapshot, update: dict[str, Any]) -> bool:
    """Whether an update after a restore repeats the record, and is not news."""
    if update.get("sessionUpdate") in _REPEATED:
        return True
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) else None
    return isinstance(text, str) and any(text.strip() in message.text for message in record.messages)


def _last_compaction(recent: Sequence[Turn]) -> int:
    """The index of the turn from which on the agent can be expected to show what was said."""
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
    """Required text is searched after the last match; optional text does not move that position."""
    read = _ReadTurn(turn, bool(turn.messages[0].role == "user" and _COMMAND.match(turn.messages[0].text.strip())))
    required = _answered(turn) if turn.settled and not read.is_command else ()
    founds = [_Found(message, read, required=True, there=shown.has(message)) for message in required]
    with shown.looking_ahead():
        rest = turn.messages[len(required) :]
        return founds + [_Found(message, read, required=False, there=shown.has(message)) for message in rest]


def _answered(turn: Turn) -> Sequence[Message]:
    """The prompt and its answer, without unprompted messages after it, which need not be remembered."""
    answers = [at for at, message in enumerate(turn.messages) if message.role == "assistant"]
    return turn.messages[: answers[0] + 1]


def _lost_end(spoken: Sequence[_Found]) -> tuple[Message, ...]:
    required = [found for found in spoken if found.required]
    there = [at for at, found in enumerate(required) if found.there]
    return tuple(found.message for found in required[there[-1] + 1 if there else 0 :])


class _Shown:
    """What each side was shown to say, without white space; messages are found one after the other."""

    def __init__(self, updates: Iterable[dict[str, Any]], repeated: Mapping[str, int]) -> None:
        self._runs = list(_runs(updates))
        self._repeated = repeated
        pieces = [(role, *piece) for role, text in self._runs for piece in split_notes(text)]
        # Text in a restoration note may come from either side.
        self._said = {
            side: "".join(_squeezed(text) for role, is_note, text in pieces if is_note or role == side)
            for side in _ROLES.values()
        }
        self._behind = dict.fromkeys(self._said, 0)
        self._patience = _PATIENCE

    @property
    def text(self) -> bool:
        """Whether anything was shown."""
        return any(self._said.values())

    def has(self, message: Message) -> bool:
        """Whether the message follows the one of its side that was found last, notices aside."""
        pieces = _pieces(message)
        if not pieces or self._has_all(pieces, message.role):
            return True
        lines = _without_notices(message)
        if lines is not None and self._has_all(lines, message.role):
            return True
        return message.role == "assistant" and self._has_all(self._without_start(pieces), message.role)

    def _without_start(self, pieces: list[str]) -> list[str]:
        """The pieces without a notice: words that start this answer and another, and that are never replayed."""
        said, first = self._said["assistant"], pieces[0]
        repeated = self._repeated.get(first, 0)
        if repeated < _SHORTEST_NOTICE or self._patience <= 0:
            return pieces
        ahead = said[self._behind["assistant"] :]
        self._patience -= len(ahead) * len(first).bit_length()
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
        """Failed searches are slow, so searching stops after a budget is used up."""
        place = self._said[role].find(piece, at) if self._patience > 0 else -1
        self._patience -= len(self._said[role]) - at if place < 0 else 0
        return place

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """What is found inside does not move the place where the next search begins."""
        before = dict(self._behind)
        yield
        self._behind = before

    def has_foreign_turn(self, record: SessionSnapshot, *, skip_first: bool) -> bool:
        """Whether it shows a prompt and an answer that are both not of this session."""
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
        """The agent's text for an interrupted turn that is not in the record."""
        last = list(turns(record.messages))[-1:]
        if not last or last[0].settled or last[0].messages[0].role != "user" or not self._runs:
            return ""
        role, text = self._runs[-1]
        known = "".join(message.text for message in last[0].messages if message.role == "assistant")
        if role != "assistant" or _squeezed(text) in _squeezed(known):
            return ""
        if not any(
            _squeezed(last[0].messages[0].text) in _squeezed(said) for who, said in self._runs if who == "user"
        ):
            return ""
        return text.removeprefix(known)


def _runs(updates: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Who said what, one side after the other."""
    speaker, texts = "", list[str]()
    for update in updates:
        role = _ROLES.get(str(update.get("sessionUpdate")))
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        if role is None or not isinstance(text, str):
            continue
        if role != speaker and texts:
            yield speaker, "".join(texts)
            texts = []
        speaker = role
        texts.append(text)
    if texts:
        yield speaker, "".join(texts)


def _exchanges(runs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Each user run with the answer that follows it, both without notes and white space."""
    for (role, text), (_, answer) in itertools.pairwise(runs):
        if role == "user":
            asked = "".join(_squeezed(piece) for is_note, piece in split_notes(text) if not is_note)
            yield asked, _squeezed(answer)


def _is_foreign(said: str, side: str, ours: dict[str, list[str]], joined: dict[str, str]) -> bool:
    return bool(said) and said not in joined[side] and not any(text and text in said for text in ours[side])


def _pieces(message: Message) -> list[str]:
    """The words of a message between its tool calls and attachments, which agents show in their own way."""
    if message.role not in _ROLES.values():
        return []
    texts = (_squeezed(block.text) for block in message.content if isinstance(block, TextBlock))
    return [text for text in texts if text]


def _without_notices(message: Message) -> list[str] | None:
    """The lines of a message that are no notices; None if it has no notices."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    kept = [_squeezed(line) for line in lines if not _NOTICE.match(line)]
    return kept if len(kept) < len(lines) else None


def _repeated_starts(messages: Sequence[Message]) -> dict[str, int]:
    """How many letters at the start of each answer also start another answer."""
    firsts = {pieces[0] for message in messages if message.role == "assistant" and (pieces := _pieces(message))}
    starts = dict.fromkeys(firsts, 0)
    for one, other in itertools.pairwise(sorted(firsts)):
        same = itertools.takewhile(lambda letters: letters[0] == letters[1], zip(one, other, strict=False))
        length = sum(1 for _ in same)
        starts[one], starts[other] = max(starts[one], length), max(starts[other], length)
    return starts


def _squeezed(text: str) -> str:
    return "".join(text.split())
