"""Errors as every front end reports them: what happened, to which id, why, and what to run next."""

from __future__ import annotations

from typing import Any

from snapshot_plugin.errors import EXIT_CODES, SnapshotError, SnapshotNotFound, StoreNotFound
from snapshot_plugin.inert import shell_line
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.document import SCHEMA_VERSION
from snapshot_plugin.operations.text import with_store

__all__ = ["PARTIAL", "describe", "exit_code", "hint_of", "next_command", "refusal"]

PARTIAL = 3
_USAGE = 2

_NEXT = {
    "snapshot_not_found": "asnap list --all",
    "not_found": "asnap list --all",
    "store_not_found": "asnap demo",
    "corrupted": "asnap check {session}",
    "tampered": "asnap check {session}",
    "damaged": "asnap check {session}",
    "key_missing": "asnap keys status",
    "wrong_key": "asnap keys status",
    "version_unsupported": "pip install --upgrade snapshot-plugin",
    "conflict": "asnap show {session}",
    "locked": "asnap show {session}",
    "store_unavailable": "asnap doctor",
    "agent_unavailable": "asnap doctor",
    "invalid_policy": "asnap forget --help",
    "missing_extra": "{hint}",
}
"""The most useful next command after an error, for people at a shell. Hints of the library are for developers."""


_HINTS = {
    "snapshot_not_found": "",
    "key_missing": "set ASNAP_KEY_FILE, ASNAP_KEYRING, ASNAP_KEY_COMMAND, ASNAP_KEY or ASNAP_PASSPHRASE",
    "corrupted": "older snapshots of the session may still load",
    "tampered": "older snapshots of the session may still load",
    "damaged": "older snapshots of the session may still load",
    "conflict": "another process changed it meanwhile; run the command again",
}
"""Hints that replace those of the library, which are about its functions."""


def hint_of(error: SnapshotError) -> str:
    """Return what to do next, in a user's words."""
    return _HINTS.get(error.code, error.hint) if error.hint == error.default_hint else error.hint


def next_command(error: SnapshotError, *, place: str | None = None, asked: str | None = None) -> str:
    """The command to run next, about the store at *place*; an error that knows better says ``error.run``.

    Where the command *asked* was called wrongly, and nothing better is known, it is that command's help.
    """
    help_line = f"{asked} --help" if asked and exit_code(error) == _USAGE else ""
    usual = _NEXT.get(error.code)
    if error.code == SnapshotNotFound.code and error.session_id:  # the session exists, that snapshot does not
        usual = "asnap show {session} --history"
    if error.code == StoreNotFound.code and place:  # the named place may be mistyped: the demo would not help
        usual = "asnap paths"
    known = error.run or usual or help_line or "asnap doctor"
    session = shell_line([as_reference(error.session_id)]) if error.session_id else ""
    known = known.replace("{session}", session).replace("{hint}", error.hint).strip()
    is_about_a_store = known.startswith("asnap ") and not known.endswith(("--help", "demo", "paths"))
    return with_store(known, place) if is_about_a_store else known


def exit_code(error: SnapshotError) -> int:
    """The exit status for this kind of error."""
    return EXIT_CODES.get(error.code, 1)


def refusal(code: str, message: str, following: str) -> dict[str, Any]:
    """A refused call as JSON, in the shape of `describe`; *following* is the command to run next."""
    head = {"schema_version": SCHEMA_VERSION, "kind": "error", "code": code, "message": message}
    return {**head, "session_id": None, "hint": "", "next": following, "retryable": False, "cause": None}


def describe(error: SnapshotError, *, place: str | None = None) -> dict[str, Any]:
    """The error as JSON: what ``--json`` prints, and the browser gets."""
    cause = error.__cause__
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "error",
        "code": error.code,
        "message": error.message,
        "session_id": error.session_id,
        "hint": hint_of(error),
        "next": next_command(error, place=place),
        "retryable": error.retryable,
        "cause": f"{type(cause).__name__}: {cause}" if cause else None,
    }
