"""Which function turns the spooled records of a provider type into a snapshot.

The package knows those below by name and imports them when they are needed, so recovery needs no adapter in sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from snapshot_plugin.errors import InvalidSnapshot
from snapshot_plugin.live.ports import Record, Reduce
from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["KNOWN", "reduced"]

KNOWN: Final = {
    "messages": "snapshot_plugin.live.messages:reduce_messages",
    "acp": "snapshot_plugin.acp.reducer:reduce_spool",
}
"""Provider type to ``module:function``."""

_DEFAULT: Final = "messages"


def reduced(
    start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce] | None = None
) -> SessionSnapshot:
    """*start* with *records* applied, by the function in *more* or in `KNOWN` for their provider type.

    Raises:
        InvalidSnapshot: no function is known for them, or it raised, or it returned another session.
    """
    reduce = _reduce_for(start, records, more or {})
    try:
        snapshot = reduce(start, records)
    except Exception as error:
        raise InvalidSnapshot(f"the spool could not be applied: {type(error).__name__}: {error}") from error
    if getattr(snapshot, "session_id", None) != start.session_id:
        raise InvalidSnapshot(f"the spool turned into something that is not session {start.session_id!r}")
    return snapshot


def _reduce_for(start: SessionSnapshot, records: Sequence[Record], more: Mapping[str, Reduce]) -> Reduce:
    """The first record may name the provider type; else the session does, and else it is messages."""
    named = records[0].data.get("provider_type")
    if named is None:
        named = start.provider_type if start.provider_type in {*more, *KNOWN} else _DEFAULT
    if not isinstance(named, str) or (named not in more and named not in KNOWN):
        raise InvalidSnapshot(f"no reducer is known for records of provider type {named!r}")
    return more[named] if named in more else _imported(KNOWN[named])


def _imported(name: str) -> Reduce:
    module, _, function = name.partition(":")
    found: Reduce = getattr(import_module(module), function)
    return found
