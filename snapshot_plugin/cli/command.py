"""How a command is declared: one function that returns a `Document`, its options, and help in one shape.

Every command gets the same common options (``--store``, ``--json``, …) and the same help: what it is for, examples
first, then its options, the common ones, and its exit codes.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import click

from snapshot_plugin.cli.call import Call
from snapshot_plugin.cli.document import Document

__all__ = ["EXITS", "SECTIONS", "AsnapCommand", "Example", "command", "yes_option"]

Body = Callable[..., Awaitable[Document | None]]
Example = tuple[str, str]
"""A command line, and what it does."""

SECTIONS = ("Run", "Find", "Change", "Share", "Operate", "Set up")
"""The order in which ``asnap --help`` shows commands."""

EXITS = {
    0: "it worked",
    1: "it failed",
    2: "the command line is wrong",
    3: "some of it worked",
    4: "no such session or snapshot",
    5: "stored data is damaged",
    6: "another process has the session",
    7: "the key is missing or wrong",
    8: "written by a newer release",
    9: "the agent is unavailable, or the fidelity asked for cannot be met",
    10: "there is no store",
    124: "it took too long",
    130: "interrupted",
}
"""What exit statuses mean, for every command."""

_COMMON: list[Callable[[Any], Any]] = [
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
]
_COMMON_NAMES = frozenset(
    {"store", "as_json", "as_jsonl", "quiet", "verbose", "color", "no_input", "log_format", "help"}
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
"""For commands that ask before they act."""


class AsnapCommand(click.Command):
    """A click command that knows its examples, exit codes and the type of its answer."""

    examples: tuple[Example, ...] = ()
    exits: tuple[int, ...] = ()
    answer: type[Document] | None = None
    section: str = "Operate"

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Purpose, examples, usage, options, common options, exit codes."""
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write_dl([(line, what) for line, what in self.examples], col_max=44)
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)
        own = [param for param in self.get_params(ctx) if param.name not in _COMMON_NAMES]
        common = [param for param in self.get_params(ctx) if param.name in _COMMON_NAMES]
        for title, params in (("Options", own), ("Common options", common)):
            records = [record for param in params if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), EXITS[code]) for code in self.exits])


def command(
    name: str,
    *,
    section: str,
    examples: Sequence[Example],
    answer: type[Document] | None = None,
    exits: Sequence[int] = (4, 10),
    **settings: Any,
) -> Callable[[Body], AsnapCommand]:
    """Declare a command.

    Args:
        name: as typed.
        section: the heading under which ``asnap --help`` shows it, one of `SECTIONS`.
        examples: at least three.
        answer: what the function returns, for ``--json`` and `asnap schema`; None if it writes bytes itself.
        exits: the exit codes worth telling, besides 0, 1 and 2.
        settings: for `click.command`.
    """

    def declare(body: Body) -> AsnapCommand:
        @functools.wraps(body)
        def invoke(**options: Any) -> int:
            call = Call.from_options(options)
            click.get_current_context().obj = call
            answers: list[Document | None] = []

            async def run() -> None:  # returns nothing: asyncio makes a text of what its main task returns
                answers.append(await body(call, **options))

            anyio.run(run)
            document = answers[0]
            if document is None:
                return 0
            call.out.answer(document)
            return document.exit_code

        for option in reversed(_COMMON):
            invoke = option(invoke)
        made: AsnapCommand = click.command(name, cls=AsnapCommand, **settings)(invoke)
        made.section, made.answer = section, answer
        made.examples, made.exits = tuple(examples), (0, 1, 2, *exits)
        return made

    return declare
