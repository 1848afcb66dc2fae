"""Checks of what callers pass to a store: a wrong type is refused by name, before anything is read or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.ids import check_number

__all__ = ["check_kind", "checked_labels", "checked_numbers", "no_snapshot", "not_text"]


def no_snapshot(given: object) -> InvalidInput:
    """The error for a save of something else."""
    return InvalidInput(f"{given!r:.60} is not a SessionSnapshot", hint="pass what load returned, or make one")


def not_text(session_id: str, given: object) -> InvalidInput:
    """The error for a trigger, tags or labels that are not text."""
    return InvalidInput(
        f"session {session_id} cannot be saved with {given!r}: trigger, tags and labels are text",
        session_id=session_id, hint="write tags=['name'] and labels={'name': 'value'}",
    )  # fmt: skip


def checked_labels(labels: object) -> Mapping[str, str]:
    """The labels to look for."""
    if isinstance(labels, Mapping) and all(isinstance(word, str) for word in (*labels, *labels.values())):
        return labels
    raise InvalidInput(f"labels={labels!r} is not a mapping of text to text", hint="as labels={'name': 'value'}")


def checked_numbers(seqs: Collection[int]) -> tuple[int, ...]:
    """The numbers of several snapshots."""
    if isinstance(seqs, str | bytes) or not isinstance(seqs, Iterable):
        raise InvalidInput(f"seqs={seqs!r} is not a list of snapshot numbers", hint="as [1, 2]")
    numbers = tuple(seqs)
    for number in numbers:
        if number is None:
            raise InvalidInput("None is not the number of a snapshot", hint="as [1, 2]")
        check_number("seq", number)
    return numbers


def check_kind(name: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raise `InvalidInput` unless *value*, the argument *name*, is a *kind*, or (*optional*) None."""
    if not isinstance(value, kind) and not (optional and value is None):
        raise InvalidInput(f"{name}={value!r} is not a {kind.__name__}", hint=f"pass a {kind.__name__}")
