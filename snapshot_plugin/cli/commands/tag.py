"""``asnap tag``: tag a session, or see which tags its content suggests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Part
from snapshot_plugin.cli.labelling import Label, label_as_is, relabel, whole_session
from snapshot_plugin.cli.output import Column, Output
from snapshot_plugin.cli.refs import find
from snapshot_plugin.cli.text import plain

if TYPE_CHECKING:
    from snapshot_plugin.manager.labels import Labelled
    from snapshot_plugin.model.snapshot import SessionSnapshot

__all__ = ["Tags", "command"]


class SuggestedTag(Part):
    """A tag the content speaks for. Nobody has set it."""

    tag: str
    about: str
    """project, language, tool, topic or place."""
    count: int
    """How often the session speaks for it."""


class Tags(Label):
    """A session's tags, and those its content suggests."""

    kind: ClassVar[str] = "tag"
    suggested: tuple[SuggestedTag, ...] = ()
    asked: bool = False
    """Whether the tags were only asked for."""

    def show(self, out: Output) -> None:
        """See `Document`."""
        if not self.asked:
            super().show(out)
            return
        rows = [(plain(tag), "", "") for tag in self.tags]
        rows += [(plain(each.tag), "suggested", f"{each.about}, {each.count}x") for each in self.suggested]
        if rows:
            out.table((Column("TAG", flexible=True), Column("STATE"), Column("WHY")), rows)
        else:
            out.note("it has no tags, and its content suggests none")
        if self.suggested:
            out.note(f"  to take those suggested: {out.run(f'asnap tag {self.session_id} --suggested')}")


@declare(
    "tag",
    section="Change",
    answer=Tags,
    examples=(
        ("asnap tag latest urgent backend", "add two tags"),
        ("asnap tag 'fix auth' --remove urgent", "take one away"),
        ("asnap tag latest", "its tags, and those its content suggests"),
        ("asnap tag latest --suggested", "take the suggested ones"),
    ),
    exits=(4, 5, 6, 7, 10),
)
@click.argument("ref")
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", multiple=True, metavar="TAG", help="Take this tag away; may be given several times.")
@click.option("--suggested", is_flag=True, help="Add the tags that its content suggests.")
async def command(call: Call, *, ref: str, tags: tuple[str, ...], remove: tuple[str, ...], suggested: bool) -> Tags:
    """Tag a session, or see which tags its content suggests.

    asnap list --tag, and tag:x wherever a session is named, find it by them. Suggestions come from the languages,
    tools and places it worked with; nothing is tagged unless you say so.
    """
    from snapshot_plugin.manager.labels import checked_label

    added = checked_label({"tags": tags})["tags"]
    asked = not (tags or remove or suggested)
    async with call.store() as store:
        session_id = whole_session(await find(store, ref), "a tag")
        change = _Change(added, remove, suggested=suggested)
        if asked:
            stored = await store.read(session_id)
            change(stored.snapshot)
            done = label_as_is(stored)
        else:
            done = await relabel(call, store, session_id, change, kind="tag", told=_told)
    return Tags(**vars(done), suggested=change.suggestions, asked=asked)


class _Change:
    """Tags to add and to take away, once the session is known; keeps what its content suggests beside them."""

    def __init__(self, add: Sequence[str], remove: Sequence[str], *, suggested: bool) -> None:
        self._add, self._remove, self._suggested = add, frozenset(remove), suggested
        self.suggestions: tuple[SuggestedTag, ...] = ()

    def __call__(self, snapshot: SessionSnapshot) -> Mapping[str, Any]:
        from snapshot_plugin.model.suggest import suggest_tags

        found = [SuggestedTag(tag=each.tag, about=each.kind, count=each.count) for each in suggest_tags(snapshot)]
        add = [*self._add, *(each.tag for each in found if self._suggested)]
        self.suggestions = tuple(each for each in found if each.tag not in add)
        tags = dict.fromkeys((*snapshot.tags, *add))
        return {"tags": [tag for tag in tags if tag not in self._remove]}


def _told(done: Labelled) -> str:
    return (
        f"{done.session_id} is tagged {', '.join(done.after['tags'])}" if done.after["tags"] else "it has no tags"
    )
