"""``asnap search``: full text over all sessions."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.command import filter_options
from snapshot_plugin.cli.output import Output
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.model.ids import as_reference
from snapshot_plugin.operations.moments import moment
from snapshot_plugin.operations.searching import (
    MessageHit,
    Searched,
    SearchRequest,
    SessionHits,
    at_snapshot,
    index_all,
    jump_to,
    search,
    search_ready,
)
from snapshot_plugin.operations.text import ago, cut, pad, plain, several, width

__all__ = ["command"]

_LIMIT = 20
_SESSION = "session"


def show_hits(answer: Searched, out: Output) -> None:
    """Print the hits."""
    for session in answer.sessions:
        found_in = (session.session_id, session.snapshot)
        hits = [hit for hit in answer.hits if (hit.session_id, hit.snapshot) == found_in]
        if hits and out.is_terminal:
            _show_session(answer, out, session, hits)
        for hit in () if out.is_terminal else hits:
            out.line("\t".join(_cells(hit, session)))
    out.note(_footer(answer), dim=True)
    if answer.query.isupper() and "NOT" in answer.query.split():  # in "404 NOT FOUND" the capitals are plain words
        out.note(
            f"words after NOT were excluded; to search for the whole text: asnap search {_phrase(answer.query)}"
        )


def _show_session(answer: Searched, out: Output, session: SessionHits, hits: Sequence[MessageHit]) -> None:
    name = plain(session.title or "") or "(untitled)"
    about = " · ".join(filter(None, (plain(session.agent or ""), ago(session.changed_at, answer.as_of))))
    short, told = plain(session.short_id), cut(f"{name} · {about}", out.columns - len(session.short_id) - 2)
    out.line(f"{out.style(short, fg='cyan', bold=True)}  {out.style(told, bold=True)}")
    for hit in hits:
        head = f"  {pad(str(hit.message or ''), 5, right=True)} {pad(hit.role or _SESSION, 10)}"
        out.line(head + _marked(hit, out, out.columns - width(head)))
        out.line(f"{' ' * 8}{jump_to(session.short_id, hit.message)}", dim=True)
    if session.hits > len(hits):
        all_of_them = f"asnap search {_quoted(answer.query)} {_quoted(session.short_id)}"
        out.line(f"{' ' * 8}{session.hits - len(hits)} more: {all_of_them}", dim=True)


def _footer(answer: Searched) -> str:
    found = f"{several(answer.total_hits, 'hit')} in {several(answer.total_sessions, 'session')}"
    parts = [f"{found} of {answer.searched} searched"]
    if len(answer.hits) < answer.total_hits:
        parts.append(f"{len(answer.hits)} shown; --limit shows more")
    if answer.hidden:
        parts.append("not searched: " + ", ".join(f"{count} by {by}" for by, count in answer.hidden.items()))
    return " · ".join(parts)


def _quoted(text: str) -> str:
    return shlex.quote(plain(text))


def _phrase(query: str) -> str:
    words = query.replace('"', " ")
    return _quoted(f'"{words}"')


def _cells(hit: MessageHit, session: SessionHits) -> tuple[str, ...]:
    """Cells for programs: whole ids, exact times, matches between asterisks."""
    when = (hit.at or session.changed_at).isoformat(timespec="seconds")
    text = "".join(f"**{part}**" if is_match else part for part, is_match in _parts(hit))
    ref = at_snapshot(as_reference(hit.session_id), hit.snapshot)
    return ref, str(hit.message or ""), hit.role or _SESSION, when, text


def _parts(hit: MessageHit, start: int = 0) -> Iterator[tuple[str, bool]]:
    """Yield the snippet from *start* on, match by match."""
    for first, last in hit.matches:
        yield hit.snippet[start:first], False
        yield hit.snippet[first:last], True
        start = last
    yield hit.snippet[start:], False


def _marked(hit: MessageHit, out: Output, room: int) -> str:
    """Return the snippet in at most *room* columns, matches in colour, or between asterisks without colour."""
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
    """Where to start the snippet so that the first match fits."""
    first, last = hit.matches[0] if hit.matches else (0, 0)
    return first - room // 3 if last > room * 2 // 3 and first > room // 3 else 0


@declare(
    "search",
    answer=Searched,
    show=show_hits,
    examples=(
        ("asnap search 'token refresh'", "messages with both words, in all sessions"),
        ("""asnap search '"connection refused"' --since 7d""", "a phrase, in the last week"),
        ("asnap search 'migrat*' --tool bash --agent gemini", "words that begin so, where a shell was run"),
        ("""asnap search 'timeout OR "gave up"'""", "one or the other"),
        ("asnap search 'deploy NOT staging'", "one without the other"),
        ("asnap search tag:pre-deploy", "sessions with a tag, and snapshots"),
        ("asnap search needle latest", "within one conversation"),
        ("asnap search needle latest --earlier", "also in text that was later compacted away"),
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
@click.option("--earlier", is_flag=True, help="With REF: also text that was later compacted away.")
@click.option("--rebuild", is_flag=True, help="Rebuild the index first.")
@click.option("--wait", is_flag=True, help="Index every session first, however long that takes.")
@click.option("--index", "only_index", is_flag=True, hidden=True, help="Only bring the index up to date.")
def command(
    call: Call, *, query: str, ref: str | None, rebuild: bool, wait: bool, only_index: bool, **options: Any
) -> Searched | None:
    """Search all sessions, or one: words, "a phrase", begin*, this OR that, this NOT that.

    All words must be in the same message; each side of OR is a separate search. Tool calls and
    their output are searched too; secrets are not. Sessions are searched in their newest state, REF@N in that
    snapshot. The index is in the cache directory and is updated automatically; if many sessions are missing in
    it, the others are searched at once, and those are indexed in the background. --since and --until apply to
    messages.
    """
    if only_index:
        _bring_up_to_date(call)
        return None
    if options["earlier"] and ref is None:
        raise InvalidInput("--earlier is about one session", hint="name it: asnap search QUERY REF --earlier")
    since, until = options.pop("since"), options.pop("until")
    asked = SearchRequest(
        query=query,
        ref=ref,
        since=moment(since, call.now) if since else None,
        until=moment(until, call.now, end=True) if until else None,
        **options,
    )
    at_once = ref is None and not (rebuild or wait)
    ready = None if rebuild else search_ready(call.work, asked)
    found = ready or _searched(call, asked, rebuild=rebuild, at_once=at_once)
    if found.unindexed:
        _index_in_background(call)
        left = f"{found.unindexed} more are being indexed in the background"
        call.out.note(f"{left}: search again in a minute, or wait for them with --wait")
    call.out.unreadable(found.unreadable)
    return found


def _bring_up_to_date(call: Call) -> None:
    import anyio

    async def index() -> None:
        async with call.store() as store:
            await index_all(call.work, store)

    anyio.run(index)


def _searched(call: Call, asked: SearchRequest, *, rebuild: bool, at_once: bool) -> Searched:
    import anyio

    async def searched() -> Searched:
        async with call.store() as store:
            return await search(call.work, store, asked, rebuild=rebuild, at_once=at_once)

    return anyio.run(searched)


def _index_in_background(call: Call) -> None:
    """Update the index in another process, which outlives this one."""
    import subprocess

    from snapshot_plugin.cli.ourselves import our_module

    line = our_module("snapshot_plugin", "search", "--index", "x", "--no-input", "-q")
    place = ["--store", call.place] if call.place else []
    nowhere = subprocess.DEVNULL
    subprocess.Popen(  # noqa: S603 — ourselves
        [*line, *place],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        start_new_session=True,
        env=call.child_environ,
    )
