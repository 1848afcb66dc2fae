"""The checks of ``asnap doctor``, one function each. None of them changes anything.

A finding says how bad it is, what was seen, and the command that helps.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from snapshot_plugin.cli.call import Call
from snapshot_plugin.operations.document import Part
from snapshot_plugin.operations.text import long_ago, several, size

if TYPE_CHECKING:
    from snapshot_plugin.operations.session_rows import SessionRow
    from snapshot_plugin.store.base import Finding, SnapshotStore

__all__ = [
    "AGENTS",
    "Observation",
    "installed_agents",
    "look_at_agents",
    "look_at_leftovers",
    "look_at_machine",
    "look_at_place",
    "look_at_quarantine",
    "look_at_sessions",
    "look_at_unrecorded",
]

Level = Literal["ok", "hint", "warning", "problem"]

AGENTS = {
    "opencode": "opencode acp",
    "codex-acp": "codex-acp",
    "claude-code-acp": "claude-code-acp",
    "claude-agent-acp": "claude-agent-acp",
    "gemini": "gemini --experimental-acp",
    "qwen": "qwen --acp",
    "goose": "goose acp",
    "kimi": "kimi acp",
    "deepagents-acp": "deepagents-acp",
    "hermes": "hermes acp",
}
"""ACP agents people have, and the command that starts each as one."""

_LITTLE_SPACE = 512 * 1024 * 1024
_CLOCK_MAY_DIFFER = timedelta(minutes=5)
_LARGE_TRASH = 256 * 1024 * 1024
_LARGEST_PROJECT_FILE = 1 << 18
_RECENTLY = timedelta(days=30)


class Observation(Part):
    """The result of one check."""

    area: str
    level: Level
    what: str
    run: str | None = None


def _foreign(path: Path) -> Iterator[Observation]:
    """Return the parts of the store that belong to another user, who could read or replace them."""
    from snapshot_plugin.system.files import owner_name

    for part in (path, path / "sessions", path / "trash", path / "keys"):
        try:
            owner = part.lstat().st_uid
        except OSError:
            continue
        if owner != os.getuid():
            what = f"{part} belongs to another user ({owner_name(owner)}), who can read and replace what is in it"
            yield Observation(area="store", level="problem", what=what, run=f"ls -ld {part}")


def look_at_place(path: Path) -> Iterator[Observation]:
    """Check the store's directory: does it exist, is it private and writable, is there room?"""
    from snapshot_plugin.store.marker import is_store

    if not is_store(path):
        yield Observation(
            area="store", level="hint", what=f"there is no store at {path} yet", run="asnap run -- AGENT"
        )
        return
    yield from _foreign(path)
    mode = path.stat().st_mode
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        what = f"others can look into {path} (mode {stat.S_IMODE(mode):o})"
        yield Observation(area="store", level="warning", what=what, run=f"chmod 700 {path}")
    if not os.access(path, os.W_OK):
        yield Observation(area="store", level="problem", what=f"{path} cannot be written to", run=f"ls -ld {path}")
    free = shutil.disk_usage(path).free
    level: Level = "warning" if free < _LITTLE_SPACE else "ok"
    remedy = None if level == "ok" else "asnap forget --help"
    yield Observation(area="store", level=level, what=f"{path}: {size(free)} free", run=remedy)


_UNREADABLE = {"damaged": "damaged", "encrypted": "locked", "too_new": "too new"}


def look_at_sessions(call: Call, store: SnapshotStore, rows: Sequence[SessionRow]) -> Iterator[Observation]:
    """Check the sessions of *store*: damage, dead owners, clocks."""
    unreadable = {state: [row for row in rows if row.state == state] for state in _UNREADABLE}
    for state, found in unreadable.items():
        if found:
            named = ", ".join(row.session_id for row in found[:3])
            what = f"{several(len(found), f'{_UNREADABLE[state]} session')}: {named}"
            yield Observation(area="sessions", level="problem", what=what, run=found[0].next)
    ended = [row for row in rows if row.ended_unexpectedly]
    if ended:
        when = f", the last one {long_ago(max(row.last_sign or row.saved_at for row in ended), call.now)}"
        what = f"{several(len(ended), 'session')} ended unexpectedly{when}"
        yield Observation(area="sessions", level="warning", what=what, run="asnap recover")
    ahead = [row for row in rows if row.saved_at > call.now + _CLOCK_MAY_DIFFER]
    if ahead:
        what = (
            f"{several(len(ahead), 'session')} saved in the future: this clock is behind, or another one was ahead"
        )
        yield Observation(area="clock", level="warning", what=what, run="date")
    live = sum(row.live is not None for row in rows)
    if not any(unreadable.values()):
        usual = "asnap resume" if store.capabilities.live else "asnap list"
        what = f"{several(len(rows), 'session')}, {live} live"
        yield Observation(area="sessions", level="ok", what=what, run=usual if rows else None)


def look_at_quarantine(aside: Sequence[Finding]) -> Iterator[Observation]:
    """List files in quarantine, which are kept until a person removes them."""
    sessions = sorted({each.session_id for each in aside})
    if sessions:
        what = f"damaged files of {several(len(sessions), 'session')} in quarantine: {', '.join(sessions[:3])}"
        yield Observation(area="quarantine", level="hint", what=what, run=f"asnap check --salvage {sessions[0]}")


def look_at_leftovers(path: Path, trashed: int) -> Iterator[Observation]:
    """List temporary files of killed processes, and the size of the trash."""
    found = sum(1 for _ in path.glob("sessions/*/*.tmp")) + sum(1 for _ in path.glob("*.tmp"))
    if found:
        yield Observation(
            area="leftovers", level="hint", what=f"{several(found, 'temporary file')} of killed processes; harmless"
        )
    if trashed > _LARGE_TRASH:
        yield Observation(area="trash", level="hint", what=f"{size(trashed)} in the trash", run="asnap purge")


def installed_agents(call: Call) -> list[str]:
    """The commands of the known ACP agents that are on the PATH."""
    path = call.environ.get("PATH")
    return [command for program, command in AGENTS.items() if shutil.which(program, path=path)]


def look_at_agents(call: Call) -> Iterator[Observation]:
    """List the installed ACP agents."""
    if found := installed_agents(call):
        yield Observation(
            area="agents", level="ok", what=f"found: {', '.join(found)}", run=f"asnap run -- {found[0]}"
        )
    else:
        yield Observation(area="agents", level="hint", what="no known ACP agent is on the PATH", run="asnap demo")


def look_at_unrecorded(call: Call) -> Iterator[Observation]:
    """List the agents whose sessions ``asnap run`` could not record lately."""
    from snapshot_plugin.cli.remembered import UNRECORDED, recall

    for command, noted in recall(call, UNRECORDED).items():
        try:
            why, at = str(noted["why"]), datetime.fromisoformat(noted["at"])
            when = long_ago(at, call.now) if call.now - at < _RECENTLY else None
        except (KeyError, TypeError, ValueError):  # written by someone else
            continue
        if when is not None:
            what = f"sessions of {command} were not recorded ({when}): {why}"
            yield Observation(area="agents", level="warning", what=what)


def _extras() -> list[str]:
    """Return the extras whose packages are all installed."""
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    found: dict[str, bool] = {}
    try:
        needed = requires("snapshot-plugin") or []
    except PackageNotFoundError:  # pragma: no cover — as below
        return []
    for line in needed:
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package and extra[1] != "test":
            try:
                version(package[0])
                found.setdefault(extra[1], True)
            except PackageNotFoundError:
                found[extra[1]] = False
    return sorted(name for name, is_there in found.items() if is_there)


def look_at_machine(call: Call) -> Iterator[Observation]:
    """Report versions, extras and settings."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("snapshot-plugin")
    except PackageNotFoundError:  # pragma: no cover — run from a source tree that was never installed
        ours = "not installed"
    python = ".".join(map(str, sys.version_info[:3]))
    what = f"snapshot-plugin {ours}, Python {python}, extras: {', '.join(_extras()) or 'none'}"
    yield Observation(area="version", level="ok", what=what)
    for notice in call.config.notices:
        yield Observation(area="settings", level="warning", what=notice, run="asnap config show --origin")
    for file in _project_settings(Path.cwd()):
        what = f"{file} is ignored: settings are not read from a project"
        yield Observation(area="settings", level="hint", what=what, run="asnap paths")


def _project_settings(directory: Path) -> Iterator[Path]:
    """The files with settings for asnap at or above *directory*, up to the repository's root. They are not used."""
    for place in (directory, *directory.parents):
        if os.path.lexists(place / ".asnap.toml"):
            yield place / ".asnap.toml"
        if _has_our_table(place / "pyproject.toml"):
            yield place / "pyproject.toml"
        if (place / ".git").exists():
            return


def _has_our_table(path: Path) -> bool:
    """Whether a ``pyproject.toml`` has a table for asnap. It may be a stranger's, so only a plain file is read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode) and b"[tool.asnap" in os.read(fd, _LARGEST_PROJECT_FILE)
    finally:
        os.close(fd)
