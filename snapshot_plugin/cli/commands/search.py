"""``asnap search``: full text over all sessions."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.document import Document, Part
from snapshot_plugin.cli.indexed import indexing, search_index, tell_unreadable
from snapshot_plugin.cli.output import Output
from snapshot_plugin.cli.scope import Selection, filter_options, select
from snapshot_plugin.cli.text import ago, cut, pad, plain, width
from snapshot_plugin.errors import InvalidInput, SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.cli.sessions import SessionRow
    from snapshot_plugin.manager.search.find import Found, Hit
    from snapshot_plugin.model.meta import SnapshotMeta

__all__ = ["Searched", "command"]

_LIMIT = 20
_EACH = 5
"""How many hits of one session are shown when others are searched as well: one chatty session hides no other."""
_SESSION = "session"


class MessageHit(Part):
    """A message that holds the words. `matches` are where they stand in `snippet`: start and end."""

    session_id: str
    title: str | None
    message: int | None
    """Its number, from 1; null for the session itself: its title, task, plan or tags."""
    role: str
    at: datetime | None
    snippet: str
    matches: tuple[tuple[int, int], ...]
    jump: str
    """The command that shows it."""


class SessionHits(Part):
    """A session with hits, and how many; not all of them may be shown."""

    session_id: str
    short_id: str
    title: str | None
    agent: str | None
    cwd: str | None
    changed_at: datetime
    hits: int


class Searched(Document):
    """What was found: the sessions that changed last first, each one's messages in their order."""

    kind: ClassVar[str] = "search"
    rows: ClassVar[str] = "hits"
    query: str
    hits: tuple[MessageHit, ...]
    sessions: tuple[SessionHits, ...]
    total_hits: int
    searched: int
    """How many sessions were looked into."""
    hidden: dict[str, int]
    """How many were not, by what kept them out."""
    unreadable: tuple[str, ...]
    as_of: datetime

    def show(self, out: Output) -> None:
        """See `Document`."""
        for session in self.sessions:
            hits = [hit for hit in self.hits if hit.session_id == session.session_id]
            if hits and out.is_terminal:
                self._show_session(out, session, hits)
            for hit in () if out.is_terminal else hits:
                out.line("\t".join(_cells(hit, session)))
        out.note(self._footer(), dim=True)

    def _show_session(self, out: Output, session: SessionHits, hits: Sequence[MessageHit]) -> None:
        name = plain(session.title or "") or "(untitled)"
        about = " · ".join(filter(None, (plain(session.agent or ""), ago(session.changed_at, self.as_of))))
        short, told = plain(session.short_id), cut(f"{name} · {about}", out.columns - len(session.short_id) - 2)
        out.line(f"{out.style(short, fg='cyan', bold=True)}  {out.style(told, bold=True)}")
        for hit in hits:
            head = f"  {pad(str(hit.message or ''), 5, right=True)} {pad(hit.role or _SESSION, 10)}"
            out.line(head + _marked(hit, out, out.columns - width(head)))
            out.line(f"{' ' * 8}{_jump(session.short_id, hit.message)}", dim=True)
        if session.hits > len(hits):
            all_of_them = f"asnap search {_quoted(self.query)} {_quoted(session.short_id)}"
            out.line(f"{' ' * 8}{session.hits - len(hits)} more: {all_of_them}", dim=True)

    def _footer(self) -> str:
        found = f"{_number(self.total_hits, 'hit')} in {_number(len(self.sessions), 'session')}"
        parts = [f"{found} of {self.searched} searched"]
        if len(self.hits) < self.total_hits:
            parts.append(f"{len(self.hits)} shown; --limit shows more")
        if self.hidden:
            parts.append("not searched: " + ", ".join(f"{count} by {by}" for by, count in self.hidden.items()))
        return " · ".join(parts)


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _quoted(text: str) -> str:
    return shlex.quote(plain(text))


def _jump(session: str, message: int | None) -> str:
    return f"asnap show {_quoted(session)}" + (f" --message {message}" if message else "")


def _cells(hit: MessageHit, session: SessionHits) -> tuple[str, ...]:
    """For programs that cut fields out: whole ids, exact times, matches between stars."""
    when = (hit.at or session.changed_at).isoformat(timespec="seconds")
    text = "".join(f"**{part}**" if is_match else part for part, is_match in _parts(hit))
    return hit.session_id, str(hit.message or ""), hit.role or _SESSION, when, text


def _parts(hit: MessageHit, start: int = 0) -> Iterator[tuple[str, bool]]:
    """The snippet from *start* on, match by match."""
    for first, last in hit.matches:
        yield hit.snippet[start:first], False
        yield hit.snippet[first:last], True
        start = last
    yield hit.snippet[start:], False


def _marked(hit: MessageHit, out: Output, room: int) -> str:
    """The snippet in at most *room* columns, matches in colour, or between stars where there is none."""
    in_colour = out.style("x", bold=True) != "x"
    start = _first_shown(hit, room)
    pieces = ["…"] if start else []
    room -= len(pieces)
    for part, is_match in _parts(hit, start):
        whole = part if in_colour or not is_match else f"**{part}**"
        shown = cut(whole, room)
        pieces.append(out.style(shown, fg="yellow", bold=True) if is_match else shown)
        room -= width(shown)
        if shown != whole or not room:
            break
    return "".join(pieces)


def _first_shown(hit: MessageHit, room: int) -> int:
    """From where on the snippet is shown, so that the first match is in the part there is room for."""
    first, last = hit.matches[0] if hit.matches else (0, 0)
    return first - room // 3 if last > room * 2 // 3 and first > room // 3 else 0


@declare(
    "search",
    section="Find",
    answer=Searched,
    examples=(
        ("asnap search 'token refresh'", "messages with both words, in all sessions"),
        ("""asnap search '"connection refused"' --since 7d""", "a phrase, in the last week"),
        ("asnap search 'migrat*' --tool bash --agent gemini", "words that begin so, where a shell was run"),
        ("asnap search needle latest", "within one conversation"),
    ),
    exits=(4, 7, 10),
)
@click.argument("query", metavar="QUERY")
@click.argument("ref", metavar="[REF]", required=False)
@click.option("--cwd", metavar="DIR", help="Only sessions that ran in DIR or below.")
@filter_options
@click.option("--tool", metavar="NAME", help="Only messages in which a tool with this in its name was used.")
@click.option(
    "--role", type=click.Choice(["user", "assistant", "system", "tool"]), help="Only messages of this role."
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=_LIMIT,
    metavar="N",
    help=f"At most N hits; {_LIMIT} unless given.",
)
@click.option("--rebuild", is_flag=True, help="Make the index anew first.")
async def command(call: Call, *, query: str, ref: str | None, rebuild: bool, **asked: Any) -> Searched:
    """Search what was said in all sessions, or in one: words, "a phrase", begin*.

    All words must be in the same message. Tool calls and their output are searched too; secrets are not. The index
    is in the cache directory and follows the store by itself. --since and --until look at messages.
    """
    from snapshot_plugin.cli.moments import moment  # noqa: PLC0415 — only what this command needs
    from snapshot_plugin.manager.search.find import Question  # noqa: PLC0415 — as above
    from snapshot_plugin.manager.search.query import expression  # noqa: PLC0415 — as above

    words = expression(query, tool=asked["tool"], role=asked["role"])
    since = moment(asked["since"], call.now) if asked["since"] else None
    until = moment(asked["until"], call.now, end=True) if asked["until"] else None
    async with call.store() as store, search_index(call, store, rebuild=rebuild) as index:
        metas = await index.listed()
        rows, hidden = _chosen(metas, query, ref, asked)
        names = [row.session_id for row in rows]
        question = Question(
            expression=words, sessions=names, limit=asked["limit"], each=asked["limit"] if ref else _EACH,
            since=since, until=until,
        )  # fmt: skip
        progress = functools.partial(indexing, call)
        found, unreadable = await index.ask(question, metas, only=frozenset(names), progress=progress)
    tell_unreadable(call, unreadable)
    return _searched(query, found, rows, hidden=hidden, unreadable=unreadable, as_of=call.now)


def _chosen(
    metas: Sequence[SnapshotMeta], query: str, ref: str | None, asked: dict[str, Any]
) -> tuple[Sequence[SessionRow], dict[str, int]]:
    """The sessions to look into, the last changed first, and how many others are left out by what."""
    from snapshot_plugin.cli.refs import short_ids  # noqa: PLC0415 — as above
    from snapshot_plugin.cli.sessions import row_of  # noqa: PLC0415 — as above

    short = short_ids([meta.session_id for meta in metas])
    if ref is not None:
        meta = _target(ref, query, metas)
        return [row_of(meta, short[meta.session_id])], {}
    selection = Selection(below=asked["cwd"], agent=asked["agent"], tags=asked["tags"])
    selected = select([row_of(meta, short[meta.session_id]) for meta in metas], selection)
    return selected.shown, selected.counts


def _target(ref: str, query: str, metas: Sequence[SnapshotMeta]) -> SnapshotMeta:
    from snapshot_plugin.cli.refs import resolve  # noqa: PLC0415 — as above

    try:
        target = resolve(ref, metas)
    except SnapshotNotFound as error:
        quoted = f"to search for several words, quote them: asnap search {shlex.quote(f'{query} {ref}')}"
        raise SnapshotNotFound(
            error.message, session_id=error.session_id, hint=f"{error.hint}\n  {quoted}" if error.hint else quoted
        ) from None
    if target.seq is not None:
        raise InvalidInput(
            f"{ref!r} is one snapshot, and the newest state of a session is what is searched",
            session_id=target.session_id,
            hint="leave out the @ and what follows",
        )
    return target.meta


def _searched(query: str, found: Found, rows: Sequence[SessionRow], **rest: Any) -> Searched:
    by_id = {row.session_id: row for row in rows}
    return Searched(
        query=query,
        hits=tuple(_message_hit(hit, by_id[hit.session_id]) for hit in found.hits),
        sessions=tuple(_session_hits(by_id[name], hits) for name, hits in found.counts.items()),
        total_hits=sum(found.counts.values()),
        searched=len(rows) - len(rest["unreadable"]),
        **rest,
    )


def _message_hit(hit: Hit, row: SessionRow) -> MessageHit:
    snippet, matches = _unmarked(plain(hit.snippet))
    return MessageHit(
        session_id=hit.session_id,
        title=row.title,
        message=hit.number or None,
        role=hit.role,
        at=hit.at,
        snippet=snippet,
        matches=matches,
        jump=_jump(hit.session_id, hit.number or None),
    )


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    from snapshot_plugin.manager.search.find import END, START  # noqa: PLC0415 — loaded by now

    text, matches = "", []
    for number, part in enumerate(snippet.split(START)):
        match, _, rest = part.partition(END) if number else ("", "", part)
        matches += [(len(text), len(text) + len(match))] if match else []
        text += match + rest
    return text, tuple(matches)


def _session_hits(row: SessionRow, hits: int) -> SessionHits:
    return SessionHits(
        session_id=row.session_id,
        short_id=row.short_id,
        title=row.title,
        agent=row.agent,
        cwd=row.cwd,
        changed_at=row.changed_at,
        hits=hits,
    )
