"""Which imported agent commands the user has confirmed. An unconfirmed command does not run.

One file of lines in the user's state directory, each ``imported`` or ``confirmed`` and a digest: of a session's id
or of a command. Digests only, so that it says nothing about the sessions of an encrypted store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from snapshot_plugin.store.files import disk_errors, make_private_dir, sync_all, write_all

__all__ = ["CommandTrust"]

_NAME: Final = "commands"


class CommandTrust:
    """The commands that were imported and confirmed by one user. Blocks on the disk."""

    def __init__(self, state: Path) -> None:
        self._path = state / _NAME

    def imported(self, sessions: Iterable[str], commands: Iterable[Sequence[str]]) -> None:
        """Remember that these sessions and commands came from elsewhere; durable on return."""
        self._add("imported", [*map(_of_session, sessions), *(_of_command(words) for words in commands if words)])

    def confirm(self, command: Sequence[str]) -> None:
        """Remember that the user agreed to run *command*."""
        self._add("confirmed", [_of_command(command)])

    def is_trusted(self, command: Sequence[str], *, sessions: Iterable[str]) -> bool:
        """Whether *command*, recorded in a session, may run without a question.

        Args:
            command: the words as recorded.
            sessions: the session and those it was forked from.
        """
        known = self._read()
        if ("confirmed", _of_command(command)) in known:
            return True
        names = (_of_command(command), *map(_of_session, sessions))
        return not any(("imported", name) in known for name in names)

    def _add(self, what: str, names: Sequence[str]) -> None:
        if not names:
            return
        with disk_errors("remembering what was imported"):
            make_private_dir(self._path.parent)
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                write_all(fd, "".join(f"{what} {name}\n" for name in names).encode())
                sync_all(fd)
            finally:
                os.close(fd)

    def _read(self) -> set[tuple[str, str]]:
        with disk_errors("reading what was imported"):
            try:
                text = self._path.read_text(encoding="ascii", errors="replace")
            except FileNotFoundError:
                return set()
        return {(what, name) for what, _, name in (line.partition(" ") for line in text.splitlines())}


def _of_session(session_id: str) -> str:
    return hashlib.sha256(b"session " + session_id.encode(errors="surrogatepass")).hexdigest()


def _of_command(words: Sequence[str]) -> str:
    return hashlib.sha256(b"command " + json.dumps(list(words)).encode()).hexdigest()
