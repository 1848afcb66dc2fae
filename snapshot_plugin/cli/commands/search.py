"""``asnap search``: full text over all sessions."""

from __future__ import annotations

import functools
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.indexed import ask_ready, indexing, search_index, tell_unreadable
from snapshot_plugin.cli.scope import Selection, filter_options, reason
from snapshot_plugin.cli.searched import MessageHit, Searched, SessionHits, at_snapshot, jump_to
from snapshot_plugin.cli.text import plain
from snapshot_plugin.errors import InvalidInput, SnapshotNotFound

if TYPE_CHECKING:
    from snapshot_plugin.model.meta import SnapshotMeta
    from snapshot_plugin.search.find import Found, Hit, Question
    from snapshot_plugin.search.ready import Choose
    from snapshot_plugin.store.base import SnapshotStore

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
        ("asnap search needle latest --earlier", "and in what it said before it was shortened"),
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
@click.option("--earlier", is_flag=True, help="With REF: also what it said before it was shortened.")
@click.option("--rebuild", is_flag=True, help="Make the index anew first.")
def command(call: Call, *, query: str, ref: str | None, rebuild: bool, **asked: Any) -> Searched:
    """Search what was said in all sessions, or in one: words, "a phrase", begin*, this OR that, this NOT that.

    All words must be in the same message; what stands on either side of OR is a search of its own. Tool calls and
    their output are searched too; secrets are not. Sessions are searched as they are now, REF@N as it was then. The
    index is in the cache directory and follows the store by itself. --since and --until look at messages.
    """
    if asked["earlier"] and ref is None:
        raise InvalidInput("--earlier is about one session", hint="name it: asnap search QUERY REF --earlier")
    choose = functools.partial(_chosen, _question(call, query, ref, asked), query, ref, asked)
    ready = None if rebuild or asked["earlier"] else ask_ready(call, choose)
    if ready is not None:
        return _searched(query, *ready, unreadable=(), as_of=call.now)

    import anyio

    search = functools.partial(_brought_up_to_date, call, choose, earlier=asked["earlier"], rebuild=rebuild)
    found, chosen, unreadable = anyio.run(search)
    tell_unreadable(call, unreadable)
    return _searched(query, found, chosen, unreadable=unreadable, as_of=call.now)


def _question(call: Call, query: str, ref: str | None, asked: Mapping[str, Any]) -> Question:
    from snapshot_plugin.cli.moments import moment
    from snapshot_plugin.search.find import Question
    from snapshot_plugin.search.query import expression, narrowing

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
    """What to look into, by what it is called in the question: sessions, the last changed first, or snapshots."""

    named: Mapping[str, tuple[SnapshotMeta, int | None]]
    hidden: dict[str, int]
    """How many others what keeps out."""
    ids: Sequence[str]
    """Of all sessions."""


def _chosen(
    question: Question, query: str, ref: str | None, asked: Mapping[str, Any], sessions: Sequence[SnapshotMeta]
) -> tuple[Question, _Chosen]:
    """What to ask, given all sessions of the store."""
    ids = [session.session_id for session in sessions]
    if ref is not None:
        session, seq = _target(ref, query, sessions)
        name = session.session_id if seq is None else f"{ref}\0"  # what no session is called: not in the index
        return replace(question, sessions=[name]), _Chosen({name: (session, seq)}, {}, ids)
    selection = Selection(below=asked["cwd"], agent=asked["agent"], tags=asked["tags"])
    kept, hidden = _filtered(sessions, selection)
    named = {session.session_id: (session, None) for session in kept}
    return replace(question, sessions=list(named)), _Chosen(named, hidden, ids)


def _filtered(sessions: Sequence[SnapshotMeta], selection: Selection) -> tuple[list[SnapshotMeta], dict[str, int]]:
    kept, hidden = [], Counter[str]()
    for session in sessions:
        if by := reason(session, selection):
            hidden[by[0]] += 1
        else:
            kept.append(session)
    return kept, dict(hidden)


async def _brought_up_to_date(
    call: Call, choose: Choose[_Chosen], *, earlier: bool, rebuild: bool
) -> tuple[Found, _Chosen, tuple[str, ...]]:
    async with call.store() as store, search_index(call, store, rebuild=rebuild) as index:
        metas = await index.listed()
        question, chosen = choose(metas)
        if earlier or any(seq is not None for _, seq in chosen.named.values()):
            return await _in_snapshots(store, question, chosen)
        only, progress = frozenset(question.sessions), functools.partial(indexing, call)
        found, unreadable = await index.ask(question, metas, only=only, progress=progress)
    return found, chosen, unreadable


async def _in_snapshots(
    store: SnapshotStore, question: Question, chosen: _Chosen
) -> tuple[Found, _Chosen, tuple[str, ...]]:
    from snapshot_plugin.search.earlier import search_snapshots

    ((session, at),) = chosen.named.values()
    found, numbers, unreadable = await search_snapshots(store, session.session_id, question, at=at)
    named = {name: (session, seq) for name, seq in numbers.items()}
    one = found._replace(total_sessions=min(1, found.total_sessions))
    return one, chosen._replace(named=named), unreadable


def _target(ref: str, query: str, sessions: Sequence[SnapshotMeta]) -> tuple[SnapshotMeta, int | None]:
    from snapshot_plugin.cli.refs import resolve

    try:
        return resolve(ref, sessions)
    except SnapshotNotFound as error:
        quoted = f"to search for several words, quote them: asnap search {shlex.quote(f'{query} {ref}')}"
        raise SnapshotNotFound(
            error.message, session_id=error.session_id, hint=f"{error.hint}\n  {quoted}" if error.hint else quoted
        ) from None


def _searched(query: str, found: Found, chosen: _Chosen, *, unreadable: Sequence[str], as_of: datetime) -> Searched:
    from snapshot_plugin.cli.refs import short_ids

    sessions = frozenset(session.session_id for session, _ in chosen.named.values())
    with_hits = {chosen.named[name][0].session_id for name in found.counts}
    short = short_ids(chosen.ids, of=with_hits)
    return Searched(
        query=query,
        hits=tuple(_message_hit(hit, *chosen.named[hit.session_id]) for hit in found.hits),
        sessions=tuple(_session_hits(*chosen.named[name], short, hits) for name, hits in found.counts.items()),
        total_hits=found.total_hits,
        total_sessions=found.total_sessions,
        searched=len(sessions) - sum(name in sessions for name in unreadable),
        hidden=chosen.hidden,
        unreadable=tuple(unreadable),
        as_of=as_of,
    )


def _message_hit(hit: Hit, session: SnapshotMeta, snapshot: int | None) -> MessageHit:
    snippet, matches = _unmarked(plain(hit.snippet))
    return MessageHit(
        session_id=session.session_id,
        snapshot=snapshot,
        title=session.title,
        message=hit.number or None,
        role=hit.role,
        at=hit.at,
        snippet=snippet,
        matches=matches,
        jump=jump_to(at_snapshot(session.session_id, snapshot), hit.number or None),
    )


def _unmarked(snippet: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    from snapshot_plugin.search.find import END, START

    text, matches = "", []
    for number, part in enumerate(snippet.split(START)):
        match, _, rest = part.partition(END) if number else ("", "", part)
        matches += [(len(text), len(text) + len(match))] if match else []
        text += match + rest
    return text, tuple(matches)


def _session_hits(session: SnapshotMeta, snapshot: int | None, short: Mapping[str, str], hits: int) -> SessionHits:
    return SessionHits(
        session_id=session.session_id,
        snapshot=snapshot,
        short_id=at_snapshot(short[session.session_id], snapshot),
        title=session.title,
        agent=session.agent,
        cwd=session.cwd,
        changed_at=session.changed_at,
        hits=hits,
    )
