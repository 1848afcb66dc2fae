"""The parts of a framework's session that people see (title, turns, tokens, model), and hidden entries."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from snapshot_plugin.errors import (
    Damaged,
    InvalidInput,
    InvalidSnapshot,
    InvalidSnapshotVersion,
    SnapshotCorrupted,
    SnapshotError,
)
from snapshot_plugin.model.frozen import MAX_DEPTH, MAX_INT, thaw
from snapshot_plugin.model.snapshot import Message, Metrics, SessionSnapshot
from snapshot_plugin.model.times import as_utc

__all__ = [
    "FLOATS", "RAW", "checked", "described", "is_exact_json", "left_out", "mapped_exactly", "opaque", "raw_of",
    "reading", "title_of", "with_floats", "without_floats",
]  # fmt: skip

_log = logging.getLogger(__name__)

_TITLE = 80
RAW = "raw"
"""The key of an opaque entry's content, under its framework's name in `metadata`."""
FLOATS = "floats"
"""The key that says where text stands for a NaN, an infinity or bytes: in `metadata`, or in a section."""


def title_of(messages: Iterable[Message]) -> str | None:
    """The beginning of the first prompt, on one line."""
    for message in messages:
        if message.role == "user" and (words := " ".join(message.text[: 4 * _TITLE].split())):
            return words if len(words) <= _TITLE else words[: _TITLE - 1] + "…"
    return None


def described(
    snapshot: SessionSnapshot,
    messages: tuple[Message, ...],
    *,
    added: Sequence[Message] | None = None,
    updated_at: datetime | None = None,
    **facts: Any,
) -> SessionSnapshot:
    """*snapshot* with *messages*, a title from the first prompt, and its turns and tokens counted.

    A title that people gave stays. Messages that both have in common are counted once. A caller that only appends
    passes the new messages as *added* too: then the old ones are not compared.
    """
    known: dict[str, Any] = {} if updated_at is None else {"updated_at": as_utc(updated_at)}
    if messages is not snapshot.messages:
        known |= {"messages": messages, "metrics": _metrics(snapshot, messages, added)}
        if not snapshot.title and (title := title_of(messages[:20])):
            known["title"] = title
    changed = snapshot.model_copy(update=known) if known else snapshot
    return changed.evolve(**facts) if facts else changed


def _metrics(snapshot: SessionSnapshot, messages: tuple[Message, ...], added: Sequence[Message] | None) -> Metrics:
    old, before = snapshot.messages, snapshot.metrics
    if added is None and messages[: len(old)] == old:
        added = messages[len(old) :]
    turns, given, said = _counted(messages if added is None else added)
    if added is not None:
        turns, given, said = turns + before.turns, given + before.input_tokens, said + before.output_tokens
    counts = {"turns": turns, "input_tokens": given, "output_tokens": said, "total_tokens": given + said}
    return before.model_copy(update=counts)


def _counted(messages: Sequence[Message]) -> tuple[int, int, int]:
    turns = given = said = 0
    for message in messages:
        turns += message.role == "user" and bool(message.content)
        usage = message.metadata.get("usage")
        if isinstance(usage, dict):
            given += _number(usage.get("input_tokens"))
            said += _number(usage.get("output_tokens"))
    return turns, given, said


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 1 << 40 else 0


def opaque(framework: str, raw: Any) -> Message:
    """A message that stores an entry for the framework; it has no text, so people do not see it."""
    return Message(role="system", metadata={framework: {RAW: raw}})


def mapped_exactly(
    framework: str, data: Any, mapped: Callable[[Any], Message | None], back: Callable[[Message], Any]
) -> Message:
    """*data* as `mapped` makes it, if `back` gives it back exactly; else the entry as it is, hidden from people.

    `back` passes what it returns through `with_floats`.

    Raises:
        InvalidInput: JSON cannot carry it.
    """
    if not is_exact_json(data, finite=False):
        raise InvalidInput("an entry holds bytes, a huge number, or is nested too deeply for JSON")
    data, floats = without_floats(data)
    message = _mapped_finite(framework, data, mapped, back)
    return message.evolve(metadata={**message.metadata, FLOATS: floats}) if floats else message


def _mapped_finite(
    framework: str, data: Any, mapped: Callable[[Any], Message | None], back: Callable[[Message], Any]
) -> Message:
    with contextlib.suppress(InvalidSnapshot, AttributeError, KeyError, TypeError, ValueError):
        message = mapped(data)
        if message is not None and back(message) == data:
            return message
    return opaque(framework, data)


def raw_of(framework: str, message: Message) -> Any:
    """The entry that `opaque` was given; None if the message is not opaque."""
    kept = message.metadata.get(framework)
    if not isinstance(kept, dict) or RAW not in kept or message.content:
        return None
    return with_floats(thaw(kept[RAW]), message.metadata)


def without_floats(data: Any) -> tuple[Any, list[list[Any]]]:
    """*data* with each NaN and infinity as text, and for each of them its path and that text.

    Bytes become text, too; ``"bytes"`` follows theirs.
    """
    floats: list[list[Any]] = []
    return (data, floats) if is_exact_json(data) else (_as_text(data, [], floats), floats)


def _as_text(value: Any, path: list[Any], floats: list[list[Any]]) -> Any:
    if type(value) is float and not math.isfinite(value):
        floats.append([path, json.dumps(value)])
        return json.dumps(value)
    if type(value) is bytes:
        text = base64.b64encode(value).decode()
        floats.append([path, text, "bytes"])
        return text
    if type(value) is dict and all(type(name) is str for name in value):
        return {name: _as_text(each, [*path, name], floats) for name, each in value.items()}
    if type(value) is list:
        return [_as_text(each, [*path, index], floats) for index, each in enumerate(value)]
    return value


def with_floats(data: Any, about: Mapping[str, Any]) -> Any:
    """Put what `without_floats` found, and *about* keeps under `FLOATS`, back into *data*.

    Raises:
        WrongFloats: they do not belong to *data*.
    """
    root: Any = [data]
    try:
        for path, text, *kind in about.get(FLOATS, ()):
            place, last = root, 0
            for step in path:
                place, last = place[last], step
            if place[last] != text:
                raise WrongFloats
            place[last] = base64.b64decode(text) if kind else float(text)
    except (LookupError, TypeError, ValueError) as error:
        raise WrongFloats from error
    return root[0]


class WrongFloats(ValueError):
    """What is kept under `FLOATS` does not belong to the entry."""


@contextlib.contextmanager
def reading(session_id: str, framework: str) -> Iterator[None]:
    """Use this to convert stored entries back: a session that another program wrote may hold anything.

    Raises:
        SnapshotCorrupted: an entry is not one that the adapter writes. It names the session and the field.
    """
    try:
        yield
    except SnapshotError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        field = FLOATS if isinstance(error, WrongFloats) else framework
        raise SnapshotCorrupted(
            f"session {session_id} holds an entry that the {framework} adapter did not write: "
            f"its field {field!r} is missing or does not fit",
            session_id=session_id, hint="was it imported, or changed by another program?",
        ) from error  # fmt: skip


@contextlib.contextmanager
def left_out(errors: list[SnapshotError] | None = None) -> Iterator[None]:
    """Use this for each of many sessions: a damaged one, or one of a newer adapter, does not stop the others.

    Its error is added to *errors*; without that, it is logged.
    """
    try:
        yield
    except (Damaged, InvalidSnapshotVersion) as error:
        if errors is None:
            _log.warning("left out of the list: %s", error)
        else:
            errors.append(error)


def is_exact_json(value: Any, levels: int = MAX_DEPTH - 8, *, finite: bool = True) -> bool:
    """Whether JSON gives *value* back with the same types: no tuples, no subclasses, and (*finite*) no NaN."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_INT < value < MAX_INT)
    if kind is float:
        return not finite or math.isfinite(value)
    if levels == 0:
        return False
    if kind is list:
        return all(is_exact_json(each, levels - 1, finite=finite) for each in value)
    return kind is dict and all(
        type(name) is str and is_exact_json(each, levels - 1, finite=finite) for name, each in value.items()
    )


def checked(found: SessionSnapshot | None, framework: str, known: int = 1) -> SessionSnapshot | None:
    """*found*, if this adapter can read it.

    Raises:
        InvalidInput: the session belongs to another framework, or to none.
        InvalidSnapshotVersion: a newer release of the adapter wrote it.
    """
    if found is not None and found.provider_type != framework:
        raise InvalidInput(
            f"session {found.session_id} belongs to {found.provider_type}, not to {framework}",
            session_id=found.session_id, hint="use another id, or a place of its own",
        )  # fmt: skip
    about = found.plugins.get(framework) if found else None
    written = about.get("format") if isinstance(about, dict) else about
    if found is not None and type(written) is int and written > known:
        raise InvalidSnapshotVersion(
            f"a newer {framework} adapter wrote session {found.session_id} (format {written}, known: {known})",
            session_id=found.session_id, hint="upgrade snapshot-plugin",
        )  # fmt: skip
    return found
