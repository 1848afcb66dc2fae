"""Does the agent remember? Its own replay, held against the record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from snapshot_plugin.adapters.acp.notes import split_notes
from snapshot_plugin.adapters.acp.turns import Turn, turns
from snapshot_plugin.model.content import TextBlock, ToolCallBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot

__all__ = ["Verdict", "compare"]

_ROLES = {"user_message_chunk": "user", "agent_message_chunk": "assistant"}
_PATIENCE = 1 << 28


class Verdict(NamedTuple):
    """What the agent's replay lacks. `whole`: it has every finished turn; `blank`: it has nothing that was said."""

    kind: Literal["whole", "partial", "blank"]
    missing: tuple[Message, ...] = ()
    """What the model should be told: messages that were not shown, and the last one if a tool was running in it."""


def compare(
    record: SessionSnapshot,
    updates: Iterable[dict[str, Any]],
) -> Verdict:
    """Hold what the agent replayed against the record: by order and by words, never by ids or chunk borders.

    Agents show internal texts as user messages, rename tools, number calls anew and space words differently: what
    is more does not matter, only what is missing. A turn that was cut off may be missing, and so may a refused
    one, which nobody is to be reminded of. What a restoration note told the model, the model knows.
    """
    search = _Search(_shown(updates))
    looked_for = [found for turn in turns(record.messages) for found in _look_for(turn, search)]
    missing = tuple(found.message for found in looked_for if found.tell or _runs_a_tool(found, record))
    spoken = [found for found in looked_for if _pieces(found.message)]
    if spoken and not any(found.there for found in spoken):
        return Verdict("blank", missing)
    return Verdict("whole" if all(found.there or not found.required for found in spoken) else "partial", missing)


class _Found(NamedTuple):
    message: Message
    turn: Turn
    required: bool
    there: bool

    @property
    def tell(self) -> bool:
        return not self.there and not self.turn.refused


def _look_for(turn: Turn, search: _Search) -> list[_Found]:
    """What must be there is looked for behind what was found last; what may be there does not count as a place."""
    required = _answered(turn) if turn.settled else ()
    founds = [_Found(message, turn, required=True, there=search.has(message)) for message in required]
    with search.looking_ahead():
        rest = turn.messages[len(required) :]
        return founds + [_Found(message, turn, required=False, there=search.has(message)) for message in rest]


def _answered(turn: Turn) -> Sequence[Message]:
    """The prompt and its answer. What an agent said afterwards, by itself, it need not remember."""
    answers = [at for at, message in enumerate(turn.messages) if message.role == "assistant"]
    return turn.messages[: answers[0] + 1]


def _runs_a_tool(found: _Found, record: SessionSnapshot) -> bool:
    """Whether the record ends with this message while a tool was running. Later on, the model was told already."""
    if found.turn.settled or found.turn.refused or found.message is not record.messages[-1]:
        return False
    return any(isinstance(block, ToolCallBlock) and block.is_open for block in found.message.content)


class _Search:
    """Finds messages in what their side was shown to say, one behind the other, however the agent cut or joined."""

    def __init__(self, said: dict[str, str]) -> None:
        self._said = said
        self._behind = dict.fromkeys(said, 0)
        self._patience = _PATIENCE

    def has(self, message: Message) -> bool:
        """Whether the message comes behind the one of its side that was found last."""
        pieces = _pieces(message)
        at = self._behind.get(message.role, 0)
        for piece in pieces:
            place = self._find(piece, message.role, at)
            if place < 0:
                return False
            at = place + len(piece)
        if pieces:
            self._behind[message.role] = at
        return True

    def _find(self, piece: str, role: str, at: int) -> int:
        """Where the piece is. Looking in vain is what takes long, so after very much of it nothing is found."""
        place = self._said[role].find(piece, at) if self._patience > 0 else -1
        self._patience -= len(self._said[role]) - at if place < 0 else 0
        return place

    @contextmanager
    def looking_ahead(self) -> Iterator[None]:
        """What is found inside is not what the next search begins behind."""
        before = dict(self._behind)
        yield
        self._behind = before


def _shown(updates: Iterable[dict[str, Any]]) -> dict[str, str]:
    """What each side said, without white space. What stands in a restoration note, either may have said."""
    runs: list[tuple[str, list[str]]] = []
    for update in updates:
        role = _ROLES.get(str(update.get("sessionUpdate")))
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        if role is None or not isinstance(text, str):
            continue
        if not runs or runs[-1][0] != role:
            runs.append((role, []))
        runs[-1][1].append(text)
    pieces = [(role, *piece) for role, texts in runs for piece in split_notes("".join(texts))]
    return {
        side: "".join(_squeezed(text) for role, is_note, text in pieces if is_note or role == side)
        for side in _ROLES.values()
    }


def _pieces(message: Message) -> list[str]:
    """The words of a message between its tool calls and attachments, which agents show in their own way."""
    if message.role not in _ROLES.values():
        return []
    texts = (_squeezed(block.text) for block in message.content if isinstance(block, TextBlock))
    return [text for text in texts if text]


def _squeezed(text: str) -> str:
    return "".join(text.split())
