"""``rename``, ``tag``, ``pin``, ``note``, ``fork`` and ``merge``: name sessions and branch them."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import Printed
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.document import Document, Part
from snapshot_plugin.operations.organise import (
    Forked,
    Label,
    SuggestedTag,
    TagChange,
    annotate,
    fork,
    free_title,
    label_as_is,
    pin,
    rename,
    save_new,
    whole_session,
)
from snapshot_plugin.operations.organise import tag as add_tags
from snapshot_plugin.operations.references import find, resolve
from snapshot_plugin.operations.text import cut, plain, several

if TYPE_CHECKING:
    from snapshot_plugin.model.merge import Merged
    from snapshot_plugin.operations.references import Target

__all__ = [
    "Merging",
    "Tags",
    "fork_command",
    "merge_command",
    "note_command",
    "pin_command",
    "rename_command",
    "show_label",
    "tag_command",
]


def show_label(answer: Label, out: Output) -> None:
    """Print what was changed, and how to undo it."""
    if not answer.changed:
        out.note(f"nothing to change: {plain(answer.told)}")
        return
    out.note(plain(answer.told))
    if answer.live_pid:
        out.note(f"  the session is live: process {answer.live_pid} uses it from now on")
    out.note(f"  undo: {out.run('asnap undo')}")


# asnap rename -------------------------------------------------------------------------------------------------


@declare(
    "rename",
    answer=Label,
    show=show_label,
    examples=(
        ("asnap rename latest 'fix auth'", "so that asnap resume 'fix auth' finds it"),
        ("asnap rename 01jd7a parser", "by the beginning of its id"),
        ("asnap rename parser ''", "remove the name"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("name")
async def rename_command(call: Call, *, ref: str, name: str) -> Label:
    """Give a session a name.

    Every command takes it in place of an id. A live session is renamed by its owner.
    """
    async with call.store() as store:
        metas = await store.list()
        session_id = whole_session(resolve(ref, metas), "a name")
        others = [meta.session_id for meta in metas if meta.title == name.strip() and meta.session_id != session_id]
        done = await rename(call.work, store, session_id, name)
    if others and done.title:
        found = several(len(others), "other session")
        call.out.note(f"{found} with this name, so use ids: {', '.join(others[:3])}")
    return done


# asnap tag ----------------------------------------------------------------------------------------------------


class Tags(Label):
    """A session's tags, and those its content suggests."""

    kind: ClassVar[str] = "tag"
    suggested: tuple[SuggestedTag, ...] = ()
    asked: bool = False
    """Whether the tags were only asked for."""


def show_tags(answer: Tags, out: Output) -> None:
    """Print a session's tags, and those its content suggests."""
    if not answer.asked:
        show_label(answer, out)
        return
    rows = [(plain(tag), "", "") for tag in answer.tags]
    rows += [(plain(each.tag), "suggested", f"{each.about}, {each.count}x") for each in answer.suggested]
    out.table((Column("TAG", flexible=True), Column("STATE"), Column("WHY")), rows)
    if not rows:
        out.note("it has no tags, and its content suggests none")
    if answer.suggested:
        named = shlex.quote(as_reference(answer.session_id))
        out.note(f"  to add the suggested tags: {out.run(f'asnap tag {named} --suggested')}")


@declare(
    "tag",
    answer=Tags,
    show=show_tags,
    examples=(
        ("asnap tag latest urgent backend", "add two tags"),
        ("asnap tag 'fix auth' --remove urgent", "take one away"),
        ("asnap tag latest", "its tags, and those its content suggests"),
        ("asnap tag latest --suggested", "add the suggested ones"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Remove this tag; may be repeated.")
@click.option("--suggested", is_flag=True, help="Add the tags that its content suggests.")
async def tag_command(
    call: Call, *, ref: str, tags: tuple[str, ...], remove: tuple[str, ...], suggested: bool
) -> Tags:
    """Tag a session, or see which tags its content suggests.

    asnap list --tag, and tag:x wherever a session is named, find it by them. Suggestions come from the languages,
    tools and places it worked with; nothing is tagged unless you say so.
    """
    change = TagChange(tags, remove, suggested=suggested)
    asked = not (tags or remove or suggested)
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a tag")
        if asked:
            stored = await store.read(session_id)
            change(stored.snapshot)
            done = label_as_is(stored)
        else:
            done = await add_tags(call.work, store, session_id, change)
    return Tags(**vars(done), suggested=change.suggestions, asked=asked)


# asnap pin ----------------------------------------------------------------------------------------------------


@declare(
    "pin",
    answer=Label,
    show=show_label,
    examples=(
        ("asnap pin latest", "no policy drops a snapshot of it from now on"),
        ("asnap pin 'fix auth' --off", "retention policies apply to it again"),
        ("asnap pin 01jd7a -q", "in a script"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.option("--off", is_flag=True, help="Unpin it.")
async def pin_command(call: Call, *, ref: str, off: bool) -> Label:
    """Protect a session from every retention policy.

    No policy drops its snapshots, and asnap forget --keep-sessions skips it.
    """
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a pin")
        return await pin(call.work, store, session_id, pinned=not off)


# asnap note ---------------------------------------------------------------------------------------------------


def show_note(answer: Label, out: Output) -> None:
    """Print the note."""
    if answer.note:
        out.line(plain(answer.note, lines=True))
    else:
        out.note("there is no note on it")


@declare(
    "note",
    answer=Label,
    show=show_note,
    examples=(
        ("asnap note latest 'waits for the review'", "asnap show has it from now on"),
        ("asnap note latest", "read it"),
        ("git log -1 | asnap note 01jd7a -", "from a pipe; '' removes the note"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("text", required=False)
async def note_command(call: Call, *, ref: str, text: str | None) -> Printed:
    """Write a note on a session, or read it.

    It goes wherever the session goes: exports, forks, other machines. Without TEXT, the note is printed.
    """
    words = sys.stdin.read() if text == "-" else text
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a note")
        if words is None:
            return Printed(label_as_is(await store.read(session_id)), show_note)
        return Printed(await annotate(call.work, store, session_id, words), show_label)


# asnap fork ---------------------------------------------------------------------------------------------------


def show_fork(answer: Forked, out: Output) -> None:
    """Print the fork."""
    out.line(answer.session_id)
    came = (
        f"{several(answer.messages, 'message')} of {plain(answer.parent_session_id)}, snapshot {answer.parent_seq}"
    )
    out.note(f"forked {title}: {came}" if (title := plain(answer.title or "")) else f"forked {came}")
    out.note(f"  resume: {answer.resume}    undo: {out.run('asnap undo')}")


@declare(
    "fork",
    answer=Forked,
    show=show_fork,
    examples=(
        ("asnap fork latest", "a second session with the messages of the newest one"),
        ("asnap fork 01jd --messages 12", "one that ends with message 12 (see asnap show)"),
        ('asnap fork 01jd@5 --title "other way"', "as of snapshot 5, under its own name"),
        ('asnap resume "$(asnap fork latest -q)"', "fork, and continue in the fork"),
    ),
    exits=(4, 5, 7, 10),
)
@click.argument("ref", metavar="REF")
@click.option(
    "--messages", type=click.IntRange(min=0), metavar="N", help="Take the first N messages; all unless given."
)
@click.option("--at", type=click.IntRange(min=0), hidden=True, help="The old name of --messages.")
@click.option("--title", metavar="TITLE", help="The new session's name.")
async def fork_command(call: Call, *, ref: str, messages: int | None, at: int | None, title: str | None) -> Forked:
    """Branch a session at any message: a new session with the messages up to there.

    The original is unchanged, and may be live. An agent's working memory is copied as of that snapshot. Prints the
    new session's id.
    """
    async with call.store() as store:
        done = await fork(call.work, store, ref, messages=at if messages is None else messages, title=title)
    if done.warning:
        call.out.warn(done.warning, fg="yellow")
    return replace(done, resume=call.out.run(done.resume))


# asnap merge --------------------------------------------------------------------------------------------------


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
async def merge_command(call: Call, *, first: str, second: str, title: str | None, dry_run: bool) -> Merging:
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
