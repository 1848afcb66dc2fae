"""Parts of a framework's messages as blocks, and back.

The words of a part, or its tool call, are a block that people can read; its other fields are its *rest*, which the
message's metadata holds. A part that is not readable is a block as it is, and its rest is None. A part that holds a
list of parts has a block for each of them, and their rests in place of the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from snapshot_plugin.model.frozen import thaw

__all__ = ["PartMap", "ShownAs"]

_EMPTY = {"text": "", "title": ""}
"""Fields that a stored block leaves out if they are empty."""
_TEXTS = frozenset({"text", "title", "toolCallId"})
"""Fields of a block that must be text."""


class ShownAs(NamedTuple):
    """How parts of a kind are shown."""

    block: str
    """The type of the block."""
    fields: Mapping[str, str]
    """Which field of the part is which field of the block; both by their stored names."""
    status: Callable[[Mapping[str, Any]], str] | None = None
    """The status of a tool call that has ended."""


class PartMap:
    """Turns parts into blocks and back.

    Args:
        kind: returns the kind of a part, given the part or its rest.
        shown: how parts are shown, by kind.
        inner: the field that may hold a list of parts, by kind. Each of these may also be plain text.
        prefix: before the kind of a part that is not readable, if parts do not have a ``type`` themselves.
    """

    def __init__(
        self,
        kind: Callable[[Mapping[str, Any]], str],
        shown: Mapping[str, ShownAs],
        inner: Mapping[str, str] = {},
        prefix: str = "",
    ) -> None:
        self._kind, self._shown, self._inner, self._prefix = kind, shown, inner, prefix

    def blocks(self, parts: Sequence[Any]) -> tuple[list[dict[str, Any]], list[Any]]:
        """The blocks of *parts* as they are stored, and the rests."""
        blocks: list[dict[str, Any]] = []
        return blocks, [self._taken(part, blocks) for part in parts]

    def _taken(self, part: Any, blocks: list[dict[str, Any]]) -> Any:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
            return ""
        kind = self._kind(part)
        shown, inner = self._shown.get(kind), self._inner.get(kind)
        if shown and _fits(part, shown):
            blocks.append(_block_of(part, shown))
            return {name: value for name, value in part.items() if name not in shown.fields}
        if inner and isinstance(part.get(inner), list) and part[inner]:
            return {**part, inner: [self._taken(each, blocks) for each in part[inner]]}
        blocks.append({"type": self._prefix + kind, "part": part} if self._prefix else part)
        return None

    def parts(self, blocks: Sequence[Mapping[str, Any]], rests: Sequence[Any]) -> list[Any]:
        """The parts of stored *blocks*; *rests* become a part of them.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: they do not belong together.
        """
        left = iter(blocks)
        parts = [self._given(rest, left) for rest in rests]
        if next(left, None) is not None:
            raise ValueError("there are more blocks than parts")
        return parts

    def _given(self, rest: Any, left: Iterator[Mapping[str, Any]]) -> Any:
        if rest is None:
            block = thaw(next(left, None))
            return block["part"] if self._prefix else block
        if isinstance(rest, str):
            return next(left, _EMPTY).get("text", "")
        kind = self._kind(rest)
        inner = self._inner.get(kind)
        if inner in rest:
            return {**rest, inner: [self._given(each, left) for each in rest[inner]]}
        block = next(left, _EMPTY)
        for theirs, ours in self._shown[kind].fields.items():
            rest[theirs] = thaw(block.get(ours, _EMPTY.get(ours)))
        return rest


def _fits(part: Mapping[str, Any], shown: ShownAs) -> bool:
    return all(
        theirs in part and (ours not in _TEXTS or type(part[theirs]) is str)
        for theirs, ours in shown.fields.items()
    )


def _block_of(part: Mapping[str, Any], shown: ShownAs) -> dict[str, Any]:
    block = {"type": shown.block, **{ours: part[theirs] for theirs, ours in shown.fields.items()}}
    return {**block, "status": shown.status(part)} if shown.status else block
