"""The layout of a command's help: purpose, examples, options, common options, exit codes.

Imports nothing but click and the errors: ``asnap run`` starts its agent before anything heavy is loaded.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from snapshot_plugin.errors import InvalidInput, SnapshotError

if TYPE_CHECKING:
    from snapshot_plugin.operations.document import Document

__all__ = ["COMMON", "EXITS", "AsnapCommand", "Example", "agent_command", "directory", "options", "process"]

Example = tuple[str, str]
"""A command line, and what it does."""

EXITS = {
    0: "it worked",
    1: "it failed",
    2: "the command line is wrong",
    3: "part of it worked",
    4: "no such session or snapshot",
    5: "stored data is damaged",
    6: "another process owns the session",
    7: "the key is missing or wrong",
    8: "written by a newer release",
    9: "the agent is unavailable, or the required fidelity cannot be met",
    10: "there is no store",
    124: "timed out",
    130: "interrupted",
}
"""What exit statuses mean, for every command."""

COMMON = frozenset({"store", "as_json", "as_jsonl", "quiet", "verbose", "color", "no_input", "log_format", "help"})
"""Options every command has; help shows them apart."""


class AsnapCommand(click.Command):
    """A click command that knows its examples, exit codes and the type of its answer."""

    examples: tuple[Example, ...] = ()
    exits: tuple[int, ...] = ()
    answers: type[Document] | str | None = None
    """The type of its answer, or where it is in `snapshot_plugin.operations`; None if it has none."""

    @property
    def answer(self) -> type[Document] | None:
        """The type of its answer, imported if it was only named."""
        if not isinstance(self.answers, str):
            return self.answers
        from importlib import import_module

        module, _, name = self.answers.partition(".")
        found: type[Document] = getattr(import_module(f"snapshot_plugin.operations.{module}"), name)
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; a usage error carries its context."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error carries the command to run next."""
        try:
            return self._invoke(ctx)
        except SnapshotError as error:
            from snapshot_plugin.operations.failures import next_command

            error.run = next_command(error, place=ctx.params.get("store"), asked=ctx.command_path)
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except PermissionError as error:  # a file of another user, wherever a command came across it
            from snapshot_plugin.system.files import unavailable

            raise unavailable(ctx.command_path, error) from error

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Purpose, examples, usage, options, common options, exit codes."""
        self.format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            formatter.write_dl([(line, what) for line, what in self.examples], col_max=44)
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)
        own = [param for param in self.get_params(ctx) if param.name not in COMMON]
        common = [param for param in self.get_params(ctx) if param.name in COMMON]
        for title, params in (("Options", own), ("Common options", common)):
            records = [record for param in params if (record := param.get_help_record(ctx))]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), EXITS[code]) for code in self.exits])


def options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Add several options to a command, in this order."""

    def added(body: Any) -> Any:
        for decorator in reversed(decorators):
            body = decorator(body)
        return body

    return added


def agent_command(context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    """The command of an agent, whose own options are passed on. An option before it is a usage error."""
    if words and words[0].startswith("-"):
        raise click.NoSuchOption(words[0], ctx=context)
    return words


def directory(given: str) -> str:
    """The absolute path of the directory given with ``--cwd``."""
    if not os.path.isdir(given):  # noqa: PTH112 — text
        raise InvalidInput(f"--cwd {given} is not a directory")
    return os.path.abspath(given)  # noqa: PTH100 — text


def process(
    name: str, *, examples: Sequence[Example], exits: Sequence[int] = (), **settings: Any
) -> Callable[[Callable[..., Any]], AsnapCommand]:
    """Declare a command that owns its standard streams, as `asnap run` does: no answer, no common options."""

    def declare(body: Callable[..., Any]) -> AsnapCommand:
        @functools.wraps(body)
        def stay(**options: Any) -> Any:
            gc.enable()  # it may run for days (see __main__)
            return body(**options)

        made: AsnapCommand = click.command(name, cls=AsnapCommand, **settings)(stay)
        made.examples, made.exits = tuple(examples), (0, 1, 2, *exits)
        return made

    return declare
