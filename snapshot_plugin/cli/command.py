"""Declare a command: one function that returns a `Document`, with its options and help.

Every command gets the same common options (``--store``, ``--json``, …) and the same help: what it is for, examples
first, then its options, the common ones, and its exit codes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.layout import EXITS, AsnapCommand, Example, options
from snapshot_plugin.cli.output import Output
from snapshot_plugin.operations.document import Document

__all__ = ["EXITS", "AsnapCommand", "Printed", "command", "filter_options", "yes_option"]

Show = Callable[[Any, Output], None]
"""Prints one type of answer for a person."""


class Printed(NamedTuple):
    """An answer, printed otherwise than its command usually does: as options asked."""

    answer: Document
    show: Show


Answer = Document | Printed | None
Body = Callable[..., Awaitable[Answer]] | Callable[..., Answer]
"""The body of a command. A plain function starts faster than a coroutine."""

_common = options(
    click.option("--store", metavar="PLACE", help="The store: a directory or a URL.  [env: ASNAP_STORE]"),
    click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout (see asnap schema)."),
    click.option("--jsonl", "as_jsonl", is_flag=True, help="One JSON document per line on stdout."),
    click.option("-q", "--quiet", is_flag=True, help="Only data and errors."),
    click.option("-v", "--verbose", is_flag=True, help="Say more on stderr."),
    click.option(
        "--color",
        "--colour",
        "color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        help="Colour.",
    ),
    click.option("--no-input", is_flag=True, help="Never ask; fail instead."),
    click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of log lines."),
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
"""For commands that ask before they act."""


def command(
    name: str,
    *,
    examples: Sequence[Example],
    answer: type[Document] | str | None = None,
    show: Any = None,
    exits: Sequence[int] = (4, 10),
    **settings: Any,
) -> Callable[[Body], AsnapCommand]:
    """Declare a command.

    Args:
        name: as typed.
        examples: at least three.
        answer: what the function returns, for ``--json`` and `asnap schema`: a type, or its module and name in
            `operations` if it shall only be loaded where it is needed. None if it writes bytes itself.
        show: prints that answer for a person, unless the function returns another way with it (`Printed`).
        exits: the exit codes worth telling, besides 0, 1 and 2.
        settings: for `click.command`.
    """

    def declare(body: Body) -> AsnapCommand:
        @functools.wraps(body)
        def invoke(**options: Any) -> int:
            call = Call.from_options(options)
            work = functools.partial(body, call, **options)
            done: Any = _awaited(work) if inspect.iscoroutinefunction(body) else work()
            if done is None:
                return 0
            printed = done if isinstance(done, Printed) else Printed(done, show)
            call.out.answer(*printed)
            return int(printed.answer.exit_code)

        made: AsnapCommand = click.command(name, cls=AsnapCommand, **settings)(_common(invoke))
        made.answers, made.examples, made.exits = answer, tuple(examples), (0, 1, 2, *exits)
        return made

    return declare


def _awaited(work: Callable[..., Any]) -> Answer:
    import anyio

    answers: list[Answer] = []

    async def run() -> None:  # returns nothing: asyncio would format the result of its main task
        answers.append(await work())

    anyio.run(run)
    return answers[0]


filter_options = options(
    click.option("--agent", metavar="NAME", help="Only sessions of agents with this in their name."),
    click.option("--since", metavar="WHEN", help="Only those changed since: 3d, 12h, yesterday, 2026-11-01."),
    click.option("--until", metavar="WHEN", help="Only those last changed before or on it."),
    click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only those with this tag; may be repeated."),
)
"""The filters of every command that searches sessions."""
