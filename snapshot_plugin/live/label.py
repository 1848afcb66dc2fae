"""A session's label (title, tags, pin, note) as part of its snapshot. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["LABELS", "apply_label", "carried_over", "label_of", "typed_label"]

LABELS: Final = ("title", "tags", "pinned", "note")
_NOTE: Final = "note"


def label_of(snapshot: SessionSnapshot) -> dict[str, Any]:
    """The label a snapshot carries: each of `LABELS`."""
    note = snapshot.metadata.get(_NOTE)
    return {
        "title": snapshot.title,
        "tags": list(snapshot.tags),
        "pinned": snapshot.pinned,
        "note": note if isinstance(note, str) else None,
    }


def apply_label(snapshot: SessionSnapshot, request: Mapping[str, Any]) -> SessionSnapshot:
    """*snapshot* with the `LABELS` that *request* names; other keys of *request* are ignored.

    Only types are checked, so that old labels can always be restored; user input goes through `checked_label`
    first. ``updated_at`` stays: a rename does not make an old session look recent. Returns *snapshot* itself if
    nothing changes.

    Raises:
        InvalidInput: a value has the wrong type.
    """
    before = label_of(snapshot)
    changes = {name: value for name, value in typed_label(request).items() if before[name] != value}
    if "note" in changes:
        others = {name: value for name, value in snapshot.metadata.items() if name != _NOTE}
        note = changes.pop("note")
        changes["metadata"] = others if note is None else {**others, _NOTE: note}
    return snapshot.evolve(**changes) if changes else snapshot


def carried_over(before: SessionSnapshot, now: SessionSnapshot) -> dict[str, Any]:
    """The label fields of *before* that *now* lacks, because its writer does not keep labels."""
    old, new = label_of(before), label_of(now)
    return {name: value for name, value in old.items() if value and not new[name]}


def typed_label(request: Mapping[str, Any]) -> dict[str, Any]:
    """The `LABELS` that *request* names. Raises `InvalidInput` if one has the wrong type."""
    kinds = {"title": _is_text, "tags": _are_tags, "pinned": _is_flag, "note": _is_text}
    for name, is_right in kinds.items():
        if name in request and not is_right(request[name]):
            raise InvalidInput(f"the {name} of a session cannot be a {type(request[name]).__name__}")
    return {name: request[name] for name in LABELS if name in request}


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _are_tags(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(tag, str) for tag in value)
