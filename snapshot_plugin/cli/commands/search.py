"""``asnap search``: full text over all sessions."""

from __future__ import annotations

from typing import Any

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.command import command as declare
from snapshot_plugin.cli.filters import filter_options
from snapshot_plugin.cli.searched import ToldSearched
from snapshot_plugin.cli.unreadable import tell_unreadable
from snapshot_plugin.errors import InvalidInput
from snapshot_plugin.operations.moments import moment
from snapshot_plugin.operations.searching import Searched, SearchRequest, index_all, search, search_ready

__all__ = ["command"]

_LIMIT = 20


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
    tell_unreadable(call, found.unreadable)
    return ToldSearched.of(found)


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
