"""Select the sessions an operation is about: those of this project or all, narrowed by filters.

Pure, except `here` and `tagged_before`. A session without a directory belongs everywhere, unless the
caller decides otherwise.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from snapshot_plugin.errors import NotFound, SnapshotError
from snapshot_plugin.model.ids import is_companion
from snapshot_plugin.operations.session_rows import SessionRow

if TYPE_CHECKING:
    from snapshot_plugin.store.base import SnapshotStore

__all__ = ["Hidden", "Selected", "Selection", "here", "reason", "select", "tagged_before"]


@dataclass(frozen=True)
class Selection:
    """What a user asked to see. `below` is a directory: only sessions that ran there or deeper."""

    below: str | None = None
    unplaced: bool = True
    """Whether sessions without a directory are shown if `below` is given."""
    agent: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    tags: tuple[str, ...] = ()
    tagged_before: frozenset[str] = frozenset()
    """Sessions that have the tags if those of their earlier snapshots count; see `tagged_before`."""
    live: bool = False
    limit: int | None = None


class Filtered(Protocol):
    """The fields that filters read."""

    @property
    def session_id(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def agent(self) -> str | None: ...
    @property
    def cwd(self) -> str | None: ...
    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def snapshot_tags(self) -> tuple[str, ...]: ...
    @property
    def changed_at(self) -> datetime: ...


class Hidden(NamedTuple):
    """A session that is not shown, and the filter that hides it."""

    row: SessionRow
    by: str
    why: str


class Selected(NamedTuple):
    """The sessions that are shown, and those that are not."""

    shown: tuple[SessionRow, ...]
    hidden: tuple[Hidden, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many sessions each reason hides."""
        return dict(Counter(hidden.by for hidden in self.hidden))


def select(rows: Sequence[SessionRow], selection: Selection) -> Selected:
    """Split sessions into those shown and those hidden, each hidden one with the first reason that applies."""
    shown: list[SessionRow] = []
    hidden: list[Hidden] = []
    for row in rows:
        by = reason(row, selection) or (_NOT_LIVE if selection.live and not row.live else None)
        if by is None and selection.limit is not None and len(shown) >= selection.limit:
            by = ("limit", f"only the newest {selection.limit} are shown")
        if by:
            hidden.append(Hidden(row, *by))
        else:
            shown.append(row)
    return Selected(tuple(shown), tuple(hidden))


_NOT_LIVE = ("live", "no process runs it")


def reason(row: Filtered, selection: Selection) -> tuple[str, str] | None:
    """The filter that hides a session, and the reason; None if none does. `select` checks whether it is live."""
    return next(_reasons(row, selection), None)


def _reasons(row: Filtered, selection: Selection) -> Iterator[tuple[str, str]]:
    if is_companion(row.session_id):
        yield "memory", "the working memory of another session"
    if selection.below and not (_is_below(row.cwd, selection.below) if row.cwd else selection.unplaced):
        yield "cwd", f"it ran in {row.cwd or 'an unknown directory'}"
    if selection.agent and selection.agent.lower() not in (row.agent or "").lower():
        yield "agent", f"its agent is {row.agent or 'not known'}"
    if selection.since and row.changed_at < selection.since:
        yield "date", "last changed before --since"
    if selection.until and row.changed_at > selection.until:
        yield "date", "last changed after --until"
    if row.session_id not in selection.tagged_before and not _has_tags(row, selection.tags):
        yield "tag", f"its tags are {', '.join((*row.tags, *row.snapshot_tags)) or 'none'}"


def _has_tags(row: Filtered, tags: Sequence[str]) -> bool:
    return set(tags) <= {*row.tags, *row.snapshot_tags}


async def tagged_before(store: SnapshotStore, rows: Sequence[Filtered], tags: Sequence[str]) -> frozenset[str]:
    """The sessions that have all *tags* only if those of their earlier snapshots count. Reads their histories."""
    found = set()
    for row in rows:
        if row.seq > 1 and not _has_tags(row, tags):
            with suppress(SnapshotError):  # deleted meanwhile, or unreadable
                history = await store.history(row.session_id)
                if set(tags) <= {*row.tags, *(tag for meta in history for tag in meta.snapshot_tags)}:
                    found.add(row.session_id)
    return frozenset(found)


@cache
def _is_below(place: str, directory: str) -> bool:
    try:
        real, above = os.path.realpath(place), os.path.realpath(directory)
    except ValueError:  # a name that no file can have
        return False
    return real == above or real.startswith(above.rstrip("/") + "/")


def here() -> str:
    """The project the user is in: the root of the git work tree, or else the current directory.

    The home directory and its parents are never a project, even if they are in a repository.
    """
    try:
        directory = start = os.getcwd()  # noqa: PTH109 — text, and no pathlib at start-up
    except FileNotFoundError as error:
        raise NotFound(
            "the current directory is gone", hint="change to a directory that exists, or look everywhere"
        ) from error
    home = os.path.realpath(os.path.expanduser("~"))  # noqa: PTH111 — as above
    while directory not in {home, os.path.dirname(directory)}:  # noqa: PTH120 — as above
        if os.path.exists(os.path.join(directory, ".git")):  # noqa: PTH110, PTH118 — as above
            return directory
        directory = os.path.dirname(directory)  # noqa: PTH120 — as above
    return start
