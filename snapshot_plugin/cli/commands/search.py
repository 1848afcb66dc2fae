"""``asnap search``: full text over all sessions."""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.indexed import ask_ready, indexing, search_index, tell_unreadable
from snapshot_plugin.cli.scope import Selection, filter_options, reason
from snapshot_plugin.cli.searched import MessageHit, Searched, SessionHits, jump_to
from snapshot_plugin.cli.text import plain
from snapshot_plugin.errors import InvalidInput, SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.manager.search.find import Found, Hit, Question
    from snapshot_plugin.manager.search.listing import Listed
    from snapshot_plugin.manager.search.ready import Choose

__all__ = ["Searched", "command"]

_LIMIT = 20
_EACH = 5
"""How many hits of one session are shown when others are searched as well: one chatty session hides no other."""


@declare(
    "search",
    section="Find",
    answer=Searched,
    examples=(
        ("asnap search 'token refresh'", "messages with both words, in all sessions"),
        ("""asnap search '"connection refused"' --since 7d""", "a phrase, in the last week"),
        ("asnap search 'migrat*' --tool bash --agent gemini", "words that begin so, where a shell was run"),
        ("""asnap search 'timeout OR "gave up"'""", "one or the other"),
        ("asnap search 'deploy NOT staging'", "one without the other"),
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
def command(call: Call, *, query: str, ref: str | None, rebuild: bool, **asked: Any) -> Searched:
    """Search what was said in all sessions, or in one: words, "a phrase", begin*, this OR that, this NOT that.

    All words must be in the same message; what stands on either side of OR is a search of its own. Tool calls and
    their output are searched too; secrets are not. Each session is searched as it is now. The index is in the cache
    directory and follows the store by itself. --since and --until look at messages.
    """
    choose = functools.partial(_chosen, _question(call, query, ref, asked), query, ref, asked)
    ready = None if rebuild else ask_ready(call, choose)
    if ready is not None:
        return _searched(query, *ready, unreadable=(), as_of=call.now)

    import anyio  # noqa: PLC0415 — its event loop takes as long to load as a search that needs none

    found, chosen, unreadable = anyio.run(functools.partial(_brought_up_to_date, call, choose, rebuild=rebuild))
    tell_unreadable(call, unreadable)
    return _searched(query, found, chosen, unreadable=unreadable, as_of=call.now)


def _question(call: Call, query: str, ref: str | None, asked: Mapping[str, Any]) -> Question:
    from snapshot_plugin.cli.moments import moment  # noqa: PLC0415 — only what this command needs
    from snapshot_plugin.manager.search.find import Question  # noqa: PLC0415 — as above
    from snapshot_plugin.manager.search.query import expression, narrowing  # noqa: PLC0415 — as above

    return Question(
        expression=expression(query),
        narrowing=narrowing(tool=asked["tool"], role=asked["role"]),
        sessions=(),
        limit=asked["limit"],
        each=asked["limit"] if ref else _EACH,
        since=moment(asked["since"], call.now) if asked["since"] else None,
        until=moment(asked["until"], call.now, end=True) if asked["until"] else None,
    )


class _Chosen(NamedTuple):
    """The sessions to look into, the last changed first; how many others what keeps out; the ids of all."""

    sessions: Sequence[Listed]
    hidden: dict[str, int]
    ids: Sequence[str]


def _chosen(
    question: Question, query: str, ref: str | None, asked: Mapping[str, Any], sessions: Sequence[Listed]
) -> tuple[Question, _Chosen]:
    """What to ask, given all sessions of the store."""
    selection = Selection(below=asked["cwd"], agent=asked["agent"], tags=asked["tags"])
    kept, hidden = _filtered(sessions, selection) if ref is None else ([_target(ref, query, sessions)], {})
    names = [session.session_id for session in kept]
    return replace(question, sessions=names), _Chosen(kept, hidden, [session.session_id for session in sessions])


def _filtered(sessions: Sequence[Listed], selection: Selection) -> tuple[list[Listed], dict[str, int]]:
    kept, hidden = [], Counter[str]()
    for session in sessions:
        if by := reason(session, selection):
            hidden[by[0]] += 1
        else:
            kept.append(session)
    return kept, dict(hidden)


async def _brought_up_to_date(
    call: Call, choose: Choose[_Chosen], *, rebuild: bool
) -> tuple[Found, _Chosen, tuple[str, ...]]:
    from snapshot_plugin.manager.search.listing import listed  # noqa: PLC0415 — as above

    async with call.store() as store, search_index(call, store, rebuild=rebuild) as index:
        metas = await index.listed()
        question, chosen = choose([listed(meta) for meta in metas])
        only, progress = frozenset(question.sessions), functools.partial(indexing, call)
        found, unreadable = await index.ask(question, metas, only=only, progress=progress)
    return found, chosen, unreadable


def _target(ref: str, query: str, sessions: Sequence[Listed]) -> Listed:
    from snapshot_plugin.cli.refs import meant  # noqa: PLC0415 — as above

    try:
        session, seq = meant(ref, sessions)
    except SnapshotNotFound as error:
        quoted = f"to search for several words, quote them: asnap search {shlex.quote(f'{query} {ref}')}"
        raise SnapshotNotFound(
            error.message, session_id=error.session_id, hint=f"{error.hint}\n  {quoted}" if error.hint else quoted
        ) from None
    if seq is not None:
        raise InvalidInput(
            f"{ref!r} is one snapshot, and the newest state of a session is what is searched",
            session_id=session.session_id,
            hint="leave out the @ and what follows",
        )
    return session


def _searched(query: str, found: Found, chosen: _Chosen, **rest: Any) -> Searched:
    from snapshot_plugin.cli.refs import short_ids  # noqa: PLC0415 — as above

    by_id = {session.session_id: session for session in chosen.sessions if session.session_id in found.counts}
    short = short_ids(chosen.ids, of=by_id.keys())
    return Searched(
        query=query,
        hits=tuple(_message_hit(hit, by_id[hit.session_id]) for hit in found.hits),
        sessions=tuple(_session_hits(by_id[name], short[name], hits) for name, hits in found.counts.items()),
        total_hits=found.total_hits,
        total_sessions=found.total_sessions,
        searched=len(chosen.sessions) - len(rest["unreadable"]),
        hidden=chosen.hidden,
        **rest,
    )


def _message_hit(hit: Hit, row: Listed) -> MessageHit:
    snippet, matches = _unmarked(plain(hit.snippet))
    return MessageHit(
        session_id=hit.session_id,
        title=row.title,
        message=hit.number or None,
        role=hit.role,
        at=hit.at,
        snippet=snippet,
        matches=matches,
        jump=jump_to(hit.session_id, hit.number or None),
    )


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    from snapshot_plugin.manager.search.find import END, START  # noqa: PLC0415 — loaded by now

    text, matches = "", []
    for number, part in enumerate(snippet.split(START)):
        match, _, rest = part.partition(END) if number else ("", "", part)
        matches += [(len(text), len(text) + len(match))] if match else []
        text += match + rest
    return text, tuple(matches)


def _session_hits(session: Listed, short_id: str, hits: int) -> SessionHits:
    return SessionHits(
        session_id=session.session_id,
        short_id=short_id,
        title=session.title,
        agent=session.agent,
        cwd=session.cwd,
        changed_at=session.changed_at,
        hits=hits,
    )
