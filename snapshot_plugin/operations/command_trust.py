"""Which agent commands of imported sessions the user has confirmed. An unconfirmed command does not run.

A confirmation covers what the user saw, and nothing else: this session and its branches, these words, the program
and the files that they lead to, and the directory. Elsewhere the same words may run something else:
``python3 agent.py`` runs the ``agent.py`` of the directory.

The notes are one file of lines in the user's state directory, each ``imported`` or ``confirmed`` and a digest.
Digests only, so that it says nothing about the sessions of an encrypted store. They never travel with a session.
Release 0.2.0 wrote ``imported`` with digests that name no store, which still count, and ``confirmed`` with digests
of the words alone, which do not.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from snapshot_plugin.system.files import disk_errors, make_private_dir, sync_all, write_all

if TYPE_CHECKING:
    from snapshot_plugin.model.snapshot import SessionSnapshot
    from snapshot_plugin.operations.work import Work
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["CommandTrust", "Start", "command_trust", "start_of"]

_NAME: Final = "commands"


class Start(NamedTuple):
    """What resuming a session starts."""

    command: tuple[str, ...]
    directory: str
    """Where it runs."""
    origins: frozenset[str]
    """The session and all that it was forked or merged from."""


async def start_of(
    store: SnapshotStore, snapshot: SessionSnapshot, command: Sequence[str], cwd: str | None
) -> Start:
    """Return what resuming *snapshot* with *command* starts; in the current directory if *cwd* is not one."""
    from snapshot_plugin.model.lineage import origins

    parents = [(meta.session_id, meta.parent) for meta in await store.list()] if snapshot.parent else []
    return Start(tuple(command), _directory(cwd), frozenset(origins(snapshot, parents)))


def _directory(cwd: str | None) -> str:
    return cwd if cwd and os.path.isdir(cwd) else os.getcwd()  # noqa: PTH109, PTH112 — text


def command_trust(work: Work, store: SnapshotStore) -> CommandTrust:
    """Return the notes of this user about the sessions of *store*."""
    from snapshot_plugin.manager.places import user_state_dir

    path = work.environ.get("PATH", os.defpath)
    return CommandTrust(user_state_dir(work.environ), store=work.name(store), path=path)


class CommandTrust:
    """What was imported into one store, and which of its commands one user confirmed. Blocks on the disk.

    Args:
        state: the user's state directory.
        store: the identity of the store: other stores may have sessions of the same id.
        path: where programs are looked for, as in ``PATH``.
    """

    def __init__(self, state: Path, *, store: str, path: str) -> None:
        self._path, self._store, self._programs = state / _NAME, store, path

    def imported(self, sessions: Iterable[str]) -> None:
        """Remember that these sessions came from elsewhere; durable on return."""
        self._add("imported", [self._of_session(each) for each in sessions])

    def confirm(self, start: Start) -> None:
        """Remember that the user agreed to *start*."""
        known = self._read()
        if not self._is_confirmed(start, known):
            self._add("confirmed", [self._of_start(start, each) for each in self._imported(start, known)])

    def is_trusted(self, start: Start) -> bool:
        """Whether *start* needs no question: nothing of the session was imported, or the user agreed to this."""
        return self._is_confirmed(start, self._read())

    def _is_confirmed(self, start: Start, known: set[tuple[str, str]]) -> bool:
        return all(("confirmed", self._of_start(start, each)) in known for each in self._imported(start, known))

    def _imported(self, start: Start, known: set[tuple[str, str]]) -> list[str]:
        """Those sessions among the origins that were imported: a branch is trusted as they are."""
        names = ((each, (self._of_session(each), _as_in_0_2_0(each))) for each in sorted(start.origins))
        return [each for each, digests in names if any(("imported", digest) in known for digest in digests)]

    def _of_session(self, session_id: str) -> str:
        return _digest("session of a store", self._store, session_id)

    def _of_start(self, start: Start, origin: str) -> str:
        program = _program(start, self._programs)
        files = [os.path.realpath(name) for name in _files(start)]
        resolved = [program, program and os.path.realpath(program), files, os.path.realpath(start.directory)]
        return _digest("start", self._of_session(origin), list(start.command), resolved)

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


def _program(start: Start, path: str) -> str | None:
    """The program that the first word leads to; None if there is none. Names in ``PATH`` may be relative, too."""
    if os.sep in start.command[0]:
        return os.path.join(start.directory, start.command[0])  # noqa: PTH118 — text
    places = (os.path.join(start.directory, place) for place in path.split(os.pathsep))  # noqa: PTH118 — text
    return shutil.which(start.command[0], path=os.pathsep.join(places))


def _files(start: Start) -> list[str]:
    """The files that arguments name, also as ``--option=FILE``: where their links lead may change."""
    words = (part for word in start.command[1:] for part in (word, word.partition("=")[2]) if part)
    names = (os.path.join(start.directory, word) for word in words if "\0" not in word)  # noqa: PTH118 — text
    return [name for name in names if os.path.lexists(name)]


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _as_in_0_2_0(session_id: str) -> str:
    return hashlib.sha256(b"session " + session_id.encode(errors="surrogatepass")).hexdigest()
