"""``asnap tag``: tag a session, or see which tags its content suggests."""

from __future__ import annotations

import shlex
from typing import ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.labelled import show_label
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.labels import Label, SuggestedTag, TagChange, label_as_is, whole_session
from snapshot_plugin.operations.labels import tag as add_tags
from snapshot_plugin.operations.references import find
from snapshot_plugin.operations.text import plain

__all__ = ["Tags", "command"]


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
async def command(call: Call, *, ref: str, tags: tuple[str, ...], remove: tuple[str, ...], suggested: bool) -> Tags:
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
