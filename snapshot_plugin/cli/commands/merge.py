"""``asnap merge``: merge two branches of one conversation."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Output
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.branches import free_title, save_new
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.text import cut, plain, several

if TYPE_CHECKING:
    from snapshot_plugin.model.merge import Merged
    from snapshot_plugin.operations.references import Target

__all__ = ["Merging", "command"]

_SHOWN = 60
_BOOKKEEPING = ("metadata.acp", "metadata.spool")
"""What the recorder notes for itself: no conflict that a person could decide."""


class MergeConflict(Part):
    """Something both branches changed: `kept` is the first one's; `other` is in the metadata. Absent is null."""

    path: str
    kept: Any = None
    other: Any = None


class Merging(Document):
    """The new session and its parts. In a dry run it is not saved and has no id."""

    kind: ClassVar[str] = "merge"
    session_id: str | None
    title: str | None
    dry_run: bool
    first: str
    second: str
    messages: int
    shared: int
    from_first: int
    from_second: int
    conflicts: tuple[MergeConflict, ...]
    resume: str | None


def show_merge(answer: Merging, out: Output) -> None:
    """Print the new session and its parts. In a dry run it is not saved and has no id."""
    if answer.session_id:
        out.line(answer.session_id)
    tell: Callable[..., None] = out.line if answer.dry_run else out.note
    did = "would have" if answer.dry_run else "merged:"
    own = f"{answer.from_first} of {plain(answer.first)}, {answer.from_second} of {plain(answer.second)}"
    tell(f"{did} {answer.messages} messages: {answer.shared} shared, {own}")
    conflicts = [each for each in answer.conflicts if not each.path.startswith(_BOOKKEEPING)]
    if conflicts:
        number = several(len(conflicts), "conflict")
        tell(f"{number}; the first branch wins, the other version is kept in metadata:")
    for conflict in conflicts:
        tell(f"  {plain(conflict.path)}", fg="yellow")
        tell(f"    kept  {_brief(conflict.kept)}", fg="green")
        tell(f"    other {_brief(conflict.other)}", fg="red")
    if answer.resume:
        out.note(f"  resume: {answer.resume}    undo: {out.run('asnap undo')}")


def _brief(value: Any) -> str:
    if isinstance(value, dict) and isinstance(value.get("content"), list):  # a message: what it says
        said = [part.get("text") or part.get("title") or "" for part in value["content"] if isinstance(part, dict)]
        value = " ".join(filter(None, said)) or value
    return cut(plain(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)), _SHOWN)


@declare(
    "merge",
    answer=Merging,
    show=show_merge,
    examples=(
        ("asnap merge 01jd 01jf --dry-run", "what a merge would have, and where they disagree"),
        ("asnap merge 01jd 01jf", "a new session: what they share, 01jd's own part, 01jf's own part"),
        ('asnap merge latest latest~1 --title "both ways"', "under its own name"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--title", metavar="TITLE", help="The new session's name.")
@click.option("-n", "--dry-run", is_flag=True, help="Save nothing; show the result.")
async def command(call: Call, *, first: str, second: str, title: str | None, dry_run: bool) -> Merging:
    """Merge two branches of one conversation into a new session.

    Shared messages come once, then A's own, then B's, each with its origin in its metadata. If both changed the
    same message or setting, A's version is used and B's is kept in the metadata. A and B are unchanged.
    """
    from snapshot_plugin.manager.branches import merged
    from snapshot_plugin.manager.labels import checked_name
    from snapshot_plugin.model.ids import new_id
    from snapshot_plugin.operations.references import resolve

    async with call.store() as store:
        metas, title = await store.list(), checked_name(title or "")
        one, other = resolve(first, metas), resolve(second, metas)
        sides = (one.session_id, one.seq), (other.session_id, other.seq)
        result = await merged(store, *sides, as_id=new_id(), now=call.now, title=title)
        if title is None:
            name = free_title(result.snapshot.title, "merged", {meta.title for meta in metas})
            result = result.evolve(snapshot=result.snapshot.evolve(title=name))
        if not dry_run:
            summary = f"merged {one.session_id} and {other.session_id}"
            _, warning = await save_new(call.work, store, result.snapshot, kind="merge", summary=summary)
            if warning:
                call.out.warn(warning, fg="yellow")
    return _merging(call.out, result, one, other, dry_run=dry_run)


def _merging(out: Output, result: Merged, one: Target, other: Target, *, dry_run: bool) -> Merging:
    new = result.snapshot
    return Merging.from_fields(
        result,
        session_id=None if dry_run else new.session_id,
        title=new.title,
        dry_run=dry_run,
        first=one.session_id,
        second=other.session_id,
        messages=len(new.messages),
        conflicts=tuple(map(MergeConflict.from_fields, result.clashes)),
        resume=None if dry_run else out.run(f"asnap resume {shlex.quote(as_reference(new.session_id))}"),
    )
