"""Read a file: a bundle, a document, or another tool's session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from snapshot_plugin.errors import InvalidInput, InvalidSnapshot, LimitExceeded
from snapshot_plugin.exchange.bundle import MAX_CONTENT, MAX_MESSAGES, is_bundle, too_many_messages, unpack
from snapshot_plugin.exchange.carrying import as_copies
from snapshot_plugin.exchange.foreign import (
    is_claude_code,
    is_codex,
    is_opencode,
    load_dump,
    parse_json,
    parse_lines,
    read_claude_code,
    read_codex,
    read_opencode,
    shape_of,
)
from snapshot_plugin.migrate.fields import Raw
from snapshot_plugin.store.transfer import Copied

__all__ = ["FORMATS", "Contents", "read_sessions"]

FORMATS = ("bundle", "claude-code", "codex", "opencode", "openagent", "oneringai", "orbitmesh", "json")
"""The formats that can be read. `json` is a document of any version of ours, or a list of them."""

_MOST_OBJECTS = 400_000
_MOST_VALUES = 20_000_000
"""The most JSON values in a file. Each takes a few hundred bytes of memory, however short it is."""
_LINES: dict[str, tuple[Callable[[Sequence[Raw]], bool], Callable[[Sequence[Raw]], Raw]]] = {
    "claude-code": (is_claude_code, read_claude_code),
    "codex": (is_codex, read_codex),
}
_KNOWN = (
    "it can be a bundle, JSON of ours, or a session of Claude Code, Codex, OpenCode, openagent, oneringai or "
    "OrbitMesh"
)


class Contents(NamedTuple):
    """The contents of a file: its format, and each session with its snapshots."""

    format: str
    sessions: list[Sequence[Copied]]


async def read_sessions(
    data: bytes,
    *,
    now: datetime,
    wanted: str | None = None,
    limit: int = MAX_CONTENT,
) -> Contents:
    """The sessions in *data*. The format is detected, unless *wanted* names one of `FORMATS`.

    Raises:
        InvalidInput: the format is unknown, or not the one given.
        InvalidSnapshot: the content does not fit the format.
        InvalidSnapshotVersion: a newer release wrote it.
        LimitExceeded, SnapshotCorrupted, SnapshotTampered: see `bundle.unpack`.
    """
    if wanted == "bundle" or (wanted is None and is_bundle(data)):
        return Contents("bundle", list(unpack(data, limit=limit)))
    for mark, most, what in ((b"{", _MOST_OBJECTS, "objects"), (b",", _MOST_VALUES, "values")):
        if data.count(mark) > most:
            raise LimitExceeded(f"the file holds more than {most} {what}", hint="nothing was imported; split it")
    name, documents = _documents(_text(data), wanted)
    return Contents(name, [await as_copies(load_dump(_bounded(each)), now=now) for each in documents])


def _bounded(document: Any) -> Any:
    messages = document.get("messages") if isinstance(document, dict) else None
    if isinstance(messages, list) and len(messages) > MAX_MESSAGES:
        raise too_many_messages(str(document.get("session_id")))
    return document


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("this is neither a bundle nor text", hint=_KNOWN) from None
    if not text.strip():
        raise InvalidInput("the file is empty", hint=_KNOWN)
    if text.lstrip()[0] not in "{[":
        raise InvalidSnapshot("this is not a session file: it is neither a bundle nor JSON", hint=_KNOWN)
    return text


def _documents(text: str, wanted: str | None) -> tuple[str, list[Any]]:
    """The format, and the raw documents for `load_dump`."""
    if wanted in _LINES or (wanted is None and _is_lines(text)):
        lines = parse_lines(text)
        for name, (fits, read) in _LINES.items():
            if wanted in (name, None) and fits(lines):
                return name, [read(lines)]
        raise _unknown(wanted)
    document = parse_json(text)
    if wanted in ("opencode", None) and is_opencode(document):
        return "opencode", [read_opencode(document)]
    documents = document if isinstance(document, list) else [document]
    shapes = {shape_of(each) if isinstance(each, dict) else None for each in documents}
    name = (shapes.pop() if len(shapes) == 1 else None) or "json"
    if wanted not in (name, None) or not documents:
        raise _unknown(wanted)
    return name, documents


def _is_lines(text: str) -> bool:
    """Whether the first line is a JSON object, and either more lines follow or its kind is known."""
    first, _, rest = text.strip().partition("\n")
    try:
        value = parse_json(first)
    except InvalidSnapshot:
        return False
    if not isinstance(value, dict):
        return False
    return bool(rest) or any(fits([value]) for fits, _ in _LINES.values())


def _unknown(wanted: str | None) -> InvalidInput:
    if wanted is None:
        return InvalidInput("the format of these lines is unknown", hint=_KNOWN)
    return InvalidInput(
        f"this is not a session in the format {wanted!r}", hint="omit --format to detect the format"
    )
